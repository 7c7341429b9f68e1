"""What clients of the log are promised, whatever the cluster does."""
