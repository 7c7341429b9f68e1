"""A session with its tasks, registration, and the contents of znodes, decided without I/O."""
