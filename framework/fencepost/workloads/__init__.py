"""Client workers: their commands, the frame of their programs, and their facades for tests."""
