"""Acknowledgements: the replicas that must have stored a write before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
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


@dataclass(slots=True)
class _Ends:
    """The log end that each process reported, and the process of each replica."""

    ends: dict[str, int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    """follower's id -> the process that fetches as it."""
    leaders: dict[int, int] = field(default_factory=dict)
    """leader epoch -> the leader's id."""
    stored: dict[int, dict[str, PartitionCommitted]] = field(default_factory=dict)
    """leader epoch -> its newest stored state by the word of each process."""

    def began(self, process: str) -> None:
        """The next process of a node is its replica, though it may lead at first, and not fetch."""
        for replica, former in self.processes.items():
            if slot_of(former) == slot_of(process):
                self.processes[replica] = process


def _stored_and_named(state: _Ends, process: str, body: ProduceAnswered) -> tuple[int, ...]:
    """The ISR that a leader names, and the one that is stored for its epoch by another's word: a
    leader may count more replicas than are stored, but none less."""
    words = state.stored.get(body.leader_epoch, {})
    newest = max((stored.offset for stored in words.values()), default=-1)
    for other, stored in words.items():
        if other != process and stored.offset == newest:
            return (*body.isr, *(r for r in stored.isr if r not in body.isr))
    return body.isr


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

    def step(self, state: _Ends, event: Event) -> tuple[_Ends, Sequence[Finding]]:
        body = event.body
        if isinstance(body, LogAppended):
            state.ends[event.process] = body.log_end
        elif isinstance(body, FollowerFetched):
            state.processes[body.follower] = body.client
        elif isinstance(body, ProduceAnswered):
            if body.error == "NONE" and body.base_offset >= 0 and body.log_end >= 0:
                return state, self._answered(state, event, body)
        elif isinstance(body, FollowingStarted | LeadershipStarted):
            state.ends[event.process] = body.log_end
            state.began(event.process)
        elif isinstance(body, LogTruncated):
            state.ends[event.process] = body.to_offset
        elif isinstance(body, PartitionCommitted):
            if body.leader >= 0:  # an epoch may end before the next leader is elected
                state.leaders[body.leader_epoch] = body.leader
            words = state.stored.setdefault(body.leader_epoch, {})
            if event.process not in words or words[event.process].offset < body.offset:
                words[event.process] = body
        return state, NOTHING

    @staticmethod
    def _answered(state: _Ends, event: Event, body: ProduceAnswered) -> Sequence[Finding]:
        end = body.log_end
        own = state.ends.get(event.process, end)
        if own < end:
            message = (
                f"{event.process} acknowledged {body.topic}-{body.partition} up to offset {end} "
                f"with a log that ends at {own}"
            )
            return (Violated(event.ref, Evidence.SELF, message),)
        isr = _stored_and_named(state, event.process, body)
        if body.acks != -1 or len(isr) < 2:
            return NOTHING
        place = f"{body.topic}-{body.partition}"
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
                    f"{event.process} acknowledged acks=all of {place} up to offset {end} while "
                    f"{process}, in the ISR, had stored up to {reaches}"
                )
                return (Violated(event.ref, Evidence.PEER, message),)
        if body.high_watermark < end and min(body.ends, default=end) < end:
            message = (
                f"{event.process} acknowledged acks=all of {place} up to offset {end} knowing its "
                f"ISR {list(body.isr)} only to reach {list(body.ends)}"
            )
            return (Violated(event.ref, Evidence.SELF, message),)
        if body.duplicate:
            return NOTHING
        evidence = Evidence.PEER if by_peers == len(isr) - 1 else Evidence.SELF
        return (Exercised(event.ref, evidence),)

    def end(self, state: _Ends, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
