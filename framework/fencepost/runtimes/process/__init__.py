"""The runtime of real processes, on any backend."""
