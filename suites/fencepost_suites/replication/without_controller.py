"""The plane without a controller: replicas elect leaders over ZooKeeper, and brokers carry out
state changes that others request there."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    ProcessExited,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    FetchServed,
    FollowingStarted,
    IsrPrepared,
    LeadershipStarted,
    LogAppended,
    PartitionCommitted,
    ProduceAnswered,
    ReassignmentNoticed,
    ReplicaRemoved,
    ReplicaStood,
    SessionChanged,
    StateChangeCarriedOut,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
    topic_of,
)
from fencepost_kafka.vocabulary import CLIENTS
from fencepost_suites.common.keys import by_topic

DONE_WITHIN_NS = 10_000_000_000
"""A running broker has noticed a change by then."""
REMOVED_WITHIN_NS = 2_000_000_000
"""A broker has removed a replica by then: it does so before it deletes the request."""


class _Won(NamedTuple):
    """A process has won an election."""

    process: str
    broker: int
    stood: Cause
    record: Cause | None = None
    """The first event by which the partition's record names it as the leader."""

    @property
    def proof(self) -> tuple[Cause, ...]:
        """By what it is known. That it stood says nothing of authority: the record does."""
        return (self.stood,) if self.record is None else (self.stood, self.record)


@dataclass(slots=True)
class _Elected:
    """The elections of a topic's partitions; a topic that is created again begins anew."""

    won: dict[tuple[int, int], _Won] = field(default_factory=dict)
    """partition, epoch -> the process that has won."""
    began: dict[tuple[str, int], LeadershipStarted] = field(default_factory=dict)
    """process, partition -> how it began to serve."""


@final
class FirstOfIsrLeads(Rule[_Elected]):
    """RP-14. Judged by each replica that stands: it is a member of the ISR that it has read, and
    has waited unless it is the preferred one. One process wins in a leader epoch, and what it had
    when it began is committed as soon as it serves. Exercised by each election from a stored
    ISR."""

    clause = "RP-14"
    keys = staticmethod(by_topic)
    state = _Elected

    @on(
        ReplicaStood,
        PartitionCommitted,
        LeadershipStarted,
        FetchServed,
        ProduceAnswered,
        TopicCommitted,
    )
    def step(self, state: _Elected, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted(deleted=True):
                state.won.clear()
                state.began.clear()
            case PartitionCommitted():
                election = (body.partition, body.leader_epoch)
                won = state.won.get(election)
                if won is not None and won.record is None and won.broker == body.leader:
                    state.won[election] = won._replace(record=event.ref)
            case ReplicaStood():
                return self._stood(state, event, body)
            case LeadershipStarted():
                state.began[event.process, body.partition] = body
            # The design leaves the high watermark of a new leader open. Here its log end at the
            # election must be committed before it serves.
            case FetchServed() | ProduceAnswered() if body.high_watermark >= 0:
                began = state.began.get((event.process, body.partition))
                if (
                    began is not None
                    and began.leader_epoch == body.leader_epoch
                    and body.high_watermark < began.log_end
                ):
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} serves {partition} with the high watermark {high_watermark}; "
                        "its log ended at {log_end} when it was elected",
                        process=process_scope(event.process),
                        partition=partition_of(body),
                        high_watermark=body.high_watermark,
                        log_end=began.log_end,
                        epoch=body.leader_epoch,
                    )
                    return (broken,)
        return NOTHING

    @staticmethod
    def _stood(state: _Elected, event: Event, body: ReplicaStood) -> Findings:
        # An empty ISR was never stored: any replica may stand.
        if body.isr and body.broker_id not in body.isr:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} stood for {partition}, outside its ISR {isr}",
                process=process_scope(event.process),
                partition=partition_of(body),
                isr=tuple(body.isr),
                broker=broker_of(body.broker_id),
            )
            return (broken,)
        if not body.preferred and body.waited_ms < body.preferred_ms:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process}, which is not the preferred replica of {partition}, stood after "
                "{after_ms} ms; it has to wait for {bound_ms} ms",
                process=process_scope(event.process),
                partition=partition_of(body),
                after_ms=body.waited_ms,
                bound_ms=body.preferred_ms,
            )
            return (broken,)
        if not body.won:
            return NOTHING
        known = state.won.setdefault(
            (body.partition, body.leader_epoch), _Won(event.process, body.broker_id, event.ref)
        )
        if known.process != event.process:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} and {other} were both elected to lead {partition} in leader epoch "
                "{epoch}",
                known.proof,
                process=process_scope(event.process),
                other=process_scope(known.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.SELF),) if body.isr else NOTHING


