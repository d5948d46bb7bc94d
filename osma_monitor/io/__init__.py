"""Everything that touches files: the episode store, bags, data sets, exports."""
