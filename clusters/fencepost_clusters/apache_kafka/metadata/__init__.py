"""Kafka's metadata log as it is observed: fetched, decoded, made events of."""
