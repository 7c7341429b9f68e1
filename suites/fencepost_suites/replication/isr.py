"""The in-sync replicas: those that may return, and what guards their changes."""

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
    IsrChangeAnswered,
    IsrChangeAsked,
    LogAppended,
    PartitionCommitted,
    TopicCommitted,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.keys import NOTHING, by_partition, by_topic


@dataclass(slots=True)
class _Outside:
    """The end of each follower's own log, and the event that says so, for followers outside the
    ISR."""

    ends: dict[str, tuple[int, Event]] = field(default_factory=dict)
    fetched: dict[int, tuple[str, Event]] = field(default_factory=dict)
    """follower -> its process, and its newest fetch."""


@final
class ReturnsOnlyCaughtUp(Struct, frozen=True):
    """RP-10. The leader's evidence is the log end it assumes for the follower; the follower's is
    what it has stored. Exercised by every return to the ISR."""

    clause: str = "RP-10"
    kinds: frozenset[type[Struct]] = frozenset({IsrChangeAsked, FollowerFetched, LogAppended})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Outside:
        return _Outside()

    @property
    def handlers(self) -> Handlers:
        return {
            LogAppended: self._appended,
            FollowerFetched: self._fetched,
            IsrChangeAsked: self._asked,
        }

    def step(self, state: _Outside, event: Event) -> tuple[_Outside, Sequence[Finding]]:
        return by_handlers(self, state, event)

    @staticmethod
    def _appended(state: _Outside, event: Event, body: LogAppended) -> Sequence[Finding]:
        state.ends[event.process] = (body.log_end, event)
        return NOTHING

    @staticmethod
    def _fetched(state: _Outside, event: Event, body: FollowerFetched) -> Sequence[Finding]:
        state.fetched[body.follower] = (body.client, event)
        return NOTHING

    @staticmethod
    def _asked(state: _Outside, event: Event, body: IsrChangeAsked) -> Sequence[Finding]:
        found: list[Finding] = []
        needed = max(body.high_watermark, body.epoch_start)
        for replica, end in zip(body.new_isr, body.ends, strict=True):
            if replica in body.old_isr:
                continue
            process, fetch = state.fetched.get(replica, ("", None))
            stored = state.ends.get(process)
            own = needed if stored is None else stored[0]
            if end >= needed and own >= needed:
                by_peer = stored is not None
                found.append(Exercised(event.ref, Evidence.PEER if by_peer else Evidence.SELF))
                continue
            evidence, reached = (Evidence.SELF, end) if end < needed else (Evidence.PEER, own)
            proof = fetch if end < needed or stored is None else stored[1]
            message = (
                f"{event.process} asked to take broker {replica} into the ISR of {body.topic}-"
                f"{body.partition} at offset {reached}; the high watermark was "
                f"{body.high_watermark}, the start of its epoch {body.epoch_start}"
            )
            because = () if proof is None else (proof.ref,)
            found.append(Violated(event.ref, evidence, message, because))
        return found

    def end(self, state: _Outside, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


_STALE = ("FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER", "STALE_BROKER_EPOCH")


@final
class EpochsGuardIsrChanges(Struct, frozen=True):
    """QC-32. The evidence is the leader's: the epoch in which it asked, and the epoch that the
    controller's grant led to. A change between the two should have caused a refusal. Exercised by a
    refusal."""

    clause: str = "QC-32"
    kinds: frozenset[type[Struct]] = frozenset(
        {TopicCommitted, PartitionCommitted, IsrChangeAnswered}
    )
    keys = staticmethod(by_topic)

    def start(self, key: Key) -> Partitions:
        return Partitions()

    def step(self, state: Partitions, event: Event) -> tuple[Partitions, Sequence[Finding]]:
        body = event.body
        match body:
            case TopicCommitted():
                state.forget(body)
            case PartitionCommitted():
                return state, self._changed(state, event, body)
            case IsrChangeAnswered(error="NONE") if body.granted_epoch > body.leader_epoch + 1:
                message = (
                    f"the controller applied an AlterIsr that {event.process} had asked for in "
                    f"leader epoch {body.leader_epoch} of {body.topic}-{body.partition}, though "
                    f"the epoch was {body.granted_epoch - 1} by then"
                )
                return state, (Violated(event.ref, Evidence.PEER, message),)
            case IsrChangeAnswered() if body.error in _STALE:
                return state, (Exercised(event.ref, Evidence.PEER),)
        return state, NOTHING

    @staticmethod
    def _changed(state: Partitions, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        news, before = state.take(body)
        if not news or before is None or body.leader_epoch > before.leader_epoch:
            return NOTHING
        if (body.leader, set(body.isr)) == (before.leader, set(before.isr)):
            return NOTHING
        message = (
            f"{body.topic}-{body.partition} went from leader {before.leader} and ISR "
            f"{list(before.isr)} to {body.leader} and {list(body.isr)}, and its leader epoch from "
            f"{before.leader_epoch} to {body.leader_epoch}"
        )
        return (Violated(event.ref, Evidence.PEER, message),)

    def end(self, state: Partitions, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@final
class IsrOfReplicas(Struct, frozen=True):
    """RP-19. Judged by the records: during a reassignment the replica list holds both the old and
    the new replicas. Exercised when a member of the ISR is no longer a replica and has left the
    ISR."""

    clause: str = "RP-19"
    kinds: frozenset[type[Struct]] = frozenset({TopicCommitted, PartitionCommitted})
    keys = staticmethod(by_topic)

    def start(self, key: Key) -> Partitions:
        return Partitions()

    def step(self, state: Partitions, event: Event) -> tuple[Partitions, Sequence[Finding]]:
        body = event.body
        if isinstance(body, TopicCommitted):
            state.forget(body)
            return state, NOTHING
        assert isinstance(body, PartitionCommitted)
        news, before = state.take(body)
        if not news:
            return state, NOTHING
        place = f"{body.topic}-{body.partition}"
        if len(set(body.replicas)) != len(body.replicas):
            message = f"a broker holds two replicas of {place}: {list(body.replicas)}"
            return state, (Violated(event.ref, Evidence.PEER, message),)
        outside = sorted(set(body.isr) - set(body.replicas))
        if outside:
            message = (
                f"{place} has brokers {outside} in its ISR, which are not among its replicas "
                f"{list(body.replicas)}"
            )
            return state, (Violated(event.ref, Evidence.PEER, message),)
        left = before is not None and set(before.isr) - set(body.replicas)
        return state, (Exercised(event.ref, Evidence.PEER),) if left else NOTHING

    def end(self, state: Partitions, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
