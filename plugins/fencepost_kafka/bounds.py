"""The bounds of a cluster's availability, from the durations that its settings imply."""

from __future__ import annotations

from collections.abc import Callable

from fencepost_kafka.events import BoundsStated
from fencepost_kafka.vocabulary import Timing

SLACK_MS = 1_000
"""For records to be stored and to reach every node, on a busy machine."""
CLIENT_MS = 8_000
"""A client gives up on a silent connection within five seconds, and then asks other brokers."""


def availability(timing: Timing, setting: Callable[[str], int]) -> BoundsStated:
    """The bounds of a cluster; the recovery's is the cluster's own. `setting` reads a whole number
    by Kafka's name.

    A dead broker's lease may be counted anew by a server that took over, and a quarter more is
    allowed for noticing its end. A dead follower stays in the ISR for replica.lag.time.max.ms.
    """
    fenced_ms = timing.takeover_ms + timing.lease_ms * 5 // 4 + SLACK_MS
    return BoundsStated(
        fenced_ms=fenced_ms,
        writable_ms=fenced_ms + setting("replica.lag.time.max.ms") + CLIENT_MS,
        recovered_ms=timing.recovery_bound_ms,
        least_in_sync=setting("min.insync.replicas"),
    )
