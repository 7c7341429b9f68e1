"""ISR changes that leaders request of the controller over ZooKeeper (KIP-343, IsrChange)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    SECOND,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Facts,
    Finding,
    Findings,
    ProcessExited,
    PromiseObserved,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerRegistered,
    ControllerBegan,
    ControllerEnded,
    IsrChangeAnswered,
    IsrChangeAsked,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
    PartitionCommitted,
    TopicCommitted,
    TopicPartition,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.surfaces import observed
from fencepost_suites.heartbeats.accounts import HEARTBEAT_INFO, Superseded
from fencepost_suites.heartbeats.controllers import CONTROLLER_KINDS, Controllers, answer_facts
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Terms

NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
NO_INCARNATION = -1
"""The incarnation of a broker that the controller does not know."""
OF_SENDER = ("NOT_CONTROLLER", "INVALID_INCARNATION_ID")
"""The errors of a whole request: they concern the receiver's office and the sender's id."""


TURN_NS = 30 * SECOND
"""For how long after a record the change of controllers may be the reason that nobody tells of the
request for it: the one that wrote it may have ended before it answered."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """A record that takes replicas into an ISR, which no controller has granted so far."""

    since_ns: int
    """When the record before it was told."""
    at_ns: int
    isr: frozenset[int]
    violated: Violated


@dataclass(slots=True)
class _Writers:
    """What shows who wrote the ISRs: registrations, records, and grants of the controller."""

    of: dict[str, int] = field(default_factory=dict)
    """process -> the BrokerInfo version of its newest registration."""
    broker: dict[int, int] = field(default_factory=dict)
    """broker -> the same."""
    partitions: Partitions = field(default_factory=Partitions)
    told_ns: dict[TopicPartition, int] = field(default_factory=dict)
    """When the newest record of each partition was told."""
    controllers: set[str] = field(default_factory=set)
    """The processes that have begun a term."""
    turns: list[int] = field(default_factory=list)
    """When a controller began or ended, or its process did."""
    grown: dict[str, list[_Grown]] = field(default_factory=dict)
    """Partition, as requests name it -> such records."""

    def grant(self, body: IsrChangeJudged) -> None:
        """The controller answers a leader that these ISRs are stored."""
        for name, isr, result in zip(body.partitions, body.isrs, body.results, strict=False):
            asked = frozenset(int(one) for one in isr.split(",") if one)
            own = self.grown.get(name, [])
            if result == "NONE":
                self.grown[name] = [one for one in own if one.isr != asked]


@final
class ControllerWritesIsr(Rule[_Writers]):
    """HB-16. The controller's event is the evidence that a leader requested a change. That a broker
    wrote to ZooKeeper is its own word: a controller that finds another state in a znode records it
    as it records its own writes. But of itself it takes no replica into an ISR, so one that joins
    while the leader stays was taken in by a request that the controller has granted, or past it."""

    clause = "HB-16"
    state = _Writers

    @on(
        *(BrokerRegistered, TopicCommitted, PartitionCommitted, IsrChangeJudged),
        *(ControllerBegan, ControllerEnded, ProcessExited),
    )
    def step(self, state: _Writers, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerRegistered():
                state.of[event.process] = state.broker[body.broker_id] = body.version
            case TopicCommitted():
                state.partitions.forget(body)
            case PartitionCommitted():
                if body.role == "broker" and state.of.get(event.process, 0) >= HEARTBEAT_INFO:
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} wrote the ISR of {partition} to ZooKeeper itself, though it is "
                        "registered with version {version}",
                        process=process_scope(event.process),
                        partition=partition_of(body),
                        version=state.of[event.process],
                    )
                    return (broken,)
                self._stored(state, event, body)
            case IsrChangeJudged():
                state.grant(body)
                requests = state.of.get(body.client, 0) >= HEARTBEAT_INFO
                if requests and "NONE" in body.results:
                    return (Exercised(event.ref, Evidence.PEER),)
            case ProcessExited() if body.ended not in state.controllers:
                return NOTHING
            case ControllerBegan() | ControllerEnded() | ProcessExited():
                state.controllers.add(event.process)
                state.turns.append(event.at_ns)
        return NOTHING

    @staticmethod
    def _stored(state: _Writers, event: Event, body: PartitionCommitted) -> None:
        place = body.topic, body.partition
        news, before = state.partitions.take(body)
        since_ns = state.told_ns.get(place, 0)
        if news:
            state.told_ns[place] = event.at_ns
        if not news or before is None or body.leader != before.leader:
            return
        joined = {*body.isr} - {*before.isr}
        moves = body.adding or before.adding or {*body.replicas} != {*before.replicas}
        if not joined or moves or state.broker.get(body.leader, 0) < HEARTBEAT_INFO:
            return
        broken = violated(
            event.ref,
            Evidence.PEER,
            "brokers {joined} joined the ISR {isr} of {partition}, which broker {leader} leads, "
            "and no controller had granted that",
            joined=tuple(sorted(joined)),
            isr=tuple(body.isr),
            partition=partition_of(body),
            leader=broker_of(body.leader),
        )
        one = _Grown(since_ns, event.at_ns, frozenset(body.isr), broken)
        name = f"{body.topic}-{body.partition}"
        state.grown.setdefault(name, []).append(one)

    def end(self, state: _Writers, end: RunEnd) -> Findings:
        never = [
            one.violated
            for grown in state.grown.values()
            for one in grown
            if not any(one.since_ns <= at_ns <= one.at_ns + TURN_NS for at_ns in state.turns)
        ]
        return never if end.complete else [Undecided.of(one) for one in never]


@final
class OnlyControllerJudges(Rule[Controllers]):
    """HB-17. A process whose session with ZooKeeper is not connected is not the controller, even if
    its events say so. Nor is it a second after ZooKeeper has ended its session, or after another
    process was elected, by their events. The leader's evidence is the refusal that it received."""

    clause = "HB-17"
    state = Controllers

    @on(*CONTROLLER_KINDS, IsrChangeJudged, IsrChangeAnswered)
    def step(self, state: Controllers, event: Event, body: Struct) -> Findings:
        term = state.take(event)
        match body:
            case IsrChangeAnswered(error="NOT_CONTROLLER"):
                return (Exercised(event.ref, Evidence.PEER),)
            case IsrChangeJudged(error="NOT_CONTROLLER"):
                if term is None:
                    return (Exercised(event.ref, Evidence.SELF),)
            case IsrChangeJudged():
                did = f"judged an IsrChange of {body.client}: {body.error}"
                facts = answer_facts(body)
                return state.judge(event, term, active=body.active, did=did, facts=facts)
        return NOTHING

    def end(self, state: Controllers, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


@dataclass(slots=True)
class _Overwritten:
    """The registrations of brokers' processes, and the ISRs that they have requested."""

    superseded: Superseded = field(default_factory=Superseded)
    broker: dict[str, int] = field(default_factory=dict)
    """process -> its broker id."""
    asked_ns: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(process, topic, partition) -> when it requested an ISR last."""
    accepted: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """(controller, broker) -> the highest incarnation id of which it accepted a heartbeat in its
    term, whatever it has declared."""
    suspects: list[Deadline] = field(default_factory=list)
    unregistered: list[tuple[int, int, Violated]] = field(default_factory=list)
    """A broker, and an incarnation id that a controller took only by its own word."""

    def heard(self, event: Event, body: MetadataHeartbeatAnswered) -> None:
        """A controller answers a heartbeat."""
        of = event.process, body.broker_id
        accepts = body.active and body.error == "NONE"
        if accepts and body.incarnation_id > self.accepted.get(of, (-1, None))[0]:
            self.accepted[of] = body.incarnation_id, event.ref

    def begin(self, process: str) -> None:
        """A controller's next term begins."""
        self.accepted = {of: one for of, one in self.accepted.items() if of[0] != process}

    def granted(self, event: Event, body: IsrChangeAnswered) -> None:
        """A process was granted an ISR."""
        broker = self.broker.get(event.process)
        asked_ns = self.asked_ns.get((event.process, body.topic, body.partition))
        if broker is None or asked_ns is None:
            return
        late = self.superseded.late(event.process, broker, asked_ns, event)
        if late is not None:
            self.suspects.append(late)


@final
class OverwrittenChangesNoIsr(Rule[_Overwritten]):
    """HB-18. The controller knows the incarnation that it has declared. The leader's evidence is
    the answer that it received: a refusal, or what it was granted although another process has been
    registered under its id for the session timeout and six seconds. A client's evidence is the
    answer to its own request."""

    clause = "HB-18"
    state = _Overwritten

    @on(
        *TERM_KINDS,
        BrokerRegistered,
        IsrChangeAsked,
        IsrChangeJudged,
        IsrChangeAnswered,
        MetadataHeartbeatAnswered,
        PromiseObserved,
    )
    def step(self, state: _Overwritten, event: Event, body: Struct) -> Findings:
        state.superseded.take(event)
        if isinstance(body, ControllerBegan):
            state.begin(event.process)
        elif isinstance(body, MetadataHeartbeatAnswered):
            state.heard(event, body)
        term = state.superseded.terms.now.get(event.process)
        if isinstance(body, BrokerRegistered):
            state.broker[event.process] = body.broker_id
        elif isinstance(body, IsrChangeAsked):
            state.asked_ns[event.process, body.topic, body.partition] = event.at_ns
        elif isinstance(body, IsrChangeAnswered) and body.error == "NONE":
            state.granted(event, body)
        if isinstance(body, IsrChangeAnswered) and body.error == "INVALID_INCARNATION_ID":
            return (Exercised(event.ref, Evidence.PEER),)
        if not isinstance(body, IsrChangeJudged):
            return observed(event, self.clause)
        accepted = state.accepted.get((event.process, body.broker_id))
        if accepted is not None and body.error == "NONE" and body.incarnation_id < accepted[0]:
            return (self._taken(event, body, accepted[0], (accepted[1],)),)
        known = None if term is None else term.brokers.get(body.broker_id)
        if known is None:
            # What it has declared is not told: but it says which incarnation it has.
            wrong = body.error == "NONE" and NO_INCARNATION != body.known != body.incarnation_id
            return (self._taken(event, body, body.known, ()),) if wrong else NOTHING
        if body.incarnation_id == max(known.incarnation, body.known):
            # It may have adopted a newer id than it has declared: that of a registration, which is
            # not told yet. Nobody has ever had an id without one.
            if body.incarnation_id > known.incarnation and body.error == "NONE":
                one = self._taken(event, body, known.incarnation, (known.ref,))
                state.unregistered.append((body.broker_id, body.incarnation_id, one))
            return NOTHING
        if body.error == "INVALID_INCARNATION_ID":
            return (Exercised(event.ref, Evidence.SELF),)
        if body.error != "NONE":
            return NOTHING
        return (self._taken(event, body, known.incarnation, (known.ref,)),)

    @staticmethod
    def _taken(
        event: Event, body: IsrChangeJudged, known: int, because: tuple[Cause, ...]
    ) -> Violated:
        return violated(
            event.ref,
            Evidence.SELF,
            "{process} judged an IsrChange of {other} with incarnation id {epoch}, though broker "
            "{broker} has {other_epoch}",
            because,
            process=process_scope(event.process),
            other=process_scope(body.client),
            epoch=body.incarnation_id,
            broker=broker_of(body.broker_id),
            other_epoch=known,
        )

    def end(self, state: _Overwritten, end: RunEnd) -> Findings:
        made = state.superseded.registered.made
        never = [one for *of, one in state.unregistered if tuple(of) not in made]
        if not end.complete:
            return (*judged(state.suspects, end), *map(Undecided.of, never))
        return (*judged(state.suspects, end), *never)


class _Result(Struct, frozen=True):
    """The result for one partition of an IsrChange."""

    topic: str
    partition: int
    isr: tuple[int, ...]
    epoch: int
    error: str


def _results(body: IsrChangeJudged) -> Iterator[_Result]:
    for place, isr, epoch, error in zip(
        body.partitions, body.isrs, body.leader_epochs, body.results, strict=False
    ):
        topic, _, index = place.rpartition("-")
        members = tuple(int(one) for one in isr.split(",") if one)
        yield _Result(topic, int(index), members, epoch, error)


@dataclass(slots=True)
class _Stored:
    """The stored partitions, and the ISR of each before its newest change."""

    terms: Terms = field(default_factory=Terms)
    partitions: Partitions = field(default_factory=Partitions)
    before: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    seen: dict[tuple[str, int, int, frozenset[int]], set[str]] = field(default_factory=dict)
    """(topic, partition, leader epoch, ISR) -> the processes that have read or written it."""

    def was_stored(self, process: str, one: _Result) -> bool:
        """Whether another process has read an answer's ISR, in a leader epoch that has ended since.

        The answering process may have stood still between its write and its answer."""
        newest = self.partitions.newest.get((one.topic, one.partition))
        place = (one.topic, one.partition, one.epoch, frozenset(one.isr))
        # The state was stored, and overtaken since: what is stored now says nothing against the
        # answer.
        over = newest is not None and newest.leader_epoch > one.epoch
        return over and bool(self.seen.get(place, set()) - {process})

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.terms.take(event)
        body = event.body
        if isinstance(body, PartitionCommitted):
            place = (body.topic, body.partition, body.leader_epoch, frozenset(body.isr))
            self.seen.setdefault(place, set()).add(event.process)
            newer, known = self.partitions.take(body)
            if newer and known is not None:
                self.before[body.topic, body.partition] = known.isr
        elif isinstance(body, TopicCommitted):
            self.partitions.forget(body)


_STORED: frozenset[type[Struct]] = TERM_KINDS | {
    PartitionCommitted,
    TopicCommitted,
    IsrChangeJudged,
    IsrChangeAnswered,
    PromiseObserved,
}


@dataclass(slots=True)
class _Results:
    """The results that controllers wrote for each leader, and what it had asked for."""

    stored: _Stored = field(default_factory=_Stored)
    written: dict[tuple[str, str], dict[str, Cause]] = field(default_factory=dict)
    """(leader's process, partition) -> the results for it, each with its newest event."""
    whole: dict[str, dict[str, Cause]] = field(default_factory=dict)
    """leader's process -> the errors of its whole requests."""

    def judged(self, event: Event, body: IsrChangeJudged) -> None:
        """A controller writes its results. An answer may be lost, and come for a later attempt: so
        every result counts, and not only the newest."""
        if body.error != "NONE":
            self.whole.setdefault(body.client, {})[body.error] = event.ref
        for place, result in zip(body.partitions, body.results, strict=False):
            self.written.setdefault((body.client, place), {})[result] = event.ref

    def read(self, event: Event, body: IsrChangeAnswered) -> Findings:
        """Judges the result that a leader read for a partition. What nobody wrote for it was
        written for another one: a timeout of its own is told in no result."""
        written = self.written.get((event.process, f"{body.topic}-{body.partition}"))
        if not written or body.error in written or body.error in self.whole.get(event.process, ()):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} read {error} for {partition}, for which the controller had written "
            "{expected}",
            tuple(written.values())[-1:],
            process=process_scope(event.process),
            error=body.error,
            partition=partition_of(body),
            expected=", ".join(sorted(written)),
        )
        return (broken,)


