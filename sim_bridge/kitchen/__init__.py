"""The obstacle-conditioned navigation benchmark: five kitchens, seven routes, 18 obstacles, 625 tasks, no download."""
