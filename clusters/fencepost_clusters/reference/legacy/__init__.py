"""The plane over ZooKeeper: KIP-343's heartbeats and KIP-380's broker epochs. All of it is here:
the system, its demonstration, its defects, and the decisions of its nodes."""
