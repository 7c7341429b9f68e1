"""What a node knows of a log without its bytes: batches, epochs, producers."""
