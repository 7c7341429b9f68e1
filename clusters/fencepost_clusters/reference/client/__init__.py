"""A Kafka client without I/O: producer, consumer, reader, administrator and probe, as cores.

They take the options and commands of the client workers of real runs, and record the same events.
On the wire they behave like librdkafka, as far as a run can observe it: which requests they send,
when they retry them, and what an answer proves. A test compares them with librdkafka.
"""
