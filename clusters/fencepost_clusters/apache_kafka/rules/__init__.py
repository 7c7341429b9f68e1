"""Kafka's own promises: clauses, and a rule for each."""
