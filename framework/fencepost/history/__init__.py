"""A run's history: recording, following, merging, and the folder it lives in."""
