"""Kafka's clients as a test sees them: workers, the commands they understand, their answers."""