@final
class OnlyLeaderChangesIsr(Rule[_Results]):
    """HB-19. The stored partition names the leader; the controller's answer does not count. The
    leader's evidence is the refusal that it received; a client's evidence is the answer to its own
    request. A leader must read for each partition a result that a controller wrote for it."""

    clause = "HB-19"
    state = _Results

    @on(*_STORED)
    def step(self, results: _Results, event: Event, body: Struct) -> Findings:
        state = results.stored
        state.take(event)
        if isinstance(body, IsrChangeJudged):
            results.judged(event, body)
        elif isinstance(body, IsrChangeAnswered):
            wrong = results.read(event, body)
            if wrong:
                return wrong
        if isinstance(body, IsrChangeAnswered) and body.error == NOT_LEADER:
            return (Exercised(event.ref, Evidence.PEER),)
        if isinstance(body, IsrChangeJudged) and body.error == "NONE":
            return tuple(self._judged(state, event, body))
        return observed(event, self.clause)

    @staticmethod
    def _judged(state: _Stored, event: Event, body: IsrChangeJudged) -> Iterator[Finding]:
        if len(body.results) != len(body.partitions):
            yield violated(
                event.ref,
                Evidence.SELF,
                "{process} answered an IsrChange of {asked} partitions with {results} results",
                process=process_scope(event.process),
                asked=len(body.partitions),
                results=len(body.results),
                other=process_scope(body.client),
                broker=broker_of(body.broker_id),
                places=tuple(Scope("partition", place) for place in body.partitions),
            )
        for one in _results(body):
            stored = state.partitions.newest.get((one.topic, one.partition))
            if stored is None:
                continue
            leads = stored.leader == body.broker_id and stored.leader_epoch == one.epoch
            if one.error == NOT_LEADER and not leads:
                yield Exercised(event.ref, Evidence.SELF)
            elif one.error == "NONE" and not leads and not state.was_stored(event.process, one):
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} accepted an ISR of {partition} from broker {broker} in leader epoch "
                    "{epoch}, though broker {leader} leads in epoch {other_epoch}",
                    process=process_scope(event.process),
                    partition=partition_of(one),
                    broker=broker_of(body.broker_id),
                    epoch=one.epoch,
                    leader=broker_of(stored.leader),
                    other_epoch=stored.leader_epoch,
                    isr=tuple(map(broker_of, one.isr)),
                )
                # An epoch is made by its record: that of a later one, which both sides know, is
                # not told.
                later = one.epoch > stored.leader_epoch
                untold = Reason("the record of the later epoch is not told")
                yield Undecided.of(broken, untold, "; but ") if later else broken


