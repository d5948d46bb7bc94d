"""Logged data sets as episodes: LeRobot, robomimic and LIBERO HDF5, npz archives, label files."""