@dataclass(slots=True)
class _Prepared:
    """The leader epochs in which each process has stored its ISR, by partition."""

    stored: dict[tuple[str, int], int] = field(default_factory=dict)


@final
class ServesOnceIsrIsStored(Rule[_Prepared]):
    """RP-16. Exercised by a leader that had to wait for another member of the ISR."""

    clause = "RP-16"
    keys = staticmethod(by_topic)
    state = _Prepared

    @on(IsrPrepared, LeadershipStarted, TopicCommitted)
    def step(self, state: _Prepared, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted(deleted=True):
                state.stored.clear()
            case IsrPrepared():
                state.stored[event.process, body.partition] = body.leader_epoch
                return self._prepared(event, body)
            case LeadershipStarted():
                if state.stored.get((event.process, body.partition)) != body.leader_epoch:
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} serves {partition} in leader epoch {epoch}, and has stored no "
                        "ISR of it",
                        process=process_scope(event.process),
                        partition=partition_of(body),
                        epoch=body.leader_epoch,
                    )
                    return (broken,)
        return NOTHING

    @staticmethod
    def _prepared(event: Event, body: IsrPrepared) -> Findings:
        short = [b for b, end in zip(body.isr, body.ends, strict=True) if end < body.log_end]
        if short:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} stored the ISR {isr} of {partition}, and brokers {brokers} have not "
                "reached its log end {log_end}",
                process=process_scope(event.process),
                isr=tuple(body.isr),
                partition=partition_of(body),
                brokers=tuple(map(broker_of, short)),
                log_end=body.log_end,
            )
            return (broken,)
        left = sorted(set(body.awaited) - set(body.isr))
        if left and body.waited_ms < body.most_ms:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} left the live brokers {brokers} out of the ISR of {partition} after "
                "{after_ms} ms; {bound_ms} ms are to be waited",
                process=process_scope(event.process),
                brokers=tuple(map(broker_of, left)),
                partition=partition_of(body),
                after_ms=body.waited_ms,
                bound_ms=body.most_ms,
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.SELF),) if len(body.awaited) > 1 else NOTHING


@dataclass(slots=True)
class _Times:
    """The times that were too long, and when each process's session has changed last."""

    suspects: list[Deadline] = field(default_factory=list)
    changed: dict[str, int] = field(default_factory=dict)


