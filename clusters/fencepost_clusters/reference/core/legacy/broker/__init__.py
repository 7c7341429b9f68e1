"""A broker of the plane over ZooKeeper: its registration, its heartbeats, what it is commanded."""
