"""The quorum plane: KIP-631's controller over Raft, and its brokers."""
