"""The system acme, as a plugin for Fencepost."""
