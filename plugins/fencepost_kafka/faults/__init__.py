"""Faults of a Kafka cluster: aimed at roles, held requests, random schedules, selectors."""
