"""Proximity-normalized motion features (OSMA-Bench 3.2.2, C.4)."""

from osma_monitor.core.motion.features import FEATURES, MotionFeatures, jerk, minimum_clearance, motion_features
from osma_monitor.core.motion.online import MotionUpdate, OnlineMotion
from osma_monitor.core.motion.resample import episode_motion

__all__ = [
    "FEATURES",
    "MotionFeatures",
    "MotionUpdate",
    "OnlineMotion",
    "episode_motion",
    "jerk",
    "minimum_clearance",
    "motion_features",
]