@final
class UnfitIsrRefused(Rule[_Stored]):
    """HB-20. The leader's evidence is the refusal that it received; a client's evidence is the
    answer to its own request. What is wrong with one ISR may not fail the whole request: at the
    top there are only the two errors that concern the sender."""

    clause = "HB-20"
    state = _Stored

    @on(*_STORED)
    def step(self, state: _Stored, event: Event, body: Struct) -> Findings:
        state.take(event)
        if isinstance(body, IsrChangeAnswered) and body.error == "INVALID_REQUEST":
            return (Exercised(event.ref, Evidence.PEER),)
        if isinstance(body, IsrChangeJudged) and body.error == "NONE":
            return tuple(self._judged(state, event, body))
        if isinstance(body, IsrChangeJudged) and body.error not in OF_SENDER:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} refused a whole IsrChange of {other} with {error}",
                process=process_scope(event.process),
                **answer_facts(body),
            )
            return (broken,)
        return observed(event, self.clause)

    def _judged(self, state: _Stored, event: Event, body: IsrChangeJudged) -> Iterator[Finding]:
        for one in _results(body):
            wrong, facts = self._wrong(state, event.process, body.broker_id, one)
            if one.error == "INVALID_REQUEST" and wrong:
                yield Exercised(event.ref, Evidence.SELF)
            elif one.error == "NONE" and wrong:
                yield violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} accepted the ISR {isr} of {partition}, which {wrong}",
                    process=process_scope(event.process),
                    isr=tuple(map(broker_of, one.isr)),
                    partition=partition_of(one),
                    wrong=wrong,
                    leader=broker_of(body.broker_id),
                    epoch=one.epoch,
                    **facts,
                )

    @staticmethod
    def _wrong(state: _Stored, process: str, leader: int, one: _Result) -> tuple[str, Facts]:
        """Why an ISR must be refused, in words and as facts; empty if it is valid."""
        stored = state.partitions.newest.get((one.topic, one.partition))
        term = state.terms.now.get(process)
        if not one.isr:
            return "is empty", {}
        if term is None:
            return "", {}
        if leader not in one.isr:
            return f"lacks its leader, broker {leader}", {}
        if stored is None:
            return "", {}
        if not set(one.isr) <= set(stored.replicas):
            why = f"has a broker that is not one of the replicas {list(stored.replicas)}"
            return why, {"replicas": tuple(map(broker_of, stored.replicas))}
        # By the time of the answer the ISR is stored: what it added shows beside the one before.
        before = stored.isr
        if set(stored.isr) == set(one.isr):
            before = state.before.get((one.topic, one.partition), stored.isr)
        for broker in sorted(set(one.isr) - set(before)):
            known = term.brokers.get(broker)
            if known is None or known.state not in LIVE:
                return f"adds broker {broker}, which is not active", {"broker": broker_of(broker)}
        return "", {}


