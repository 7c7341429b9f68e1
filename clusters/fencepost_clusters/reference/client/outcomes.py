"""What an answer proves about an operation: ok, failed (certainly no effect) or unknown."""

from __future__ import annotations

from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import CallOutcome

REFUSED_FOR_GOOD = frozenset({10, 17, 18, 21, 29, 31, 43, 87})
"""Codes of Produce that no retry changes: too large, invalid topic, acks, rights, format."""
STALE_ROUTE = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION})
IN_DOUBT = frozenset({Error.REQUEST_TIMED_OUT, Error.NOT_CONTROLLER})
"""Answers to an administrative request after which its effect is unknown."""


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    return Error(code).name if code in Error._value2member_map_ else f"ERROR_{code}"


def of_admin(code: int) -> CallOutcome:
    """The outcome of an administrative request that was answered."""
    if code == 0:
        return "ok"
    return "unknown" if code in IN_DOUBT or code == -1 else "failed"
