"""The decisions of the active controller."""
