"""The in-sync replicas: those that must be dropped, and those that may return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

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
    BrokerStateChanged,
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    PartitionCommitted,
    ProduceAnswered,
    TopicCommitted,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.keys import NOTHING, by_partition, by_topic, whole_run
from fencepost_suites.common.words import span

KEEP_IN_SYNC_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms, used if a leader does not report its own."""


_ASK_ELSEWHERE = frozenset(
    {
        *("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "STALE_BROKER_EPOCH", "INVALID_INCARNATION_ID"),
        "BROKER_ID_NOT_REGISTERED",
    }
)
"""Errors that do not judge the ISR: the receiver is no controller, the request came too late, or
the broker has lost its id or its registration."""
_NOT_SENT = "OPERATION_NOT_ATTEMPTED"
"""The word of the broker itself: an earlier request for that partition has no answer, and none is
sent until then."""


@dataclass(slots=True)
class _Blocked:
    """How long the leader's oldest uncommitted message has waited, and the leader's request to drop
    replicas."""

    leader: str = ""
    keep_ms: int = KEEP_IN_SYNC_MS
    since_ns: int = 0
    waiting: bool = False
    dropping: tuple[int, frozenset[int]] | None = None
    """The leader epoch of the request to drop replicas, and those replicas."""
    stored: int | None = None
    """The leader epoch in which that was stored, once it is."""
    unanswered: bool = False
    """Whether the leader has asked to drop replicas, and has no answer: it cannot store that."""
    adding_ns: int = 0
    """Since when a request to add a replica has had no answer (0: there is none): until then the
    leader can ask for nothing else (KIP-497)."""
    refused: int = 0
    """How many such requests were refused while the oldest message waited."""
    alone: bool = False
    """Whether the stored ISR has no follower."""
    offset: int = -1
    """That of the newest record, which says so."""
    suspects: list[Late] = field(default_factory=list)


@dataclass(slots=True)
class _Leaders:
    """The partitions, and the brokers' processes that serve no client."""

    partitions: dict[tuple[str, int], _Blocked] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)

    def of(self, body: Any) -> _Blocked:
        """The partition that an event is about."""
        place = (body.topic, body.partition)
        one = self.partitions.get(place)
        if one is None:
            one = self.partitions[place] = _Blocked()
        return one


