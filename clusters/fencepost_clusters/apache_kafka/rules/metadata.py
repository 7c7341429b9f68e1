"""Rules about the metadata that nodes apply, hold and store (KR-24, QC-08, QC-09, QC-11). What they
hold is judged by the disks of the controllers at the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    READ_WITHIN_NS,
    Cause,
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
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound
from fencepost_clusters.apache_kafka.metadata.snapshot import METADATA_TOPIC
from fencepost_clusters.apache_kafka.rules.keys import KRAFT
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    IsrChangeAnswered,
    MetadataApplied,
    MetadataTruncated,
    PartitionCommitted,
    SegmentFound,
    StateReverted,
    TopicPartition,
    broker_of,
    partition_at,
    topic_of,
)
from fencepost_kafka.judging.owed import STARTS
from fencepost_kafka.voter_sets import VOTER_KINDS, VoterSets

_CONTROLLER = "controller-"


@dataclass(slots=True)
class _Visible:
    applied: dict[tuple[int, int], Cause] = field(default_factory=dict)
    """Metadata offset and epoch -> the first event that applied that."""
    sets: VoterSets = field(default_factory=VoterSets)
    logs: dict[str, dict[int, int]] = field(default_factory=dict)
    """controller -> offset -> the epoch of the record in its log."""
    isrs: dict[TopicPartition, set[tuple[int, frozenset[int]]]] = field(default_factory=dict)
    """partition -> each leader epoch and ISR that was committed."""
    granted: list[tuple[TopicPartition, int, frozenset[int], Event]] = field(default_factory=list)
    epochs: set[tuple[int, int]] = field(default_factory=set)
    """The ids and epochs of brokers that were registered, by the records."""
    registered: list[tuple[int, int, Event]] = field(default_factory=list)


@final
class VisibleIsCommitted(Rule[_Visible]):
    """QC-08. What a node says that it applied is compared with the logs on the controllers' disks;
    what an answer said to a broker, with the records that a peer read. Exercised by each ISR and
    each registration that was answered and is committed, and by the first node that applied a
    record."""

    clause = "QC-08"
    planes = KRAFT
    absence = (STARTS,)
    state = _Visible

    @on(
        *VOTER_KINDS,
        MetadataApplied,
        SegmentFound,
        IsrChangeAnswered,
        BrokerStateChanged,
        PartitionCommitted,
        BrokerCommitted,
    )
    def step(self, state: _Visible, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataApplied() if body.offset >= 0:
                state.applied.setdefault((body.offset, body.epoch), event.ref)
            case SegmentFound(topic=topic) if topic == METADATA_TOPIC:
                if body.slot.startswith(_CONTROLLER):
                    log = state.logs.setdefault(body.slot, {})
                    for batch in body.batches():
                        log |= dict.fromkeys(
                            range(batch.base_offset, batch.end), batch.leader_epoch
                        )
            case PartitionCommitted():
                known = state.isrs.setdefault((body.topic, body.partition), set())
                known.add((body.leader_epoch, frozenset(body.isr)))
            case BrokerCommitted():
                state.epochs.add((body.broker_id, body.broker_epoch))
            case IsrChangeAnswered(error="NONE") if body.isr and body.leader_epoch >= 0:
                place = body.topic, body.partition
                state.granted.append((place, body.leader_epoch, frozenset(body.isr), event))
            case BrokerStateChanged(reason="registered"):
                state.registered.append((body.broker_id, body.broker_epoch, event))
            case _:
                state.sets.take(event)
        return NOTHING

    def end(self, state: _Visible, end: RunEnd) -> Findings:
        found = [*self._applied(state)]
        for place, epoch, isr, event in state.granted:
            granted = violated(
                event.ref,
                Evidence.PEER,
                "{process} was granted the ISR {isr} of {partition} in leader epoch {epoch}, which "
                "no record has",
                process=process_scope(event.process),
                isr=tuple(sorted(isr)),
                partition=partition_at(*place),
                epoch=epoch,
            )
            # By the content, and not by an offset: the answer names none.
            kept = (epoch, isr) in state.isrs.get(place, ())
            found.append(self._answered(event, end, granted, kept=kept))
        for broker, epoch, event in state.registered:
            registered = violated(
                event.ref,
                Evidence.PEER,
                "{process} was registered as broker {broker} with epoch {epoch}, which no record "
                "has",
                process=process_scope(event.process),
                broker=broker_of(broker),
                epoch=epoch,
            )
            kept = (broker, epoch) in state.epochs
            found.append(self._answered(event, end, registered, kept=kept))
        return found

    @staticmethod
    def _applied(state: _Visible) -> Findings:
        """Whether a majority of the controllers has what nodes applied."""
        found: list[Finding] = []
        for (offset, epoch), ref in state.applied.items():
            # A log that begins later has dropped the record for a snapshot, so it cannot say.
            logs = {slot for slot, log in state.logs.items() if log and offset >= min(log)}
            having = {slot for slot in logs if state.logs[slot].get(offset) == epoch}
            if len(logs) < 2:
                continue  # disks were not read, or begin with a snapshot
            # Those whose log begins later may have had it.
            may_have = having | (state.logs.keys() - logs)
            if not state.sets.may_decide(may_have, state.logs.keys()):
                lost = violated(
                    ref,
                    Evidence.PEER,
                    "{process} applied the metadata record of epoch {epoch} at offset {offset}, "
                    "and {have} of {controllers} controllers have it on disk",
                    process=process_scope(ref.process),
                    epoch=epoch,
                    offset=offset,
                    have=len(having),
                    controllers=len(state.logs),
                    slots=tuple(map(slot_scope, sorted(having))),
                )
                return (lost,)
            found.append(Exercised(ref, Evidence.PEER))
        return found

    @staticmethod
    def _answered(event: Event, end: RunEnd, unseen: Violated, *, kept: bool) -> Finding:
        if kept:
            return Exercised(event.ref, Evidence.PEER)
        if not end.complete or end.ended_at_ns - event.at_ns <= READ_WITHIN_NS:
            return Undecided.of(unseen, Reason("it may not have been read"))
        return unseen


@dataclass(slots=True)
class _States:
    snapshots: list[tuple[MetadataStateFound, Cause]] = field(default_factory=list)
    by_log: dict[int, list[MetadataStateFound]] = field(default_factory=dict)
    """offset -> the states that logs lead to."""

    def take(self, event: Event) -> None:
        """Adds a state."""
        body = event.body
        assert isinstance(body, MetadataStateFound)
        if body.by_snapshot:
            self.snapshots.append((body, event.ref))
        else:
            self.by_log.setdefault(body.offset, []).append(body)

    def judge(self, snapshot: MetadataStateFound, ref: Cause, what: str) -> Findings:
        """Whether a snapshot has what the logs of other nodes lead to."""
        others = [
            one
            for one in self.by_log.get(snapshot.offset, ())
            # A node's own log may have been read by the process that wrote the snapshot: only
            # another node's is independent of it.
            if one.slot != snapshot.slot and one.epoch == snapshot.epoch
        ]
        wrong = [one for one in others if one.digest != snapshot.digest]
        if wrong:
            other = slot_scope(wrong[0].slot)
            slot, offset = slot_scope(snapshot.slot), snapshot.offset
            # A difference that is explained by these settings alone is told as such, so that it is
            # not taken for another one.
            if snapshot.orphans and all(one.digest == snapshot.sound for one in wrong):
                return tuple(
                    violated(
                        ref,
                        Evidence.PEER,
                        "{slot} {did} at metadata offset {offset} the settings of deleted topics, "
                        "and otherwise what the log of {other} leads to: {orphan}",
                        slot=slot,
                        did=what,
                        offset=offset,
                        other=other,
                        orphan=orphan,
                        topic=topic_of(orphan.partition(" ")[0]),
                        setting=orphan.partition(" ")[2],
                    )
                    for orphan in snapshot.orphans
                )
            differs = violated(
                ref,
                Evidence.PEER,
                "{slot} {did} at metadata offset {offset} {entities} entities that differ from the "
                "{expected} that the log of {other} leads to",
                slot=slot,
                did=what,
                offset=offset,
                entities=snapshot.entities,
                expected=wrong[0].entities,
                other=other,
            )
            return (differs,)
        return (Exercised(ref, Evidence.PEER),) if others else NOTHING


@final
class ControllersHoldTheState(Rule[_States]):
    """KR-24. A controller writes its snapshots of the state that it holds in memory. Exercised by
    each snapshot of a controller that equals what the log of another node leads to."""

    clause = "KR-24"
    state = _States

    @on(MetadataStateFound)
    def step(self, state: _States, event: Event, body: Struct) -> Findings:
        state.take(event)
        return NOTHING

    def end(self, state: _States, end: RunEnd) -> Findings:
        return [
            found
            for snapshot, ref in state.snapshots
            if slot_of(snapshot.slot).startswith(_CONTROLLER)
            for found in state.judge(snapshot, ref, "held")
        ]


@final
class SnapshotsHoldTheState(Rule[_States]):
    """QC-11. Judged by every node's snapshots: what they lead to, and that they have one record for
    each entity. Exercised by each that equals what the log of another node leads to."""

    clause = "QC-11"
    planes = KRAFT
    state = _States

    @on(MetadataStateFound)
    def step(self, state: _States, event: Event, body: Struct) -> Findings:
        state.take(event)
        return NOTHING

    def end(self, state: _States, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for snapshot, ref in state.snapshots:
            found += state.judge(snapshot, ref, "stored")
            if snapshot.records != snapshot.entities:
                twice = violated(
                    ref,
                    Evidence.SELF,
                    "the snapshot of {slot} at metadata offset {offset} has {records} records for "
                    "{entities} entities",
                    slot=slot_scope(snapshot.slot),
                    offset=snapshot.offset,
                    records=snapshot.records,
                    entities=snapshot.entities,
                )
                found.append(twice)
        return found


@dataclass(slots=True)
class _Deposed:
    resigned: dict[str, Cause] = field(default_factory=dict)
    """Each process that was the active controller, and has dropped no records since."""


@final
class DeposedReverts(Rule[_Deposed]):
    """QC-09. By the controller's own word: it reverts to an offset that its high watermark covers.
    Its state in memory is judged by its snapshots (KR-24). Exercised by a former active controller
    that drops records from its log, which it had applied and which were never committed."""

    clause = "QC-09"
    planes = KRAFT
    state = _Deposed

    @on(ControllerElected, ControllerResigned, StateReverted, MetadataTruncated)
    def step(self, state: _Deposed, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerElected():
                state.resigned.pop(event.process, None)
            case ControllerResigned():
                state.resigned[event.process] = event.ref
            case StateReverted() if body.offset > body.high_watermark:
                reverted = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} gave up epoch {epoch} and reverted to the state before offset "
                    "{offset}, of which only {high_watermark} is committed",
                    process=process_scope(event.process),
                    epoch=body.epoch,
                    offset=body.offset,
                    high_watermark=body.high_watermark,
                )
                return (reverted,)
            case MetadataTruncated() if event.process in state.resigned:
                resigned = state.resigned.pop(event.process)
                if body.from_offset < body.high_watermark:
                    dropped = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} dropped metadata from offset {offset} on, though "
                        "{high_watermark} was committed",
                        (resigned,),
                        process=process_scope(event.process),
                        offset=body.from_offset,
                        high_watermark=body.high_watermark,
                    )
                    return (dropped,)
                if body.from_offset < body.log_end:
                    return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING
