"""A broker of the quorum plane: its lease, and what it serves."""