@final
class TimesAreObeyed(Rule[_Times]):
    """RP-34. Judged by the times that nodes report beside those of their settings: two seconds
    beyond LeaderElectionWaitTime are allowed, if the session with ZooKeeper did not change
    meanwhile. Exercised by a replica that had to wait for
    PreferredReplicaTime, and by a leader that had waited for LeaderElectionWaitTime."""

    clause = "RP-34"
    state = _Times

    @on(ReplicaStood, IsrPrepared, SessionChanged)
    def step(self, state: _Times, event: Event, body: Struct) -> Findings:
        if isinstance(body, SessionChanged):
            state.changed[event.process] = event.at_ns
            return NOTHING
        if isinstance(body, ReplicaStood):
            if body.preferred:
                return NOTHING
            if body.waited_ms < body.preferred_ms:
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} stood after {after_ms} ms, too early",
                    process=process_scope(event.process),
                    after_ms=body.waited_ms,
                    partition=partition_of(body),
                    bound_ms=body.preferred_ms,
                )
                return (broken,)
            return (Exercised(event.ref, Evidence.SELF),)
        assert isinstance(body, IsrPrepared)
        if set(body.awaited) - set(body.isr) and body.waited_ms < body.most_ms:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} waited {after_ms} ms for the ISR of {partition}, too short",
                process=process_scope(event.process),
                after_ms=body.waited_ms,
                partition=partition_of(body),
                bound_ms=body.most_ms,
            )
            return (broken,)
        began_ns = event.at_ns - body.waited_ms * MS
        # A leader without a session can store no ISR, however long it waits. Without this, one that
        # was cut off from ZooKeeper was accused.
        same = state.changed.get(event.process, -1) < began_ns
        if same and body.waited_ms > body.most_ms + 2_000:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} waited {after_ms} ms for the ISR of {partition}, too long",
                process=process_scope(event.process),
                after_ms=body.waited_ms,
                partition=partition_of(body),
                bound_ms=body.most_ms,
            )
            late = Deadline(
                broken, (event.process,), began_ns, event.at_ns, body.most_ms * MS, omission=False
            )
            state.suspects.append(late)
        done = body.waited_ms >= body.most_ms
        return (Exercised(event.ref, Evidence.SELF),) if done else NOTHING

    def end(self, state: _Times, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


def _spares_nodes(of_clients: set[str], body: FaultInjected | FaultHealed) -> bool:
    """Whether a fault acts upon links of clients only: those need no broker to notice anything.
    `of_clients` are such faults; what ends does as it did."""
    if isinstance(body, FaultInjected):
        ways = body.pairs()
        if ways and all(CLIENTS in way for way in ways):
            of_clients.add(body.fault_id)
    return body.fault_id in of_clients


@dataclass(slots=True)
class _Unled:
    """The partitions of which no ISR was ever stored: when they were first read, and by which
    event."""

    open: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    of_clients: set[str] = field(default_factory=set)
    """The faults of links of clients."""


@final
class EmptyIsrIsLed(Rule[_Unled]):
    """RP-17. A partition with an empty ISR has a leader within ten seconds, which count anew after
    each change of a session and each fault, but for those of links of clients. Exercised by each
    first election."""

    clause = "RP-17"
    state = _Unled

    @on(
        TopicCommitted, PartitionCommitted, ReplicaStood, SessionChanged, FaultInjected, FaultHealed
    )
    def step(self, state: _Unled, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted(deleted=True):
                state.open = {k: v for k, v in state.open.items() if k[0] != body.topic}
            case PartitionCommitted() if body.leader_epoch == 0 and not body.isr:
                state.open.setdefault((body.topic, body.partition), (event.at_ns, event.ref))
            case PartitionCommitted():
                state.open.pop((body.topic, body.partition), None)
            case FaultInjected() | FaultHealed() if _spares_nodes(state.of_clients, body):
                pass
            case SessionChanged() | FaultInjected() | FaultHealed():
                state.open = {k: (event.at_ns, ref) for k, (_, ref) in state.open.items()}
            case ReplicaStood(won=True) if not body.isr:
                return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    def end(self, state: _Unled, end: RunEnd) -> Findings:
        return [
            violated(
                ref,
                Evidence.PEER,
                "{partition} has had no leader for {since_ns} since it was created",
                partition=partition_at(topic, partition),
                since_ns=end.ended_at_ns - since_ns,
            )
            for (topic, partition), (since_ns, ref) in state.open.items()
            if end.ended_at_ns - since_ns > DONE_WITHIN_NS
        ]


_PATHS: dict[type[Struct], re.Pattern[str]] = {
    ReplicaStood: re.compile(r"/brokers/topics/[^/]+/\d+/leader"),
    IsrPrepared: re.compile(r"/brokers/topics/[^/]+/\d+/ISR"),
    StateChangeCarriedOut: re.compile(r"/brokers/topics/[^/]+/\d+/state/\d+/[^/]+"),
    ReassignmentNoticed: re.compile(r"/brokers/partitions_reassigned/[^/]+/\d+"),
}
"""The replication design's paths, by the events that name one."""


@final
class PathsAreTheDesigns(Rule[None]):
    """RP-22. Judged by the znodes that nodes name when they write or read them. Exercised by each
    of the four kinds."""

    clause = "RP-22"
    keys = staticmethod(by_topic)

    @on(*_PATHS)
    def step(self, state: None, event: Event, body: Any) -> Findings:
        if _PATHS[type(body)].fullmatch(body.path) is None:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} uses {path}, which is no path of the design",
                process=process_scope(event.process),
                path=body.path,
                topic=topic_of(body.topic),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.SELF),)


