"""First-party plugins: one concept a file, each using only what a third party could."""
