"""The codec: Kafka's protocol as plain messages and back. No I/O, no clock, no chance."""
