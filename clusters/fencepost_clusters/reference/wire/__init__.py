"""The codec between Kafka's protocol and plain messages. No I/O, no clock, no random numbers."""

from __future__ import annotations

import fencepost_kafka.kio_without_hypothesis  # noqa: F401
