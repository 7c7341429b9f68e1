"""What rules about the messages of partitions share, whichever package they are of."""
