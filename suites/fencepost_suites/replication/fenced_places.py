"""The leaderships and places in ISRs of fenced brokers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    judged,
    on,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Brokers, Partitions, TopicPartition, begins, eligible_leaders
from fencepost_suites.common.fenced import LOG_KINDS, FencedAt
from fencepost_suites.common.words import named

MOVED_WITHIN_NS = 5_000_000_000
"""How long after the fencing record a fenced broker may still have leaderships."""
_ONE_DECISION_NS = 1_000_000_000
"""How far apart the records of one decision are told, at most."""


class _Taken(Struct, frozen=True):
    """The brokers that a record of the log takes into an ISR, or makes leader."""

    at: Cause
    at_ns: int
    body: PartitionCommitted
    joined: tuple[int, ...]
    leads: bool
    before: PartitionCommitted | None
    """None: the record makes the partition."""


@dataclass(slots=True)
class _Owed:
    """A fenced broker, and the places that must still be taken from it."""

    at: Cause
    at_ns: int
    places: set[TopicPartition]
    back: Cause | None = None
    """The record by which it came back, and had its places still."""


@dataclass(slots=True)
class _Fencings:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    owed: dict[tuple[int, int], _Owed] = field(default_factory=dict)
    """broker and offset of the fencing -> what is owed by it. That the broker comes back soon ends
    nothing: its places are taken from it all the same."""
    led: dict[TopicPartition, int] = field(default_factory=dict)
    """The broker that led each partition last."""
    left: dict[int, int] = field(default_factory=dict)
    """broker -> the offset of the record by which it last lost a leadership or its place in an
    ISR."""
    fenced: FencedAt = field(default_factory=FencedAt)
    taken: list[_Taken] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    """The offsets of changes of partitions in the log."""
    suspects: list[Deadline] = field(default_factory=list)

    def has_place(self, broker: int, place: TopicPartition, record: PartitionCommitted) -> bool:
        """Whether a broker, which is fenced, has a place by this record that is to be taken from
        it: also a leadership that went to nobody, though a live member of the ISR could lead."""
        if record.leader == broker:
            return True
        # The last member of an ISR stays in it, or nobody could ever lead again.
        if broker in record.isr and len(record.isr) > 1:
            return True
        could = (not self.brokers.fenced(one) for one in record.isr if one != broker)
        return record.leader < 0 and self.led.get(place) == broker and any(could)

    def settle(self, places: Collection[TopicPartition], at: Cause, at_ns: int) -> Findings:
        """What is owed no more by the newest records of these partitions, told by this event."""
        found: list[Finding] = []
        for (broker, offset), owed in list(self.owed.items()):
            for place in owed.places.intersection(places):
                if self.has_place(broker, place, self.partitions.newest[place]):
                    continue
                if at_ns - owed.at_ns > MOVED_WITHIN_NS:
                    self.late(broker, owed, (place,), at, at_ns)
                owed.places.discard(place)
                if not owed.places:
                    del self.owed[broker, offset]
                    found.append(Exercised(at, Evidence.PEER))
        return found

    def late(
        self, broker: int, owed: _Owed, places: Collection[TopicPartition], at: Cause, at_ns: int
    ) -> None:
        """A broker has places for too long."""
        kept = _kept(broker, owed, places)
        self.suspects.append(Deadline(kept, (at.process,), owed.at_ns, at_ns, MOVED_WITHIN_NS))


@final
class FencedBrokerLosesLeaderships(Rule[_Fencings]):
    """QC-30. A fenced broker loses its places within `MOVED_WITHIN_NS`, and gets no new one
    (KIP-841): neither a place in an ISR nor a leadership, by the order of the records in the log,
    and neither in a new partition, whose ISR has the live replicas only. Exercised by a fencing
    record of a broker that led, or was in an ISR, once all of these places are moved. The records
    right before count too, since every node that replays them reports them."""

    clause = "QC-30"
    state = _Fencings

    @on(*LOG_KINDS, TopicCommitted, PartitionCommitted)
    def step(self, state: _Fencings, event: Event, body: Struct) -> Findings:
        state.fenced.take(event)
        match body:
            case PartitionCommitted():
                return self._moved(state, event, body)
            case BrokerCommitted():
                return self._fenced(state, event, body)
            case TopicCommitted():
                for place in state.partitions.forget(body):
                    for owed in state.owed.values():
                        owed.places.discard(place)
        return NOTHING

    @staticmethod
    def _fenced(state: _Fencings, event: Event, body: BrokerCommitted) -> Findings:
        news, _ = state.brokers.take(body)
        broker = body.broker_id
        if not news:
            return NOTHING
        mine = [by for (of, _), by in state.owed.items() if of == broker]
        if not body.fenced:
            for by in mine:
                by.back = by.back or event.ref
            return NOTHING
        owed = {place for by in mine for place in by.places}
        places = {
            place
            for place, one in state.partitions.newest.items()
            if place not in owed and state.has_place(broker, place, one)
        }
        if places:
            state.owed[broker, body.offset] = _Owed(event.ref, event.at_ns, places)
        # Where it was the last who could lead, nothing more is owed by others.
        others = {place for by in state.owed.values() for place in by.places}
        found = state.settle(others, event.ref, event.at_ns)
        # Its places were taken from it by the records right before: the controller may write the
        # changes first, and the fencing last.
        if not places and state.left.get(broker) == body.offset - 1:
            return (*found, Exercised(event.ref, Evidence.PEER))
        return found

    @staticmethod
    def _moved(state: _Fencings, event: Event, body: PartitionCommitted) -> Findings:
        news, before = state.partitions.take(body)
        if not news:
            return NOTHING
        place = (body.topic, body.partition)
        found: list[Finding] = []
        if before is not None:
            for broker in {before.leader, *before.isr} - {body.leader, *body.isr}:
                state.left[broker] = body.offset
        _note_taken(state, event, body, before)
        for (broker, _), owed in state.owed.items():
            led = before is not None and state.led.get(place) == broker
            if place in owed.places and led and body.leader not in (-1, broker):
                assert before is not None
                dead = state.brokers.fenced(body.leader)
                if dead or body.leader not in eligible_leaders(before):
                    found.append(_went_to_unfit(event, body, before, owed.at, dead))
        found += state.settle((place,), event.ref, event.at_ns)
        if body.leader >= 0:
            state.led[place] = body.leader
        return found

    def end(self, state: _Fencings, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for (broker, _), owed in state.owed.items():
            if not owed.places:
                continue
            if end.ended_at_ns - owed.at_ns > MOVED_WITHIN_NS:
                state.late(broker, owed, owed.places, owed.at, end.ended_at_ns)
            else:
                kept = _kept(broker, owed, owed.places)
                found.append(Undecided.of(kept, Reason("when the run ended"), " "))
        return [*judged(state.suspects, end), *_taken_while_fenced(state), *found]


def _kept(broker: int, owed: _Owed, places: Collection[TopicPartition]) -> Violated:
    return violated(
        owed.back or owed.at,
        Evidence.PEER,
        "broker {broker} was fenced, and {kept} still had it, or no leader in its place",
        (owed.at,) if owed.back else (),
        broker=broker_of(broker),
        kept=named(places),
        places=tuple(partition_at(*place) for place in sorted(places)),
    )


def _went_to_unfit(
    event: Event, body: PartitionCommitted, before: PartitionCommitted, fenced: Cause, dead: bool
) -> Violated:
    """The leadership of a fenced broker went to one that is fenced too (`dead`), or that may not
    lead."""
    return violated(
        event.ref,
        Evidence.PEER,
        "{partition} went from the fenced broker {former} to broker {leader}, which is fenced"
        if dead
        else "{partition} went from the fenced broker {former} to broker {leader}, which was not "
        "in the ISR {isr}",
        (fenced,),
        partition=partition_of(body),
        former=broker_of(before.leader),
        leader=broker_of(body.leader),
        isr=tuple(before.isr),
        fenced=dead,
    )


def _note_taken(
    state: _Fencings, event: Event, body: PartitionCommitted, before: PartitionCommitted | None
) -> None:
    """Keeps a record of the log that takes brokers into an ISR or names another leader. It is
    judged once all fencings are known."""
    # Only offsets of one log say whether the fencing came before.
    if not state.fenced.in_log(event.process, body.offset):
        return
    state.changed.add(body.offset)
    if before is None and not begins(body):
        return
    # The leader of a new partition has its place in the ISR by that.
    former = {body.leader} if before is None else {*before.isr}
    joined = tuple(sorted({*body.isr} - former))
    leads = body.leader >= 0 and (before is None or body.leader != before.leader)
    if joined or leads:
        state.taken.append(_Taken(event.ref, event.at_ns, body, joined, leads=leads, before=before))


def _taken_while_fenced(state: _Fencings) -> Findings:
    found: list[Finding] = []
    for one in state.taken:
        body = one.body
        news = [(broker, False) for broker in one.joined]
        if one.leads:
            news.append((body.leader, True))
        for broker, leads in news:
            fenced = state.fenced.by(broker, body.offset)
            if fenced is not None:
                broken = violated(
                    one.at,
                    Evidence.PEER,
                    "broker {broker} {what} of {partition} at offset {offset} while it was fenced",
                    (fenced.ref,),
                    broker=broker_of(broker),
                    what="was made leader" if leads else "was taken into the ISR",
                    partition=partition_of(body),
                    offset=body.offset,
                    leads=leads,
                )
                found.append(broken)
        former = -1 if one.before is None else one.before.leader
        unclean = _unclean(state, one)
        if unclean is not None:
            broken = violated(
                one.at,
                Evidence.PEER,
                "broker {leader} was made leader of {partition} by the record at {offset}, which "
                "takes it into the ISR; broker {former}, which was fenced, cannot have asked for "
                "that",
                (unclean,),
                leader=broker_of(body.leader),
                partition=partition_of(body),
                offset=body.offset,
                former=broker_of(former),
            )
            found.append(broken)
    return found


def _unclean(state: _Fencings, one: _Taken) -> Cause | None:
    """The fencing of the former leader, where another leads by the record that takes it into the
    ISR. The changes of partitions that a fencing causes may come right before its record."""
    if one.before is None or not one.leads or one.before.leader < 0:
        return None
    if one.body.leader in eligible_leaders(one.before):
        return None
    # The fencing that led to this election may stand after it, behind the other changes of the same
    # decision.
    after = one.body.offset + 1
    while after in state.changed:
        after += 1
    fenced = state.fenced.by(one.before.leader, after + 1)
    # A reassignment may end by such a record, as its leader asked; that leader may be fenced by the
    # next record, a minute later.
    if fenced is None or fenced.at_ns - one.at_ns > _ONE_DECISION_NS:
        return None
    return fenced.ref
