"""The decisions of its nodes, as those of every plane: see `reference/core`."""
