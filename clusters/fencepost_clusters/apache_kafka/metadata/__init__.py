"""Observes Kafka's metadata log: fetches it, decodes it, and makes events of it."""
