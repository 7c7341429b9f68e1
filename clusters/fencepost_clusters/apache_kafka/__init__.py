"""Apache Kafka in KRaft mode as a system under test: unpatched, told of by what it logs, stores and
measures.

`cluster` says how a node is configured and started, `distribution` where Kafka comes from;
`narration` makes events of what nodes log, `observer` of the metadata log, read over the wire, and
`metrics` of the pages on which nodes show their metrics.
"""
