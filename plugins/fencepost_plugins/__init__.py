"""First-party plugins: one concept a file, each using only the public API."""
