"""What a system under test is: its capabilities, shape, topology and probe."""
