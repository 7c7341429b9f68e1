"""Apache Kafka clusters that somebody else started."""
