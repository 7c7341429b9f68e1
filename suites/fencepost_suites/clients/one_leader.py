"""Writes that the leader alone has acknowledged, while that is a promise: as long as one broker has
led the partition (a Jepsen anomaly)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Event,
    FaultInjected,
    Finding,
    Findings,
    Key,
    RunEnd,
    Shared,
    on,
)
from fencepost_kafka import PartitionCommitted, Polled, ProduceCompleted, ReadCompleted
from fencepost_kafka.judging.generations import Renews
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
    replicas: tuple[int, ...] = ()
    """The ids of its replicas, by the newest record."""
    found: list[Finding] = field(default_factory=list)
    certain: tuple[Finding, ...] = ()
    """What was found of a former topic, or before the disks were lost, under one leader."""

    def judged(self) -> tuple[Finding, ...]:
        """What is found by now, if the partition has had one leader."""
        alone = len(self.leaders) == 1 and NONE not in self.leaders
        return (*self.certain, *self.found) if alone else self.certain


@final
class LostByOneLeader(Renews[_Led]):
    """JEPSEN-lost-write-acks1. A write with acks=1 may be lost with its leader. As long as the
    partition has had no other one by committed metadata, and was not without one since its first
    one, it must be read where it was acknowledged, as a write with acks=all must. What a fault took
    from the leader's disk was on no other one, though the leader is back before another is elected:
    writes of before are promised no more. A new leader may be recorded later than what clients saw
    of it, so this is judged at the end."""

    clause = "JEPSEN-lost-write-acks1"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Led:
        return _Led(_WITH_ALL.start(key, shared))

    def renewed(self, state: _Led) -> _Led:
        """What was found counts, though the topic is deleted or the disks are lost later."""
        return _Led(Unread(of=state.unread.of), certain=state.judged())

    @on(PartitionCommitted)
    def _committed(self, state: _Led, event: Event, body: PartitionCommitted) -> Findings:
        began = bool(state.leaders) or body.leader != NONE
        # Records between the two were not seen: there may have been another leader, or none, in
        # them. Before the first leader, a partition has had none to lose.
        if body.skipped or began:
            state.leaders |= {body.leader, NONE} if body.skipped else {body.leader}
        state.replicas = body.replicas
        return NOTHING

    @on(FaultInjected)
    def _harmed(self, state: _Led, event: Event, body: FaultInjected) -> Findings:
        slots = body.acts(*HARMS_DISK)
        # The number of a slot is its broker's id, where it is that of a replica.
        others = {*state.replicas} - state.leaders
        if any(_number(slot) not in others for slot in slots):
            fresh = self.renewed(state)
            state.unread, state.found, state.certain = fresh.unread, fresh.found, fresh.certain
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _Led, event: Event, body: ProduceCompleted) -> Findings:
        if body.acks == 1 and body.outcome == "ok":
            _WITH_ALL.acknowledged(state.unread, event, body)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Led, event: Event, body: Polled) -> Findings:
        state.found += _WITH_ALL.polled(state.unread, event, body)
        return NOTHING

    @on(ReadCompleted)
    def _read(self, state: _Led, event: Event, body: ReadCompleted) -> Findings:
        state.found += _WITH_ALL.read(state.unread, event, body)
        return NOTHING

    def end(self, state: _Led, end: RunEnd) -> Findings:
        state.found += _WITH_ALL.end(state.unread, end)
        return state.judged()


def _number(slot: str) -> int:
    """The number at the end of a slot's name; -1: it has none."""
    number = slot.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1
