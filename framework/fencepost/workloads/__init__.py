"""Client workers: their commands, the frame of their programs, and what tests see of them."""
