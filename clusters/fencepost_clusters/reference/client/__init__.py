"""A Kafka client without I/O: producer, consumer, reader, administrator and probe, as cores.

They do what the client workers of real runs do, with their options, commands and events, and what
librdkafka does on the wire as far as a run can tell: which requests, when they are retried, and
what an answer proves. A test holds them to it.
"""
