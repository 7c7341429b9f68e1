"""Systems under test, each a plugin."""
