"""A cluster in the hand: `fencepost cluster up`, and what a second terminal asks of it."""