class _Answered(Struct, frozen=True):
    """A stored state that the controller has answered for."""

    state: PartitionCommitted
    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _Applied:
    """The stored partitions, and those that controllers have answered for."""

    stored: _Stored = field(default_factory=_Stored)
    answered: dict[tuple[str, int], _Answered] = field(default_factory=dict)

    def forget(self, topic: str) -> None:
        """A topic is deleted."""
        self.answered = {place: one for place, one in self.answered.items() if place[0] != topic}

    def read(self, event: Event, body: PartitionCommitted) -> Findings:
        """Judges what a controller reads whose term began after an answer."""
        one = self.answered.get((body.topic, body.partition))
        term = self.stored.terms.now.get(event.process)
        # Only a controller that began later reads for the first time what the answering one had
        # stored.
        if one is None or term is None or term.began_ns < one.at_ns:
            return NOTHING
        if body.offset >= one.state.offset:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} read the ISR {isr} of {partition}, stored before {expected}, for which "
            "{former} had answered NONE",
            (one.ref,),
            process=process_scope(event.process),
            isr=tuple(map(broker_of, body.isr)),
            partition=partition_of(body),
            expected=tuple(map(broker_of, one.state.isr)),
            former=process_scope(one.ref.process),
        )
        return (broken,)


@final
class AppliedBeforeAnswered(Rule[_Applied]):
    """HB-21. An ISR that is answered with NONE must be stored at that time, by the controller's own
    event. The evidence of others is what a controller reads that is elected later: a state that is
    older than the one that was answered shows that the answered one was never stored."""

    clause = "HB-21"
    state = _Applied

    @on(*_STORED)
    def step(self, state: _Applied, event: Event, body: Struct) -> Findings:
        state.stored.take(event)
        match body:
            case TopicCommitted(deleted=True):
                state.forget(body.topic)
            case PartitionCommitted():
                return state.read(event, body)
            case IsrChangeJudged(error="NONE"):
                return tuple(self._judged(state, event, body))
        return NOTHING

    @staticmethod
    def _judged(state: _Applied, event: Event, body: IsrChangeJudged) -> Iterator[Finding]:
        for one in _results(body):
            stored = state.stored.partitions.newest.get((one.topic, one.partition))
            if one.error != "NONE" or stored is None:
                continue
            if set(stored.isr) == set(one.isr):
                state.answered[one.topic, one.partition] = _Answered(stored, event.at_ns, event.ref)
                yield Exercised(event.ref, Evidence.SELF)
                continue
            if state.stored.was_stored(event.process, one):
                continue
            yield violated(
                event.ref,
                Evidence.SELF,
                "{process} answered NONE to the ISR {isr} of {partition}, though {stored} is "
                "stored",
                process=process_scope(event.process),
                isr=tuple(map(broker_of, one.isr)),
                partition=partition_of(one),
                stored=tuple(map(broker_of, stored.isr)),
                other=process_scope(body.client),
            )