@final
class LaggardIsDropped(Struct, frozen=True):
    """RP-09. If the commits of a serving leader wait for twice the allowed time and 2 s, the leader
    must have asked for a smaller ISR, and that must have been stored. The time begins anew where
    the leader could not store it: it is fenced, gets no answer or one that it must ask elsewhere,
    or a record deposes it; and it does not run while the stored ISR has no follower, or a request
    to add one has no answer. A refusal of what the leader may ask is no excuse. Exercised when the
    request was stored by the controller and commits continued."""

    clause: str = "RP-09"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(LogAppended, HighWatermarkAdvanced, ProduceAnswered, IsrChangeAsked),
            *(LeadershipStarted, LeadershipEnded, PartitionCommitted, BrokerStateChanged),
            IsrChangeAnswered,
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Leaders:
        return _Leaders()

    @property
    def handlers(self) -> Handlers:
        return {
            **dict.fromkeys(self.kinds, self._moved),
            LogAppended: self._appended,
            HighWatermarkAdvanced: self._commits,
            ProduceAnswered: self._answered,
            BrokerStateChanged: self._changed,
        }

    def step(self, state: _Leaders, event: Event) -> tuple[_Leaders, Sequence[Finding]]:
        return by_handlers(self, state, event)

    @staticmethod
    def _changed(state: _Leaders, event: Event, body: BrokerStateChanged) -> Sequence[Finding]:
        if body.new != "ACTIVE":
            state.fenced.add(event.process)
            return NOTHING
        state.fenced.discard(event.process)
        for one in state.partitions.values():
            if one.leader == event.process:
                one.since_ns = event.at_ns
        return NOTHING

    def _appended(self, state: _Leaders, event: Event, body: LogAppended) -> Sequence[Finding]:
        one = state.of(body)
        if event.process == one.leader:
            if one.waiting:
                self._overdue(one, event, event.process in state.fenced)
            else:
                one.waiting, one.since_ns = True, event.at_ns
        return NOTHING

    @staticmethod
    def _commits(state: _Leaders, event: Event, body: HighWatermarkAdvanced) -> Sequence[Finding]:
        one = state.of(body)
        if event.process != one.leader or not body.as_leader:
            return NOTHING
        one.waiting, one.since_ns = body.high_watermark < body.log_end, event.at_ns
        one.refused = 0
        if one.stored is not None and body.leader_epoch >= one.stored:
            one.dropping, one.stored = None, None
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    def _answered(self, state: _Leaders, event: Event, body: ProduceAnswered) -> Sequence[Finding]:
        one = state.of(body)
        if body.error == "REQUEST_TIMED_OUT":
            self._overdue(one, event, event.process in state.fenced)
        return NOTHING

    def _moved(self, state: _Leaders, event: Event, body: Any) -> Sequence[Finding]:
        """The leader of a partition or its ISR changes, or is to change."""
        one = state.of(body)
        match body:
            case IsrChangeAsked():
                self._asked(one, event, body)
            case IsrChangeAnswered() if body.error == _NOT_SENT:
                pass  # the earlier request has no answer yet
            case IsrChangeAnswered() if one.adding_ns and event.process == one.leader:
                one.since_ns += event.at_ns - max(one.adding_ns, one.since_ns)
                one.adding_ns = 0
            case IsrChangeAnswered() if one.unanswered and event.process == one.leader:
                one.unanswered = False
                if body.error == "NONE" or body.error in _ASK_ELSEWHERE:
                    self._anew(one, event.at_ns)
                else:
                    one.refused += 1
            case PartitionCommitted():
                self._recorded(one, event, body)
            case LeadershipStarted():
                keep_ms = body.keep_in_sync_ms or KEEP_IN_SYNC_MS
                if event.process != one.leader:
                    state.partitions[body.topic, body.partition] = self._led_by(
                        one, event.process, keep_ms
                    )
            case LeadershipEnded() if event.process == one.leader:
                state.partitions[body.topic, body.partition] = self._led_by(one)
        return NOTHING

    @staticmethod
    def _led_by(state: _Blocked, leader: str = "", keep_ms: int = KEEP_IN_SYNC_MS) -> _Blocked:
        """The partition with another leader, or none."""
        return _Blocked(
            leader, keep_ms, alone=state.alone, offset=state.offset, suspects=state.suspects
        )

    def _recorded(self, state: _Blocked, event: Event, body: PartitionCommitted) -> None:
        """A record deposes a leader, stores its smaller ISR, or leaves it alone in its ISR or no
        longer."""
        if body.offset > state.offset:
            alone, state.alone, state.offset = state.alone, len(body.isr) < 2, body.offset
            if alone and not state.alone:
                self._anew(state, event.at_ns)
        if state.dropping is None:
            return
        epoch, dropped = state.dropping
        if body.leader_epoch >= epoch and not dropped & set(body.isr):
            state.stored = body.leader_epoch
        if body.leader_epoch > epoch:
            self._anew(state, event.at_ns)

    def _asked(self, state: _Blocked, event: Event, body: IsrChangeAsked) -> None:
        dropped = frozenset(body.old_isr) - frozenset(body.new_isr)
        if not dropped:
            if event.process == state.leader:
                state.adding_ns = state.adding_ns or event.at_ns
            return
        if body.lag_ns > 0:
            state.dropping, state.stored = (body.leader_epoch, dropped), None
        if event.process == state.leader:
            if state.unanswered:
                self._anew(state, event.at_ns)
            state.unanswered = True

    @staticmethod
    def _anew(state: _Blocked, at_ns: int) -> None:
        """The time begins anew."""
        state.since_ns, state.refused = at_ns, 0

    @staticmethod
    def _overdue(state: _Blocked, event: Event, fenced: bool) -> None:
        waited_ns = event.at_ns - state.since_ns
        if not state.waiting or event.process != state.leader or fenced:
            return
        if state.unanswered or state.adding_ns:
            return
        if state.alone:  # it has none to drop; below min.insync.replicas, Kafka commits nothing
            return
        if waited_ns <= (2 * state.keep_ms + 2_000) * MS:
            return
        state.waiting = False
        done = "asked to drop no follower"
        if state.refused:
            done = f"was refused {state.refused} times to drop a follower"
        message = (
            f"{event.process} has had a write waiting for {span(waited_ns)} and {done}, "
            f"though {state.keep_ms} ms are allowed"
        )
        violated = Violated(event.ref, Evidence.SELF, message)
        period_ns = state.keep_ms * MS
        due_ns = state.since_ns + period_ns
        state.suspects.append(
            Late(
                violated=violated,
                process=event.process,
                from_ns=state.since_ns,
                to_ns=event.at_ns,
                period_ns=period_ns,
                due_ns=due_ns,
            )
        )

    def end(self, state: _Leaders, end: RunEnd) -> Sequence[Finding]:
        return tuple(
            found for one in state.partitions.values() for found in judge_late(one.suspects, end)
        )


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
