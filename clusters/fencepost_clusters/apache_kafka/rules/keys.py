"""The keys by which events are given to Kafka's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Event, Key


def by_partition(event: Event) -> Sequence[Key]:
    """Topic and partition."""
    body: Any = event.body
    return ((body.topic, body.partition),)


KRAFT = ("kraft",)
"""The plane on which rules about what Kafka's nodes log are witnesses."""
