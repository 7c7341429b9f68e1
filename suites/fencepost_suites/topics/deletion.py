"""Deletion: of brokers, and of topics with their data on disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Deadline,
    Effect,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultInjected,
    Finding,
    Findings,
    NodeStarted,
    PhaseStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    is_second,
    judged,
    on,
    process_scope,
    second_of,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    ControllerElected,
    LogAppended,
    PartitionCommitted,
    ReplicaRemoved,
    SnapshotLoaded,
    TopicCommitted,
    TopicMarked,
    broker_of,
    partition_at,
    topic_of,
)
from fencepost_kafka.committed import Brokers, Partitions, TopicPartition
from fencepost_suites.common.words import named

DONE_WITHIN_NS = 10_000_000_000
"""An active controller, or a running broker, has completed a deletion by then."""


@dataclass(slots=True)
class _Left:
    """A deleted broker, and the partitions whose ISR it is still in, or which it leads."""

    at: Cause
    at_ns: int
    places: set[TopicPartition]
    back: Cause | None = None
    """The record by which it registered anew, and had its places still."""


@dataclass(slots=True)
class _Deletions:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    owed: dict[int, _Left] = field(default_factory=dict)
    """deleted broker -> the places that must still be taken from it."""
    marked: dict[str, tuple[int, Cause, bool]] = field(default_factory=dict)
    """topic id -> when it was marked, and whether a new controller was elected since."""
    done: set[str] = field(default_factory=set)
    suspects: list[Deadline] = field(default_factory=list)

    def late(
        self, broker: int, owed: _Left, places: Collection[TopicPartition], at_ns: int
    ) -> None:
        """A deleted broker has places for too long."""
        kept = _kept(broker, owed, places)
        actors = (owed.at.process,)
        self.suspects.append(Deadline(kept, actors, owed.at_ns, at_ns, DONE_WITHIN_NS))


@final
class DeletedIsGone(Rule[_Deletions]):
    """QC-26. Exercised by a deleted broker that had shared an ISR with others, once it has left
    every such ISR, and by a marked topic that a later controller deleted. A controller writes the
    deletion first, and the changes after it: both take `DONE_WITHIN_NS` at most."""

    clause = "QC-26"
    state = _Deletions

    @on(
        PartitionCommitted,
        TopicCommitted,
        TopicMarked,
        BrokerCommitted,
        BrokerDeleted,
        ControllerElected,
    )
    def step(self, state: _Deletions, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                return self._moved(state, event, body)
            case BrokerDeleted():
                if state.brokers.forget(body):
                    self._deleted(state, event, body.broker_id)
            case BrokerCommitted():
                news, _ = state.brokers.take(body)
                # Its places are taken from it all the same.
                owed = state.owed.get(body.broker_id)
                if news and owed is not None:
                    owed.back = owed.back or event.ref
            case TopicMarked():
                if body.topic_id not in state.done:
                    state.marked.setdefault(body.topic_id, (event.at_ns, event.ref, False))
            case TopicCommitted(deleted=True):
                gone = state.partitions.forget(body)
                for owed in state.owed.values():
                    owed.places.difference_update(gone)
                state.done.add(body.topic_id)
                _, _, later = state.marked.pop(body.topic_id, (0, event.ref, False))
                if later:
                    return (Exercised(event.ref, Evidence.PEER),)
            case ControllerElected():
                # The next controller has to find the mark and finish: it gets the whole time.
                state.marked = {
                    topic: (event.at_ns, ref, True) for topic, (_, ref, _) in state.marked.items()
                }
        return NOTHING

    @staticmethod
    def _deleted(state: _Deletions, event: Event, broker: int) -> None:
        places = {
            place
            for place, one in state.partitions.newest.items()
            if one.leader == broker or (broker in one.isr and len(one.isr) > 1)
        }
        if places:
            state.owed[broker] = _Left(event.ref, event.at_ns, places)

    @staticmethod
    def _moved(state: _Deletions, event: Event, body: PartitionCommitted) -> Findings:
        news, _ = state.partitions.take(body)
        if not news:
            return NOTHING
        place = (body.topic, body.partition)
        for broker, owed in list(state.owed.items()):
            # The last member of an ISR stays in it.
            gone = broker not in body.isr or body.isr == (broker,)
            if place in owed.places and body.leader != broker and gone:
                if event.at_ns - owed.at_ns > DONE_WITHIN_NS:
                    state.late(broker, owed, (place,), event.at_ns)
                owed.places.discard(place)
                if not owed.places:
                    del state.owed[broker]
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    def end(self, state: _Deletions, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for broker, owed in state.owed.items():
            if owed.places and end.ended_at_ns - owed.at_ns > DONE_WITHIN_NS:
                state.late(broker, owed, owed.places, end.ended_at_ns)
            elif owed.places:
                found.append(Undecided.of(_kept(broker, owed, owed.places)))
        for topic, (at_ns, ref, _) in state.marked.items():
            broken = violated(
                ref,
                Evidence.PEER,
                "the topic {topic_id} was marked as being deleted, and is still there",
                topic_id=topic,
            )
            if end.ended_at_ns - at_ns > DONE_WITHIN_NS:
                found.append(broken)
            else:
                found.append(Undecided.of(broken))
        return [*judged(state.suspects, end), *found]


def _kept(broker: int, owed: _Left, places: Collection[TopicPartition]) -> Violated:
    """A violation: a deleted broker is still in the ISR of these partitions, or leads them."""
    return violated(
        owed.back or owed.at,
        Evidence.PEER,
        "broker {broker} was deleted and kept its place in {kept}",
        (owed.at,) if owed.back else (),
        broker=broker_of(broker),
        kept=named(places),
        places=tuple(partition_at(*place) for place in sorted(places)),
    )


Held = tuple[str, str, int]
"""Slot, topic id and partition."""


@dataclass(slots=True)
class _Replicas:
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """process and topic -> the topic's id as that process knows it."""
    newest_ids: dict[str, str] = field(default_factory=dict)
    """topic -> the newest id that a controller has named, for processes that replay no records:
    over ZooKeeper."""
    marked: dict[str, int] = field(default_factory=dict)
    """topic id -> when the topic was marked as being deleted."""
    held: dict[Held, tuple[str, bool]] = field(default_factory=dict)
    """The replicas on the slots' disks -> the topic's name, and whether the controller commands
    their removal: it does if the process that stored there last replays no records."""
    owed: dict[Held, tuple[int, Cause, str]] = field(default_factory=dict)
    """Those of deleted topics -> since when, by which event, and the topic's name."""
    replaying: set[str] = field(default_factory=set)
    """The processes that have replayed records, or loaded a snapshot of them: a snapshot names no
    topic, so `ids` may lack topics that such a process knows."""
    replayed: set[tuple[str, str]] = field(default_factory=set)
    """process and topic id: the deletions that the process has replayed."""
    since: dict[str, int] = field(default_factory=dict)
    """process -> when it began."""
    newest: dict[str, str] = field(default_factory=dict)
    exited: set[str] = field(default_factory=set)
    over_ns: int | None = None
    """When the harness began to end all processes; None: not yet."""
    active: set[str] = field(default_factory=set)
    """The processes that are active in the cluster. If none ever says that it is, all are taken to
    be: then the system prints no such events."""
    noted: set[tuple[str, str, int]] = field(default_factory=set)
    """The processes and partitions whose appends are noted, and change nothing again until a topic
    or a process changes."""

    def wiped(self, slots: Collection[str]) -> None:
        """The disks of these slots are emptied, and hold no replica any more."""
        for place in [one for one in self.held if one[0] in slots]:
            self.owed.pop(place, None)
            del self.held[place]

    def is_in(self, process: str) -> bool:
        """Whether a process runs and is in the cluster: another one is commanded nothing."""
        return process not in self.exited and (process in self.active or not self.active)

    def second(self, slot: str) -> str:
        """The active process, if there is one, that has the id of a slot's node, and another disk:
        it is commanded in the place of the slot's own process."""
        second = self.newest.get(second_of(slot), "")
        return second if second in self.active and second not in self.exited else ""

    def settle(self, place: Held) -> None:
        """A replica that should have been removed is reported: once, though other processes replay
        the deletion later."""
        del self.owed[place]
        del self.held[place]


