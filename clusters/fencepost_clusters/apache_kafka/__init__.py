"""Apache Kafka in KRaft mode as a system under test, unpatched: observed through its logs, its
metadata log and its metrics.

`cluster` configures and starts a node, `distribution` downloads Kafka. `log_parser` makes events of
the lines that nodes log, `observer` of the metadata log, read over the wire, and `metrics` of the
nodes' metrics pages.
"""

from __future__ import annotations

import fencepost_kafka.kio_without_hypothesis  # noqa: F401
