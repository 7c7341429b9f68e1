"""RP-10 over ZooKeeper: a new process inherits no membership of an ISR.

A broker can return within its session. Its place in an ISR was its former process's, so a record
must take it out, or store the ISR anew once it has caught up. That is known by the harness, which
starts processes, and by the stored records: no broker is asked. With a quorum of controllers the
log of the metadata has registrations, and `new_processes` goes by these.

Who needs to know nothing: the leader of the record itself, and members that are all new processes,
of which one stays (RP-06). Who cannot: a leader or a controller that a fault acts upon, or a
cluster that changes. So the time counts from the last change of a process and the last fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Deadline,
    Effect,
    Event,
    Evidence,
    Excuses,
    FaultHealed,
    FaultInjected,
    Findings,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Rule,
    RunEnd,
    is_second,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import PartitionCommitted, TopicCommitted, TopicMarked, partition_of
from fencepost_kafka.committed import Partitions, TopicPartition
from fencepost_kafka.vocabulary import CLIENTS, Role

GONE_WITHIN_NS = 30_000 * MS
"""A session, an election and a write to ZooKeeper take less, together."""


class _Process(Struct, frozen=True):
    """The process of a broker that runs, since when, and whether another one ran before it."""

    name: str
    since_ns: int
    again: bool


@dataclass(slots=True)
class _Members:
    partitions: Partitions = field(default_factory=Partitions)
    told: dict[TopicPartition, Event] = field(default_factory=dict)
    """partition -> the event that told its newest record."""
    running: dict[int, _Process] = field(default_factory=dict)
    ran: set[int] = field(default_factory=set)
    faults: Excuses = field(default_factory=Excuses)
    calm_ns: int = 0
    """Since when no process began or ended, and no fault began or ended."""
    over: bool = False
    """Whether the harness ends all processes."""
    suspects: list[Deadline] = field(default_factory=list)

    def look(self, at_ns: int, *places: TopicPartition) -> None:
        """Judges the records of these partitions by the time until now, in which nothing changed
        that would excuse anybody."""
        if at_ns - self.calm_ns <= GONE_WITHIN_NS or self.faults.now:
            return
        for place in places:
            event, record = self.told.get(place), self.partitions.newest.get(place)
            if event is not None and record is not None:
                self.suspects += self._inherited(event, record, at_ns)

    def _inherited(
        self, event: Event, record: PartitionCommitted, at_ns: int
    ) -> Iterator[Deadline]:
        leader = self.running.get(record.leader)
        if leader is None or leader.since_ns >= event.at_ns:
            return
        for member in record.isr:
            process = self.running.get(member)
            if process is None or not process.again or process.since_ns <= event.at_ns:
                continue
            self.told.pop((record.topic, record.partition), None)  # once is enough
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} began after the ISR {isr} of {partition} was stored, and {since_ns} "
                "later it was still a member",
                process=process_scope(process.name),
                isr=record.isr,
                partition=partition_of(record),
                since_ns=at_ns - process.since_ns,
            )
            actors = tuple(one.name for one in self.running.values())
            yield Deadline(broken, actors, self.calm_ns, at_ns, GONE_WITHIN_NS)


@final
class NewProcessLeavesIsr(Rule[_Members]):
    """RP-10. A broker whose process began after the newest record of a partition, which has it in
    the ISR beside a leader that is older. Without any other change of the cluster the record is
    replaced within half a minute. Never exercised: a record that is replaced says not why."""

    clause = "RP-10"
    planes = ("classic", "legacy")
    state = _Members

    @on(PartitionCommitted, TopicCommitted, TopicMarked)
    def _stored(self, state: _Members, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                place = body.topic, body.partition
                known = state.partitions.newest.get(place)
                if known is None or body.offset > known.offset:
                    state.look(event.at_ns, place)
                if state.partitions.take(body)[0]:
                    state.told[place] = event
            case TopicCommitted():
                state.partitions.forget(body)
            case TopicMarked():
                # A topic in deletion stays as it is.
                state.told = {at: one for at, one in state.told.items() if at[0] != body.topic}
        return NOTHING

    @on(ProcessSpawned)
    def _began(self, state: _Members, event: Event, body: ProcessSpawned) -> Findings:
        if state.over or body.role == Role.CLIENT:
            return NOTHING
        self._changes(state, event)
        node = body.node_id
        if is_second(body.slot):
            # Which of the two has the id's place, no record says.
            state.running.pop(node, None)
        elif "broker" in body.role:
            state.running[node] = _Process(body.started, event.at_ns, node in state.ran)
            state.ran.add(node)
        return NOTHING

    @on(ProcessExited)
    def _ended(self, state: _Members, event: Event, body: ProcessExited) -> Findings:
        if state.over or body.ended.startswith(f"{CLIENTS}/"):
            return NOTHING
        self._changes(state, event)
        state.running = {b: one for b, one in state.running.items() if one.name != body.ended}
        return NOTHING

    @on(FaultInjected, FaultHealed)
    def _struck(self, state: _Members, event: Event, body: FaultInjected | FaultHealed) -> Findings:
        if isinstance(body, FaultInjected) and _of_clients(body):
            return NOTHING
        self._changes(state, event)
        # The end of a process is over at once, though it is healed by the next one.
        if isinstance(body, FaultHealed) or not body.acts(Effect.ENDS):
            state.faults.take(event)
        return NOTHING

    @on(PhaseStarted)
    def _over(self, state: _Members, event: Event, body: PhaseStarted) -> Findings:
        if body.phase == "end" and not state.over:
            state.look(event.at_ns, *state.told)
            state.over = True
        return NOTHING

    @staticmethod
    def _changes(state: _Members, event: Event) -> None:
        state.look(event.at_ns, *state.told)
        state.calm_ns = event.at_ns

    def end(self, state: _Members, end: RunEnd) -> Findings:
        if not state.over:
            state.look(end.ended_at_ns, *state.told)
        return judged(state.suspects, end)


def _of_clients(body: FaultInjected) -> bool:
    """Whether a fault acts upon links of clients alone."""
    pairs = body.pairs()
    return bool(pairs) and all(CLIENTS in pair for pair in pairs)
