"""The index of a log."""
