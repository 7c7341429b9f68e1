"""Clusters that Fencepost did not start."""
