"""What the active controller decides."""
