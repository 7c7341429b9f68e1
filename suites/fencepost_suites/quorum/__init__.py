"""What the quorum of controllers promises: epochs, metadata, snapshots, voters and metrics."""
