"""What Kafka promises in its own words: clauses, and a rule for each."""
