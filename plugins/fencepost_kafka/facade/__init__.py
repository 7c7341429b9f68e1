"""A Kafka cluster as a test sees it: its nodes, its voters, and what can be awaited of them."""
