"""The controller over ZooKeeper: its election, the brokers it knows, and what it commands them."""
