"""A dead broker leads nothing, and is fenced, soon after its death, whichever server decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    HARNESS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    began_ns,
    judged,
    on,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BoundsStated,
    BrokerCommitted,
    BrokerDeclared,
    BrokerDeleted,
    BrokersListed,
    HeartbeatRefused,
    PartitionCommitted,
    TopicCommitted,
    TopicMarked,
    broker_of,
    partition_at,
)
from fencepost_kafka.committed import Brokers, Partitions, TopicPartition
from fencepost_suites.availability.surroundings import SURROUNDINGS, Surroundings
from fencepost_suites.common.words import named

_DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"


@dataclass(slots=True)
class _Dead:
    """A broker without a process, that was in the cluster or led something."""

    at_ns: int
    ref: Cause
    calm_ns: int | None
    """Since when servers have been able to decide, undisturbed; not before its death."""
    calm: Cause
    """The event by which that began."""
    excuse: Reason | None = None
    """What disturbed them since its death."""
    excused: Reason | None = None
    """The excuse that was printed."""
    done: bool = False
    """Whether it is out of the cluster and leads nothing."""
    reported: bool = False
    again_ns: int | None = None
    """When it was first unfenced though it was dead and out, as by a heartbeat that was under way:
    it has to be fenced within the bound of that."""

    def took_ns(self, at_ns: int) -> int:
        """For how long it could have been fenced."""
        return at_ns - (self.at_ns if self.again_ns is None else self.again_ns)


@dataclass(slots=True)
class _Ids:
    """The processes that hold the ids of brokers, by records, and those that were refused one."""

    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    """broker -> its newest record."""
    incarnations: dict[str, str] = field(default_factory=dict)
    """process -> its incarnation."""
    refused: set[str] = field(default_factory=set)
    """The processes that were refused an id since another one holds it."""

    def take(self, body: BrokerCommitted) -> bool:
        """Applies a record. Returns whether it gives the id to another process."""
        was = self.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return False
        self.records[body.broker_id] = body
        if was is None or was.incarnation == body.incarnation:
            return False
        # Which process that is may not be known, so none counts as refused any more.
        self.refused -= {one for one in self.refused if self._may_hold(one, body.incarnation)}
        return True

    def _may_hold(self, process: str, incarnation: str) -> bool:
        return self.incarnations.get(process, incarnation) == incarnation

    def held(self, process: str, broker: int) -> bool:
        """Whether a process is known to hold the id."""
        record = self.records.get(broker)
        own = self.incarnations.get(process)
        # By the incarnation in the record. Planes without such records know no holder.
        return record is not None and bool(own) and own == record.incarnation


@dataclass(slots=True)
class _Deaths:
    around: Surroundings = field(default_factory=Surroundings)
    bounds: BoundsStated | None = None
    brokers: Brokers = field(default_factory=Brokers)
    partitions: Partitions = field(default_factory=Partitions)
    marked: set[str] = field(default_factory=set)
    """The topics that are being deleted: nothing is decided about their leaders any more."""
    ids: _Ids = field(default_factory=_Ids)
    dead: dict[int, _Dead] = field(default_factory=dict)
    suspects: list[Deadline] = field(default_factory=list)
    over: bool = False

    def led(self, broker: int) -> Sequence[TopicPartition]:
        """The partitions that a broker leads by committed metadata, but for those that are being
        deleted."""
        return [place for place in self.partitions.led_by(broker) if place[0] not in self.marked]

    def unfenced(self, broker: int) -> bool:
        """Whether committed metadata has the broker, and not as fenced."""
        known = self.brokers.newest.get(broker)
        return known is not None and not known.fenced

    def left(self, broker: int) -> str:
        """What a dead broker still is by committed metadata, in words; empty if nothing."""
        led = self.led(broker)
        words = ["is not fenced"] if self.unfenced(broker) else []
        words += [f"leads {named(led)}"] if led else []
        return " and ".join(words)


@final
class DeadIsFenced(Rule[_Deaths]):
    """AVAIL-fenced. Death is the harness's word, and what a broker is and leads is committed
    metadata. Another controller starts no new bound, unless a disturbance of the voters explains
    its election: so a chain of controllers of which each gives a dead broker a full lease breaks
    this promise. A fault upon the controller that acts starts the bound anew, too, and so does its
    end, and what leaves no majority with it; that is the excuse. So nothing is promised where
    faults replace controllers more often than a lease lasts. Exercised by a broker that was fenced
    and leads nothing in time."""

    clause = "AVAIL-fenced"
    state = _Deaths

    @on(
        *SURROUNDINGS,
        BoundsStated,
        BrokerCommitted,
        BrokerDeclared,
        BrokerDeleted,
        PartitionCommitted,
        BrokersListed,
        TopicCommitted,
        TopicMarked,
        PhaseStarted,
        HeartbeatRefused,
    )
    def step(self, state: _Deaths, event: Event, body: Struct) -> Findings:
        if state.over:
            return NOTHING
        if isinstance(body, BoundsStated):
            state.bounds = body
            state.around.take(event)
        elif isinstance(body, PhaseStarted):
            if body.phase == "end":
                found = self._late(state, event.at_ns, event.ref)
                state.over = True
                return found
        elif isinstance(body, HeartbeatRefused):
            if body.error == _DUPLICATE:
                state.ids.refused.add(event.process)
        elif type(body) in SURROUNDINGS:
            return self._changed(state, event)
        else:
            # What is late by now stays so, whatever this record changes.
            found = self._late(state, event.at_ns, event.ref)
            self._learn(state, event.at_ns, body)
            return (*found, *self._settled(state, event))
        return NOTHING

    @staticmethod
    def _learn(state: _Deaths, at_ns: int, body: Struct) -> None:
        match body:
            case PartitionCommitted():
                news, _ = state.partitions.take(body)
                elected = state.dead.get(body.leader)
                if news:
                    state.marked.discard(body.topic)
                # A dead broker is elected: it is something again, and has to be nothing within the
                # bound of its death.
                if news and elected is not None and not elected.reported:
                    elected.done = False
            case BrokerCommitted():
                state.brokers.take(body)
                # The id has another process, and one with the id runs: the broker is not dead.
                if state.ids.take(body) and state.around.slots(body.broker_id):
                    state.dead.pop(body.broker_id, None)
                DeadIsFenced._again(state, at_ns, body.broker_id)
            case BrokerDeclared():
                state.brokers.take(body)
                DeadIsFenced._again(state, at_ns, body.broker_id)
            case BrokerDeleted():
                state.brokers.forget(body)
            case BrokersListed():
                state.brokers.listed(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case TopicMarked():
                state.marked.add(body.topic)

    @staticmethod
    def _again(state: _Deaths, at_ns: int, broker: int) -> None:
        """A dead broker is made a member again, as by a controller that does not know of its death,
        or has only now got its last heartbeat: it has to be nothing within the bound of that."""
        dead = state.dead.get(broker)
        if dead is not None and dead.done and not dead.reported and state.unfenced(broker):
            dead.done = False
            dead.again_ns = dead.again_ns or at_ns

    @staticmethod
    def _settled(state: _Deaths, event: Event) -> Findings:
        """The dead brokers that committed metadata no longer name."""
        found: list[Finding] = []
        for broker, dead in state.dead.items():
            if dead.done or state.left(broker):
                continue
            dead.done = True
            if state.bounds is not None and not dead.reported and not dead.excused:
                found.append(Exercised(event.ref, Evidence.PEER))
        return found

    def _changed(self, state: _Deaths, event: Event) -> Findings:
        """A process, a fault or the acting controller changed."""
        body = event.body
        since_ns = began_ns(event)
        found = self._late(state, min(since_ns, event.at_ns), event.ref)
        disturbance = state.around.take(event)
        if isinstance(body, ProcessSpawned) and body.slot in state.around.brokers:
            # Where records say which process is the broker, the next one is not before a record
            # gives it the id: a duplicate that was refused all the time, and a process that hung
            # while it started, left the dead broker unfenced for ever.
            record = state.ids.records.get(body.node_id)
            if record is None or not record.incarnation:
                state.dead.pop(body.node_id, None)
        elif isinstance(body, NodeStarted) and body.incarnation:
            state.ids.incarnations[event.process] = body.incarnation
        # Two excuses: nobody can decide, which stops the time; or what decides was disturbed, which
        # begins the bound anew.
        reason = state.around.undecided()
        for dead in state.dead.values():
            if reason is not None:
                dead.calm_ns, dead.excuse = None, reason
            elif dead.calm_ns is None:
                dead.calm_ns, dead.calm = event.at_ns, event.ref
            elif disturbance is not None and state.around.disturbs(disturbance):
                dead.calm_ns, dead.calm = event.at_ns, event.ref
                dead.excuse = disturbance.why
        if isinstance(body, ProcessExited):
            self._died(state, event, body, reason)
        return found

    @staticmethod
    def _died(state: _Deaths, event: Event, body: ProcessExited, reason: Reason | None) -> None:
        """A process ended. Another one with its id is the broker, unless it was refused the id or
        the one that ended held it."""
        broker = state.around.brokers.get(slot_of(body.ended))
        if broker is None or broker in state.dead:
            return
        others = {state.around.living[slot] for slot in state.around.slots(broker)}
        # Some other process may hold the id. It does not if the one that ended held it, by its
        # incarnation, or if all others were refused the id since another one has it.
        if others - state.ids.refused and not state.ids.held(body.ended, broker):
            return
        calm_ns = event.at_ns if reason is None else None
        at, done = event.ref, not state.left(broker)
        dead = _Dead(event.at_ns, at, calm_ns, calm=at, excuse=reason, done=done)
        state.dead[broker] = dead

    @staticmethod
    def _late(state: _Deaths, at_ns: int, at: Cause) -> Findings:
        """Takes note of the dead brokers that are something for too long by now. Returns those that
        are excused."""
        if state.bounds is None:
            return NOTHING
        bound_ns = state.bounds.fenced_ms * MS
        found: list[Finding] = []
        for broker, dead in state.dead.items():
            if dead.done or dead.reported or dead.took_ns(at_ns) <= bound_ns:
                continue
            left = state.left(broker)
            excused = dead.calm_ns is None or at_ns - dead.calm_ns <= bound_ns
            if excused and dead.excused == dead.excuse:
                continue  # it was printed
            since_ns = at_ns if dead.calm_ns is None else dead.calm_ns
            late = "{after_ns} after its death broker {broker} {left}"
            calm = "; nothing disturbed what decides for {calm_ns} of that"
            broken = violated(
                at,
                Evidence.PEER,
                late if excused else late + calm,
                (dead.ref,) if excused or dead.calm == dead.ref else (dead.ref, dead.calm),
                after_ns=at_ns - dead.at_ns,
                broker=broker_of(broker),
                left=left,
                calm_ns=at_ns - since_ns,
                places=tuple(partition_at(*place) for place in sorted(state.led(broker))),
                unfenced=state.unfenced(broker),
            )
            if excused and dead.excuse is not None:
                found.append(Excused.of(broken, dead.excuse))
                dead.excused = dead.excuse
                continue
            needed = state.around.needed()
            state.suspects.append(Deadline(broken, (HARNESS, *needed), since_ns, at_ns, bound_ns))
            dead.reported = True
        return found

    def end(self, state: _Deaths, end: RunEnd) -> Findings:
        found: Findings = NOTHING
        if not state.over and state.dead:
            last = max((dead.ref for dead in state.dead.values()), key=lambda ref: ref.seq)
            found = self._late(state, end.ended_at_ns, last)
        return (*found, *judged(state.suspects, end))
