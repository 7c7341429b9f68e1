"""Starting and ending child processes, on addresses of their own."""
