"""Recorded bags, without ROS: rosbag2 (MCAP, SQLite), ROS 1, whole or damaged."""