_REMOVING = ("unassigned", "delete")


@dataclass(slots=True)
class _Requests:
    """The replicas of a topic on each process, and the requests to remove them."""

    held: set[tuple[str, int]] = field(default_factory=set)
    due: dict[tuple[str, int], tuple[int, Cause, str, bool]] = field(default_factory=dict)
    """When each was taken up, the event, what it says, and whether the replica was started."""
    ended: dict[str, int] = field(default_factory=dict)
    """process -> when it ended."""
    late: list[Deadline] = field(default_factory=list)
    """The removals that came too late."""


@final
class StateChangesCarriedOut(Rule[dict[str, _Requests]]):
    """RP-23. A replica that is to be removed is gone two seconds after its broker took the request
    up. Exercised by each removal upon a request."""

    clause = "RP-23"
    state = dict

    @on(
        StateChangeCarriedOut,
        ReplicaRemoved,
        FollowingStarted,
        LeadershipStarted,
        LogAppended,
        ProcessExited,
    )
    def step(self, state: dict[str, _Requests], event: Event, body: Any) -> Findings:
        if isinstance(body, ProcessExited):
            for one in state.values():
                one.ended[body.ended] = event.at_ns
            return NOTHING
        of_topic = state.setdefault(body.topic, _Requests())
        place = (event.process, body.partition)
        match body:
            case StateChangeCarriedOut():
                if body.change in _REMOVING and not body.moot:
                    held = place in of_topic.held
                    of_topic.due[place] = (event.at_ns, event.ref, body.change, held)
            case ReplicaRemoved():
                of_topic.held.discard(place)
                due = of_topic.due.pop(place, None)
                if due is not None:
                    at_ns, ref, change, held = due
                    if held and event.at_ns - at_ns > REMOVED_WITHIN_NS:
                        broken = self._kept(
                            ref, event.process, (body.topic, body.partition), change
                        )
                        late = Deadline(
                            broken, (event.process,), at_ns, event.at_ns, REMOVED_WITHIN_NS
                        )
                        of_topic.late.append(late)
                        return NOTHING
                    return (Exercised(event.ref, Evidence.SELF),)
            case _:
                of_topic.held.add(place)
        return NOTHING

    @staticmethod
    def _kept(ref: Cause, process: str, place: tuple[str, int], change: str) -> Violated:
        return violated(
            ref,
            Evidence.SELF,
            "{process} has not removed its replica of {partition} in time, as a request ({change}) "
            "says",
            process=process_scope(process),
            partition=partition_at(*place),
            change=change,
        )

    def end(self, state: dict[str, _Requests], end: RunEnd) -> Findings:
        late = [found for one in state.values() for found in judged(one.late, end)]
        return late + [
            self._kept(ref, process, (topic, partition), change)
            for topic, one in state.items()
            for (process, partition), (at_ns, ref, change, held) in one.due.items()
            if held and one.ended.get(process, end.ended_at_ns) - at_ns > REMOVED_WITHIN_NS
        ]