@final
class DeletedReplicasAreRemoved(Rule[_Replicas]):
    """RP-25. A broker that replayed the deletion, or started after it, has removed its replicas by
    the time it is active. Exercised by the replicas that a broker finds and removes when it starts.
    A process that replays no records, over ZooKeeper, is commanded to remove its replicas before
    the deletion is committed, and has removed them by then; one that started after the topic was
    marked exercises it. One that is not active is commanded nothing; if a second process has its id
    then, its disk is excused for good. A replica is on a disk from its first append on. Duplicates
    are ignored, since their disks may be empty."""

    clause = "RP-25"
    state = _Replicas

    @on(
        TopicCommitted,
        TopicMarked,
        ReplicaRemoved,
        NodeStarted,
        BrokerStateChanged,
        ProcessExited,
        SnapshotLoaded,
        FaultInjected,
        PhaseStarted,
    )
    def _changed(self, state: _Replicas, event: Event, body: Struct) -> Findings:
        """A topic or a process changes, or a replica is removed."""
        # Any of these may change what an append says.
        state.noted.clear()
        slot = slot_of(event.process)
        match body:
            case NodeStarted():
                state.since[event.process] = event.at_ns
                state.newest[slot] = event.process
            # From there on the harness ends all processes, which took back what each of them owed.
            case PhaseStarted(phase="end"):
                state.over_ns = event.at_ns
            case ProcessExited() if state.over_ns is None:
                state.exited.add(body.ended)
            case SnapshotLoaded():
                state.replaying.add(event.process)
            case FaultInjected():
                state.wiped(body.acts(Effect.EMPTIES_DISK))
            case TopicCommitted(deleted=False):
                # Over ZooKeeper processes replay no records: the controller's word says which id a
                # name has.
                if body.role == "controller":
                    state.newest_ids[body.topic] = body.topic_id
                else:
                    state.ids[event.process, body.topic] = body.topic_id
            case TopicMarked():
                state.marked.setdefault(body.topic_id, event.at_ns)
            case TopicCommitted():
                state.marked.pop(body.topic_id, None)
                if body.role != "controller":
                    state.replayed.add((event.process, body.topic_id))
                for place, (topic, _) in state.held.items():
                    if place[1] == body.topic_id:
                        state.owed.setdefault(place, (event.at_ns, event.ref, topic))
                return self._committed(state, event)
            case ReplicaRemoved():
                place = (slot, body.topic_id, body.partition)
                held = state.held.pop(place, None) is not None
                found_at_start = state.owed.pop(place, None) is not None and body.reason == "stray"
                if found_at_start or (held and self._returned(state, event, body)):
                    return (Exercised(event.ref, Evidence.SELF),)
            case BrokerStateChanged(new="ACTIVE"):
                state.active.add(event.process)
                return self._active(state, event, slot)
            case BrokerStateChanged():
                state.active.discard(event.process)
        return NOTHING

    @on(LogAppended)
    def _appended(self, state: _Replicas, event: Event, body: LogAppended) -> Findings:
        process, topic = event.process, body.topic
        # Most events of a history are appends, so all but the first of a place end here.
        place = (process, topic, body.partition)
        if place in state.noted:
            return NOTHING
        state.noted.add(place)
        slot, replayed = slot_of(process), state.ids.get((process, topic))
        topic_id = replayed or state.newest_ids.get(topic)
        if topic_id is not None and not is_second(slot):
            commanded = replayed is None and process not in state.replaying
            held = slot, topic_id, body.partition
            state.held[held] = topic, commanded
            # It has removed the log, and stores messages of the deleted topic again: it owes that
            # as if it had kept the log.
            if (process, topic_id) in state.replayed:
                state.owed.setdefault(held, (event.at_ns, event.ref, topic))
        return NOTHING

    @staticmethod
    def _committed(state: _Replicas, event: Event) -> Findings:
        """The replicas that running processes should have removed before the deletion."""
        found: list[Finding] = []
        for place in sorted(state.owed):
            process = state.newest.get(place[0], "")
            topic, commanded = state.held[place]
            second = state.second(place[0]) if commanded else ""
            if second:
                state.settle(place)
                kept = violated(
                    event.ref,
                    Evidence.PEER,
                    "{slot} keeps its log of {partition}, a deleted topic",
                    slot=slot_scope(place[0]),
                    partition=partition_at(topic, place[2]),
                    topic=topic_of(topic),
                )
                doubled = Reason.of("{process} had its id then", process=process_scope(second))
                found.append(Excused.of(kept, doubled))
            # Commanded to remove it before the deletion could be committed, so it is late already.
            elif commanded and state.is_in(process):
                state.settle(place)
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} has not removed its log of {partition}, and the topic's deletion is "
                    "committed",
                    process=process_scope(process),
                    partition=partition_at(topic, place[2]),
                    topic=topic_of(topic),
                )
                found.append(broken)
        return found

    @staticmethod
    def _returned(state: _Replicas, event: Event, body: ReplicaRemoved) -> bool:
        """Whether the process began after the topic was marked, and before it was gone."""
        marked_ns = state.marked.get(body.topic_id)
        return marked_ns is not None and state.since.get(event.process, 0) > marked_ns

    @staticmethod
    def _active(state: _Replicas, event: Event, slot: str) -> Findings:
        began_ns = state.since.get(event.process, 0)
        found: list[Finding] = []
        for place, (at_ns, ref, topic) in list(state.owed.items()):
            # It began after the deletion, or has replayed it.
            knows = at_ns < began_ns or (event.process, place[1]) in state.replayed
            if place[0] == slot and knows:
                state.settle(place)
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} is active and still has its log of {partition}, a topic that was "
                    "deleted before",
                    (ref,),
                    process=process_scope(event.process),
                    partition=partition_at(topic, place[2]),
                    topic=topic_of(topic),
                    active=True,
                )
                found.append(broken)
        return found

    def end(self, state: _Replicas, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for place, (at_ns, ref, name) in state.owed.items():
            slot, _, partition = place
            process, (_, commanded) = state.newest.get(slot, ""), state.held[place]
            if process in state.exited or (commanded and not state.is_in(process)):
                continue
            broken = violated(
                ref,
                Evidence.SELF,
                "{process} has not removed its log of {partition}, a deleted topic",
                process=process_scope(process),
                partition=partition_at(name, partition),
                topic=topic_of(name),
            )
            over_ns = end.ended_at_ns if state.over_ns is None else state.over_ns
            if over_ns - at_ns > DONE_WITHIN_NS:
                found.append(broken)
            else:
                found.append(Undecided.of(broken))
        return found
