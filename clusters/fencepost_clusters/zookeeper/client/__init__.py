"""A node's requests to ZooKeeper as values, and a session that sends them with kazoo."""
