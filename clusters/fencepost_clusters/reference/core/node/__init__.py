"""What every node has: effects, settings, assembly."""
