"""The system under test: its capabilities, shape, topology and probe."""
