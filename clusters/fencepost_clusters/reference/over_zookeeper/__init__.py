"""What the two planes over ZooKeeper share: nodes and servers in a cluster, sessions and tasks,
registration, and the contents of znodes."""
