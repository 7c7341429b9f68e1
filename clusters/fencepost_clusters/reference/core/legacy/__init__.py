"""The plane over ZooKeeper: KIP-343's heartbeats and KIP-380's broker epochs."""
