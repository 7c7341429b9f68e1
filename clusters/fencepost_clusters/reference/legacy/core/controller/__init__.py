"""The controller over ZooKeeper: its election, the brokers it knows, and its control requests."""
