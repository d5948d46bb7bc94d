"""Proximity-normalized motion features (OSMA-Bench 3.2.2, C.3)."""

from osma_monitor.core.motion.features import FEATURES, MotionFeatures, motion_features

__all__ = ["FEATURES", "MotionFeatures", "motion_features"]
