"""A broker of the quorum plane: its lease, and the requests that it serves."""
