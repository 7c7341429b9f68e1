"""The runtime of real processes, wherever they live."""
