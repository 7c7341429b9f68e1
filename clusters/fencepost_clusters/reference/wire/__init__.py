"""The codec: Kafka's protocol as plain messages and back. No I/O, no clock, no chance."""

from __future__ import annotations

import fencepost_kafka.kio_without_hypothesis  # noqa: F401
