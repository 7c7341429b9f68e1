"""Apache Kafka in KRaft mode as a system under test, unpatched: seen through its logs, its metadata
log and its metrics.

`cluster` defines how a node is configured and started, `distribution` where Kafka comes from.
`log_parser` makes events of what nodes log, `observer` of the metadata log, read over the wire, and
`metrics` of the nodes' metrics pages.
"""

from __future__ import annotations

import fencepost_kafka.kio_without_hypothesis  # noqa: F401
