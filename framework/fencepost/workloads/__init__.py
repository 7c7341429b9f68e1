"""Client workers: their commands, their program's frame, and what tests see of them."""
