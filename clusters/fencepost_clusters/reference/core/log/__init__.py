"""The index of a log, without its bytes: batches, epochs, producers."""
