"""A Kafka cluster as a test sees it: its nodes, its voters, and conditions on them."""
