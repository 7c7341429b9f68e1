"""The keys by which events are given to Kafka's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Event, Finding, Key

MS = 1_000_000
SECOND = 1_000 * MS
NOTHING: Sequence[Finding] = ()
STALL_SHARE = 10
"""A bound proves nothing if stalls took more than a tenth of it."""


def whole_run(event: Event) -> Sequence[Key]:
    """One key for all."""
    return ((),)


def by_partition(event: Event) -> Sequence[Key]:
    """Topic and partition."""
    body: Any = event.body
    return ((body.topic, body.partition),)