@dataclass(slots=True)
class _Topics:
    """The topics, and the processes that were active when each was first read."""

    active: dict[str, int] = field(default_factory=dict)
    """process -> since when it is active with the same session."""
    owed: dict[str, tuple[int, Cause, set[str]]] = field(default_factory=dict)
    """topic id -> when it was first read, the event, and the processes that have not read it."""
    faults: set[str] = field(default_factory=set)
    """The faults that are not healed."""
    of_clients: set[str] = field(default_factory=set)
    """The faults of links of clients: they are none of a broker that notices a topic."""
    late: list[Deadline] = field(default_factory=list)
    """The processes that read of a topic too late."""

    def anew(self, at_ns: int) -> None:
        """The time counts anew, whatever a fault affects."""
        self.owed = {topic: (at_ns, ref, left) for topic, (_, ref, left) in self.owed.items()}


@final
class NewTopicsAreNoticed(Rule[_Topics]):
    """RP-30. A broker that was active when a topic was first read by another has read it ten
    seconds later, unless its session has changed or it has ended. Exercised by each that has, and
    by a leader that notices a reassignment."""

    clause = "RP-30"
    state = _Topics

    @on(
        TopicCommitted,
        BrokerStateChanged,
        SessionChanged,
        ProcessExited,
        ReassignmentNoticed,
        FaultInjected,
        FaultHealed,
    )
    def step(self, state: _Topics, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerStateChanged(new="ACTIVE"):
                state.active[event.process] = event.at_ns
            case BrokerStateChanged() | SessionChanged():
                self._gone(state, event.process, event.at_ns)
            case ProcessExited():
                self._gone(state, body.ended, event.at_ns)
            case FaultInjected() | FaultHealed() if _spares_nodes(state.of_clients, body):
                pass
            case FaultInjected():
                state.faults.add(body.fault_id)
                state.anew(event.at_ns)
            case FaultHealed():
                state.faults.discard(body.fault_id)
                state.anew(event.at_ns)
            case TopicCommitted(deleted=True):
                state.owed.pop(body.topic_id, None)
            case TopicCommitted():
                return self._read(state, event, body)
            case ReassignmentNoticed():
                return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @staticmethod
    def _gone(state: _Topics, process: str, at_ns: int) -> None:
        state.active.pop(process, None)
        for since_ns, _, left in state.owed.values():
            # What was late by then stays so.
            if at_ns - since_ns <= DONE_WITHIN_NS:
                left.discard(process)

    @staticmethod
    def _read(state: _Topics, event: Event, body: TopicCommitted) -> Findings:
        known = state.owed.get(body.topic_id)
        if known is None:
            state.owed[body.topic_id] = (event.at_ns, event.ref, set(state.active))
            known = state.owed[body.topic_id]
            known[2].discard(event.process)
            return NOTHING
        noticed = event.process in known[2]
        known[2].discard(event.process)
        at_ns, now_ns = known[0], event.at_ns
        if noticed and not state.faults and now_ns - at_ns > DONE_WITHIN_NS:
            broken = _unaware(known[1], {event.process}, now_ns - at_ns, body.topic_id)
            late = Deadline(broken, (event.process,), at_ns, now_ns, DONE_WITHIN_NS)
            state.late.append(late)
            return NOTHING
        return (Exercised(event.ref, Evidence.SELF),) if noticed else NOTHING

    def end(self, state: _Topics, end: RunEnd) -> Findings:
        return [*judged(state.late, end)] + [
            _unaware(ref, left, end.ended_at_ns - at_ns, topic_id)
            for topic_id, (at_ns, ref, left) in state.owed.items()
            if left and end.ended_at_ns - at_ns > DONE_WITHIN_NS
        ]


def _unaware(ref: Cause, processes: Set[str], after_ns: int, topic_id: str) -> Violated:
    return violated(
        ref,
        Evidence.PEER,
        "{unaware} has not noticed a topic in {after_ns}",
        unaware=", ".join(sorted(processes)),
        after_ns=after_ns,
        processes=tuple(map(process_scope, sorted(processes))),
        topic_id=topic_id,
    )
