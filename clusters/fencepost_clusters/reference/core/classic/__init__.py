"""The plane without a controller: replicas elect partition leaders over ZooKeeper."""
