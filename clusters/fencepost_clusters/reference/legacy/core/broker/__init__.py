"""A broker of the plane over ZooKeeper: registration, heartbeats, control requests."""
