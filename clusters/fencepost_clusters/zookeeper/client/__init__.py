"""What a node asks of ZooKeeper as values, and a session that carries it out with kazoo."""
