"""Acknowledgements: the replicas that must have stored a write before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Event,
    Evidence,
    Exercised,
    Finding,
    Handlers,
    Key,
    RunEnd,
    Violated,
    by_handlers,
)
from fencepost_kafka import (
    FollowerFetched,
    FollowingStarted,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    ProduceAnswered,
)
from fencepost_kafka.active_faults import slot_of
from fencepost_suites.common.keys import NOTHING, by_partition


@final
class _Words:
    """What the processes say of the stored states of one leader epoch."""

    def __init__(self) -> None:
        self.newest = -1
        """The highest offset of such a state."""
        self.by: dict[str, tuple[int, tuple[int, ...]]] = {}
        """process -> the offset of the newest one by its word, and the ISR in it."""


@dataclass(slots=True)
class _Ends:
    """The log end that each process reported, and the process of each replica."""

    ends: dict[str, int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    """follower's id -> the process that fetches as it."""
    leaders: dict[int, int] = field(default_factory=dict)
    """leader epoch -> the leader's id."""
    stored: dict[int, _Words] = field(default_factory=dict)
    """leader epoch -> its stored states."""

    def began(self, process: str) -> None:
        """The next process of a node is its replica, though it may lead at first, and not fetch."""
        for replica, former in self.processes.items():
            if slot_of(former) == slot_of(process):
                self.processes[replica] = process


def _stored_and_named(state: _Ends, process: str, body: ProduceAnswered) -> tuple[int, ...]:
    """The ISR that a leader names, and the one that is stored for its epoch by another's word: a
    leader may count more replicas than are stored, but none less."""
    named = body.isr
    words = state.stored.get(body.leader_epoch)
    if words is None:
        return named
    for other, (offset, isr) in words.by.items():
        if other != process and offset == words.newest:
            return named if isr == named else (*named, *(r for r in isr if r not in named))
    return named


@final
class AcknowledgedByAllInSync(Struct, frozen=True):
    """RP-04. The ISR is the stored one and what the leader names beside it. The leader's evidence
    is its high watermark, or the log ends it knows; the followers' is what they stored before.
    Exercised by every acks=all that had to wait for a follower."""

    clause: str = "RP-04"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            ProduceAnswered,
            LogAppended,
            LogTruncated,
            FollowerFetched,
            FollowingStarted,
            LeadershipStarted,
            PartitionCommitted,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Ends:
        return _Ends()

    @property
    def handlers(self) -> Handlers:
        return {
            LogAppended: self._appended,
            FollowerFetched: self._fetched,
            ProduceAnswered: self._answered,
            FollowingStarted: self._began,
            LeadershipStarted: self._began,
            LogTruncated: self._truncated,
            PartitionCommitted: self._committed,
        }

    def step(self, state: _Ends, event: Event) -> tuple[_Ends, Sequence[Finding]]:
        return by_handlers(self, state, event)

    @staticmethod
    def _appended(state: _Ends, event: Event, body: LogAppended) -> Sequence[Finding]:
        state.ends[event.process] = body.log_end
        return NOTHING

    @staticmethod
    def _fetched(state: _Ends, event: Event, body: FollowerFetched) -> Sequence[Finding]:
        state.processes[body.follower] = body.client
        return NOTHING

    @staticmethod
    def _began(
        state: _Ends, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Sequence[Finding]:
        state.ends[event.process] = body.log_end
        state.began(event.process)
        return NOTHING

    @staticmethod
    def _truncated(state: _Ends, event: Event, body: LogTruncated) -> Sequence[Finding]:
        state.ends[event.process] = body.to_offset
        return NOTHING

    @staticmethod
    def _committed(state: _Ends, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        if body.leader >= 0:  # an epoch may end before the next leader is elected
            state.leaders[body.leader_epoch] = body.leader
        words = state.stored.setdefault(body.leader_epoch, _Words())
        known = words.by.get(event.process)
        if known is None or known[0] < body.offset:
            words.by[event.process] = (body.offset, body.isr)
            words.newest = max(words.newest, body.offset)
        return NOTHING

    @staticmethod
    def _answered(state: _Ends, event: Event, body: ProduceAnswered) -> Sequence[Finding]:
        end = body.log_end
        if body.error != "NONE" or body.base_offset < 0 or end < 0:
            return NOTHING
        own = state.ends.get(event.process, end)
        if own < end:
            message = (
                f"{event.process} acknowledged {body.topic}-{body.partition} up to offset {end} "
                f"with a log that ends at {own}"
            )
            return (Violated(event.ref, Evidence.SELF, message),)
        if body.acks != -1:
            return NOTHING
        isr = _stored_and_named(state, event.process, body)
        if len(isr) < 2:
            return NOTHING
        leader = state.leaders.get(body.leader_epoch, -1)
        by_peers = 0
        for replica in isr:
            process = state.processes.get(replica)
            if process is None or replica == leader:
                continue
            reaches = state.ends.get(process)
            if reaches is None:
                continue
            by_peers += 1
            if reaches < end:
                message = (
                    f"{event.process} acknowledged acks=all of {body.topic}-{body.partition} up to "
                    f"offset {end} while {process}, in the ISR, had stored up to {reaches}"
                )
                return (Violated(event.ref, Evidence.PEER, message),)
        if body.high_watermark < end and min(body.ends, default=end) < end:
            message = (
                f"{event.process} acknowledged acks=all of {body.topic}-{body.partition} up to "
                f"offset {end} knowing its ISR {list(body.isr)} only to reach {list(body.ends)}"
            )
            return (Violated(event.ref, Evidence.SELF, message),)
        if body.duplicate:
            return NOTHING
        evidence = Evidence.PEER if by_peers == len(isr) - 1 else Evidence.SELF
        return (Exercised(event.ref, evidence),)

    def end(self, state: _Ends, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
