"""The promises to clients of the log, under any faults of the cluster."""
