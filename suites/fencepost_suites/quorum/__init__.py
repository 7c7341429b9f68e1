"""The promises of the quorum of controllers: epochs, metadata, snapshots, voters and metrics."""
