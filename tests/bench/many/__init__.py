"""Many run folders and very long runs for `./dev bench spark`, and the same tables by DuckDB."""
