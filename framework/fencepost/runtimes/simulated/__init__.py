"""The simulator: one process, virtual time, one seed."""
