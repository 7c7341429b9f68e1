"""The keys by which events are given to Kafka's own rules, and what stalls leave open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import HARNESS, Event, Key

OBSERVERS = (HARNESS, "clients")
"""Kafka's nodes report no stalls of their own, so a stall of the machine is known by these."""


def by_partition(event: Event) -> Sequence[Key]:
    """Topic and partition."""
    body: Any = event.body
    return ((body.topic, body.partition),)
