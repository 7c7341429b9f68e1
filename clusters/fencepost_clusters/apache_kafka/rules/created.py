"""Rules about new partitions: their first record, and the brokers that begin with them (KR-33,
KR-34)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    OBSERVERS,
    SECOND,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    Undecided,
    is_second,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.news import Newest
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    LeadershipStarted,
    MetadataApplied,
    PartitionCommitted,
    TopicCommitted,
    TopicPartition,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import begins
from fencepost_kafka.judging.owed import FOLLOWINGS, LEADERSHIPS

_NEVER = 1 << 62
BEGINS_WITHIN_NS = 5 * SECOND
"""How long a broker that has applied a new partition may take until it leads or follows it."""


@dataclass(slots=True)
class _Firsts:
    created: Newest = field(default_factory=Newest)
    """The newest creation of each topic."""
    seen: set[tuple[str, int, int]] = field(default_factory=set)
    """topic, the offset of its creation, and partition, of the first records that were read."""


@final
class LedFromTheFirst(Rule[_Firsts]):
    """KR-33. Judged by the first record of each partition, and exercised by it. A partition is led
    from epoch 0 on, so a record of a later one is not its first: the log had been truncated before
    it was read, and a snapshot has only what became of the partition."""

    clause = "KR-33"
    state = _Firsts

    @on(TopicCommitted, PartitionCommitted)
    def step(self, state: _Firsts, event: Event, body: Struct) -> Findings:
        if isinstance(body, TopicCommitted):
            if not body.deleted:
                state.created.take(body.topic, body.offset)
            return NOTHING
        assert isinstance(body, PartitionCommitted)
        # Without the record of the topic's creation, it is not known which record of the partition
        # is the first: then none is judged.
        since = state.created.offsets.get(body.topic, _NEVER)
        one = body.topic, since, body.partition
        if body.offset <= since or one in state.seen:
            return NOTHING  # of a topic that was there before, or had that name before
        state.seen.add(one)
        if body.leader in body.isr and set(body.isr) <= set(body.replicas):
            return (Exercised(event.ref, Evidence.PEER),) if begins(body) else NOTHING
        wrong = violated(
            event.ref,
            Evidence.PEER,
            "the first record of {partition} has leader {leader} and ISR {isr}, of replicas "
            "{replicas}",
            partition=partition_of(body),
            leader=broker_of(body.leader),
            isr=tuple(body.isr),
            replicas=tuple(body.replicas),
        )
        return (wrong if begins(body) else Undecided.of(wrong),)


@dataclass(slots=True)
class _Owed:
    at: Cause
    offset: int
    since_ns: int = 0
    """When the broker had applied the record (0: it has not)."""


@dataclass(slots=True)
class _Noticing:
    seen: set[TopicPartition] = field(default_factory=set)
    """The partitions whose first record was read."""
    deleted: Newest = field(default_factory=Newest)
    """The newest deletion of each topic."""
    begun: set[tuple[str, TopicPartition]] = field(default_factory=set)
    """Process and partition: the broker may be quicker than the observer."""
    running: dict[str, int] = field(default_factory=dict)
    """process that runs -> its id."""
    owed: dict[tuple[str, TopicPartition], _Owed] = field(default_factory=dict)
    """process and partition."""
    applied: dict[str, int] = field(default_factory=dict)
    """process -> the offset of the newest image that it has applied."""
    faults: Excuses = field(default_factory=Excuses)
    late: list[Deadline] = field(default_factory=list)

    def gone(self, process: str) -> None:
        """A process ends, or was asked to: it owes nothing more."""
        self.running.pop(process, None)
        self.owed = {key: one for key, one in self.owed.items() if key[0] != process}

    def lived(self, process: str, at_ns: int) -> None:
        """A process lives at that time: what it owes may be late. Another event than an image says
        nothing of the time before, in which a fault may have stopped it."""
        for (owing, place), owed in list(self.owed.items()):
            faults = self.faults.since(owed.since_ns) if owing == process else ()
            if owing == process and not any(one.reason(process, bool) for one in faults):
                self.judge(process, place, owed, at_ns)

    def judge(self, process: str, place: TopicPartition, owed: _Owed, at_ns: int) -> None:
        """Suspects a process that lives at that time, if it is late."""
        took_ns = at_ns - owed.since_ns
        if not owed.since_ns or took_ns <= BEGINS_WITHIN_NS:
            return
        del self.owed[process, place]
        idle = violated(
            owed.at,
            Evidence.SELF,
            "{process} applied the new partition {partition} {since_ns} before, and neither leads "
            "nor follows it",
            process=process_scope(process),
            partition=partition_at(*place),
            since_ns=took_ns,
        )
        actors = process, *OBSERVERS
        self.late.append(Deadline(idle, actors, owed.since_ns, at_ns, BEGINS_WITHIN_NS))


@final
class NoticesNewPartitions(Rule[_Noticing]):
    """KR-34. The record is a peer's word, and that it has applied it the broker's. A broker that
    runs when the partition is created begins to lead or to follow it: by the images that it applies
    later, or by its own word that it stops, or by the end of the run. Then it may have stood still
    under a fault, so one that acted upon it or its links since leaves it unjudged. Exercised by
    each that does."""

    clause = "KR-34"
    absence = (LEADERSHIPS, FOLLOWINGS)
    state = _Noticing

    @on(
        NodeStarted,
        BrokerStateChanged,
        BrokerStopping,
        ProcessExited,
        FaultInjected,
        FaultHealed,
        MetadataApplied,
        PartitionCommitted,
        TopicCommitted,
        LeadershipStarted,
        FollowingStarted,
    )
    def step(self, state: _Noticing, event: Event, body: Struct) -> Findings:
        process = event.process
        match body:
            case BrokerStateChanged(new="ACTIVE") if not is_second(process):
                state.running[process] = body.broker_id
            case BrokerStateChanged() | BrokerStopping() | NodeStarted():
                state.lived(process, event.at_ns)
                state.gone(process)
            case FaultInjected() | FaultHealed():
                state.faults.take(event)
            case ProcessExited():
                state.gone(body.ended)
            case TopicCommitted(deleted=True) if state.deleted.take(body.topic, body.offset):
                # A name that was used before says too little about which topic is meant.
                state.owed = {k: one for k, one in state.owed.items() if k[1][0] != body.topic}
            case PartitionCommitted():
                place = body.topic, body.partition
                if place not in state.seen:
                    state.seen.add(place)
                    return self._created(state, event, body)
            case MetadataApplied():
                state.applied[process] = body.offset
                self._applied(state, event, body)
            case LeadershipStarted() | FollowingStarted():
                key = process, (body.topic, body.partition)
                state.begun.add(key)
                if state.owed.pop(key, None) is not None:
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _created(state: _Noticing, event: Event, body: PartitionCommitted) -> Findings:
        found: list[Finding] = []
        place = body.topic, body.partition
        for process, broker in state.running.items():
            if (process, place) in state.begun:
                found.append(Exercised(event.ref, Evidence.PEER))
            # A broker that began before the observer has read the record owes nothing more, and one
            # without a replica owes nothing.
            elif broker in body.replicas:
                # It may have applied the record before the observer has read it.
                since_ns = event.at_ns if state.applied.get(process, -1) >= body.offset else 0
                state.owed[process, place] = _Owed(event.ref, body.offset, since_ns)
        return found

    @staticmethod
    def _applied(state: _Noticing, event: Event, body: MetadataApplied) -> None:
        for (process, place), owed in list(state.owed.items()):
            if process != event.process or body.offset < owed.offset:
                continue
            # The time counts from the first image that has the record. It is looked at with the
            # images that follow, and when the process ends.
            owed.since_ns = owed.since_ns or event.at_ns
            state.judge(process, place, owed, event.at_ns)

    def end(self, state: _Noticing, end: RunEnd) -> Findings:
        # It lives to the end of the run, and may apply nothing more, if no record is written. What
        # it logged in the last seconds may be missing.
        for process in state.running:
            state.lived(process, end.ended_at_ns - BEGINS_WITHIN_NS)
        return judged(state.late, end)
