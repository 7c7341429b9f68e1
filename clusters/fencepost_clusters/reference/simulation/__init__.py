"""The reference cluster in the simulated runtime: cores on memory disks, messages as values."""
