"""A run's history: recording, following, merging, and the run folder."""
