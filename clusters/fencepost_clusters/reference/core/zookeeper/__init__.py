"""What the planes over ZooKeeper share: a session with its tasks, the contents of znodes."""
