"""ZooKeeper in the simulator: a model of its tree, served over simulated connections."""
