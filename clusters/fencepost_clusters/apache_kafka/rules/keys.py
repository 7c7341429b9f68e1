"""The keys by which events are given to Kafka's own rules, and what stalls leave open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import HARNESS, Event, Finding, Key

NOTHING: Sequence[Finding] = ()
OBSERVERS = (HARNESS, "clients")
"""Kafka's nodes report no stalls of their own, so a stall of the machine is known by these."""


def whole_run(event: Event) -> Sequence[Key]:
    """One key for all."""
    return ((),)


def by_partition(event: Event) -> Sequence[Key]:
    """Topic and partition."""
    body: Any = event.body
    return ((body.topic, body.partition),)
