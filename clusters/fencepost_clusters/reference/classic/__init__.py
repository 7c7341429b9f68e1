"""The plane without a controller: replicas elect partition leaders over ZooKeeper. All of it is
here: the system, its defects, and the decisions of its nodes."""
