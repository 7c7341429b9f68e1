"""Hook specifications, and the manager that loads plugins."""
