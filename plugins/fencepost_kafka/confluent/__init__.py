"""The workers of the workload `kafka_clients`: confluent-kafka, one client a process."""
