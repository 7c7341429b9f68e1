"""What a fault is, a held message among them, and the next fault of a random schedule."""
