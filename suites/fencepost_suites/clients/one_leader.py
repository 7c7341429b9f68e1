"""Writes that the leader alone has acknowledged, while that is a promise: as long as one broker has
led the partition (a Jepsen anomaly)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Finding,
    Handlers,
    Key,
    RunEnd,
    by_handlers,
)
from fencepost_kafka import PartitionCommitted, Polled, ProduceCompleted, ReadCompleted
from fencepost_suites.clients.anomalies import LostWrite, Unread
from fencepost_suites.common.keys import by_partition

NONE = -1
"""The leader of a partition without one."""
_WITH_ALL = LostWrite()


@dataclass(slots=True)
class _Led:
    unread: Unread
    """The writes with acks=1, to the rule about those with acks=all."""
    leaders: set[int] = field(default_factory=set)
    """The leaders by committed metadata."""
    found: list[Finding] = field(default_factory=list)


@final
class LostByOneLeader(Struct, frozen=True):
    """JEPSEN-lost-write-acks1. A write with acks=1 may be lost with its leader. As long as the
    partition has had no other one by committed metadata, and was not without one since its first
    one, it must be read where it was acknowledged, as a write with acks=all must. A new leader may
    be recorded later than what clients saw of it, so this is judged at the end."""

    clause: str = "JEPSEN-lost-write-acks1"
    kinds: frozenset[type[Struct]] = frozenset(
        {ProduceCompleted, Polled, ReadCompleted, PartitionCommitted}
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Led:
        return _Led(_WITH_ALL.start(key))

    @property
    def handlers(self) -> Handlers:
        return {
            PartitionCommitted: self._committed,
            ProduceCompleted: self._completed,
            Polled: self._polled,
            ReadCompleted: self._read,
        }

    def step(self, state: _Led, event: Event) -> tuple[_Led, Sequence[Finding]]:
        return by_handlers(self, state, event)

    @staticmethod
    def _committed(state: _Led, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        began = bool(state.leaders) or body.leader != NONE
        if body.skipped or began:
            state.leaders |= {body.leader, NONE} if body.skipped else {body.leader}
        return NOTHING

    @staticmethod
    def _completed(state: _Led, event: Event, body: ProduceCompleted) -> Sequence[Finding]:
        if body.acks == 1 and body.outcome == "ok":
            _WITH_ALL.acknowledged(state.unread, event, body)
        return NOTHING

    @staticmethod
    def _polled(state: _Led, event: Event, body: Polled) -> Sequence[Finding]:
        state.found += _WITH_ALL.polled(state.unread, event, body)
        return NOTHING

    @staticmethod
    def _read(state: _Led, event: Event, body: ReadCompleted) -> Sequence[Finding]:
        state.found += _WITH_ALL.read(state.unread, event, body)
        return NOTHING

    def end(self, state: _Led, end: RunEnd) -> Sequence[Finding]:
        if len(state.leaders) != 1 or NONE in state.leaders:
            return NOTHING
        return (*state.found, *_WITH_ALL.end(state.unread, end))
