"""The metadata of all nodes: equal states, snapshots that rebuild them, and their format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct, structs

from fencepost import (
    MS,
    NOTHING,
    READ_WITHIN_NS,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    Scope,
    Violated,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    FeatureFinalized,
    MetadataCommitted,
    MetadataDigest,
    PartitionCommitted,
    SnapshotAsked,
    SnapshotKnown,
    SnapshotLoaded,
    SnapshotStarted,
    SnapshotStored,
    TopicCommitted,
    TopicMarked,
)
from fencepost_suites.common.keys import Keys

_RECORDS = (
    *(BrokerCommitted, BrokerDeleted, FeatureFinalized),
    *(PartitionCommitted, TopicCommitted, TopicMarked),
)
"""The records that each node tells as it replays them."""


@dataclass(slots=True)
class _Digests:
    """The digest of the state at each offset, the first process that reported it, and how each
    process got its state."""

    controllers: set[str] = field(default_factory=set)
    known: dict[int, tuple[MetadataDigest, Cause]] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    """Processes whose state was rebuilt from a snapshot."""
    writing: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    """Processes that replayed a record while they were writing a snapshot."""

    def compare(self, offset: int, digest: str) -> tuple[bool, Cause] | None:
        """Compares a digest with the first one at that offset; returns whether they are the same,
        and the event of the first one, if there is one."""
        before = self.known.get(offset)
        return None if before is None else (before[0].digest == digest, before[1])


@final
class StandbysHoldState(Rule[_Digests]):
    """QC-06. Exercised when two controllers have the same state at one offset: a follower with no
    state, or another one, could not take over."""

    clause = "QC-06"
    state = _Digests

    @on(NodeStarted, MetadataDigest)
    def step(self, state: _Digests, event: Event, body: Struct) -> Findings:
        if isinstance(body, NodeStarted):
            if body.role == "controller":
                state.controllers.add(event.process)
            return NOTHING
        assert isinstance(body, MetadataDigest)
        if event.process not in state.controllers:
            return NOTHING
        compared = state.compare(body.offset, body.digest)
        if compared is None:
            state.known[body.offset] = (body, event.ref)
            return NOTHING
        same, of = compared
        if not same:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} holds a state at metadata offset {offset} that differs from that of "
                "{other}",
                (of,),
                process=process_scope(event.process),
                offset=body.offset,
                digest=body.digest,
                other=process_scope(of.process),
            )
            return (broken,)
        # The same controller before and after a restart is no second witness.
        if slot_of(of.process) == slot_of(event.process):
            return NOTHING
        return (Exercised(event.ref, Evidence.PEER),)


@dataclass(slots=True)
class _Replayed:
    """The record at one offset as the first process read it, without what differs by node."""

    record: Struct | None = None
    first: Cause | None = None


def _by_offset(event: Event) -> Keys:
    body: Any = event.body
    return ((body.offset,),)


@final
class RecordsReadAlike(Rule[_Replayed]):
    """QC-06: what a node says it replayed is held to what every other node says of that offset.

    A digest tells that two states differ. This names the record, and lets no node's own word
    stand alone for a record that all nodes read."""

    clause = "QC-06"
    keys = staticmethod(_by_offset)
    state = _Replayed

    @on(*_RECORDS)
    def step(self, state: _Replayed, event: Event, body: Any) -> Findings:
        # The role says who read it, and not what.
        record = structs.replace(body, role="") if hasattr(body, "role") else body
        if state.first is None:
            state.record, state.first = record, event.ref
            return NOTHING
        if record == state.record:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} {read}; {other} read another record",
            (state.first,),
            process=process_scope(event.process),
            read=body.sentence(),
            other=process_scope(state.first.process),
            offset=body.offset,
        )
        return (broken,)


def _record(event: Event) -> Any:
    """The record that an event tells, one of `_RECORDS`."""
    return event.body


@dataclass(slots=True)
class _Ahead:
    """How far controllers and others say that the log is committed."""

    controllers: set[str] = field(default_factory=set)
    committed: int = -1
    """The largest offset of a record that a controller has replayed."""
    others: dict[str, Event] = field(default_factory=dict)
    """Another process -> the event of the largest offset that it has replayed."""


@final
class ControllersCommit(Rule[_Ahead]):
    """QC-06: the log is the controllers'. What a broker says it has replayed, some controller has
    replayed by the end, if any tells what it replays.

    One broker alone said that the death of another was committed at offset 10^9, and every rule
    that asks for the newest record believed it for the rest of the run."""

    clause = "QC-06"
    state = _Ahead

    @on(NodeStarted)
    def _started(self, state: _Ahead, event: Event, body: NodeStarted) -> Findings:
        if body.role == "controller":
            state.controllers.add(event.process)
        return NOTHING

    @on(*_RECORDS)
    def _replayed(self, state: _Ahead, event: Event, body: Any) -> Findings:
        if event.process in state.controllers:
            state.committed = max(state.committed, body.offset)
            return NOTHING
        known = state.others.get(event.process)
        if known is None or body.offset > _record(known).offset:
            state.others[event.process] = event
        return NOTHING

    def end(self, state: _Ahead, end: RunEnd) -> Findings:
        if state.committed < 0:
            return NOTHING
        return [
            violated(
                event.ref,
                Evidence.PEER,
                "{process} {read}, and the controllers have replayed up to {committed}",
                process=process_scope(process),
                read=_record(event).sentence(),
                offset=_record(event).offset,
                committed=state.committed,
            )
            for process, event in state.others.items()
            if _record(event).offset > state.committed
            and end.whole_until(event.at_ns)
            and event.at_ns + READ_WITHIN_NS <= end.ended_at_ns
        ]


@final
class SnapshotRebuildsState(Rule[_Digests]):
    """QC-11. Exercised by a snapshot that is complete although records were replayed while it was
    written, and by a state that was rebuilt from a snapshot and equals another node's."""

    clause = "QC-11"
    state = _Digests

    @on(MetadataDigest, SnapshotStarted, SnapshotStored, SnapshotLoaded, MetadataCommitted)
    def step(self, state: _Digests, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                if event.process in state.writing:
                    state.changed.add(event.process)
            case SnapshotStarted():
                state.writing.add(event.process)
                state.changed.discard(event.process)
            case SnapshotStored():
                return self._stored(state, event, body)
            case SnapshotLoaded():
                state.loaded.add(event.process)
                state.writing.discard(event.process)
                return self._judge(state, event, body.offset, body.digest, "a snapshot")
            case MetadataDigest():
                found: Findings = NOTHING
                if event.process in state.loaded:
                    what = "a snapshot and the log after it"
                    found = self._judge(state, event, body.offset, body.digest, what)
                state.known.setdefault(body.offset, (body, event.ref))
                return found
        return NOTHING

    @staticmethod
    def _judge(state: _Digests, event: Event, offset: int, digest: str, what: str) -> Findings:
        compared = state.compare(offset, digest)
        if compared is None:
            return NOTHING
        same, of = compared
        if not same:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} rebuilt from {source} a state at metadata offset {offset} that differs "
                "from that of {other}",
                (of,),
                process=process_scope(event.process),
                source=what,
                offset=offset,
                other=process_scope(of.process),
            )
            return (broken,)
        own = slot_of(of.process) == slot_of(event.process)
        return (Exercised(event.ref, Evidence.SELF if own else Evidence.PEER),)

    @staticmethod
    def _stored(state: _Digests, event: Event, body: SnapshotStored) -> Findings:
        changed = event.process in state.changed
        state.writing.discard(event.process)
        state.changed.discard(event.process)
        known = state.known.get(body.offset)
        if known is None:
            return NOTHING
        state_then, of = known
        # Both: two records of one entity make the same state, and are an error of the format all
        # the same.
        if body.digest != state_then.digest or body.records != state_then.entities:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} stored a snapshot of {records} records at metadata offset {offset}, "
                "which do not make the {entities} entities that {other} had there",
                (of,),
                process=process_scope(event.process),
                records=body.records,
                offset=body.offset,
                entities=state_then.entities,
                other=process_scope(of.process),
            )
            return (broken,)
        own = slot_of(of.process) == slot_of(event.process)
        evidence = Evidence.SELF if own else Evidence.PEER
        return (Exercised(event.ref, evidence),) if changed else NOTHING


@dataclass(slots=True)
class _Snapshotting:
    """The snapshots that one active controller asked for, by its own events and those of others."""

    ids: dict[str, int] = field(default_factory=dict)
    epoch: int = -1
    patience_ms: int = 0
    asked: dict[int, tuple[int, int, Cause]] = field(default_factory=dict)
    """controller -> offset of the snapshot it had, when it was asked, and the event."""
    waited: set[int] = field(default_factory=set)
    started: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process -> when it began the snapshot that this controller epoch asked for."""
    ever: set[tuple[int, int]] = field(default_factory=set)
    """The epoch and the controller of each request."""
    brokers: set[str] = field(default_factory=set)
    """The processes that are brokers, perhaps beside a controller: a broker's own snapshots are
    nobody's to coordinate."""

    def renew(self, epoch: int) -> None:
        """A controller of a later epoch asks."""
        self.epoch = epoch
        self.asked.clear()
        self.started.clear()


@final
class OneSnapshotAtATime(Rule[_Snapshotting]):
    """QC-12. Exercised by a snapshot that had to wait for another controller's. A snapshot that
    takes longer than the active controller waits for it may be given up. One that a controller
    begins by its own decision is coordinated by nobody."""

    clause = "QC-12"
    state = _Snapshotting

    @on(
        NodeStarted,
        SnapshotAsked,
        SnapshotKnown,
        SnapshotStarted,
        SnapshotStored,
        SnapshotLoaded,
        ProcessExited,
    )
    def step(self, state: _Snapshotting, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="controller"):
                state.ids[event.process] = body.node_id
            case NodeStarted(role="broker"):
                state.brokers.add(event.process)
            case SnapshotAsked() if body.controller_epoch >= state.epoch:
                return self._asked(state, event, body)
            case SnapshotKnown() if body.controller_epoch == state.epoch:
                asked = state.asked.get(body.controller)
                if asked is not None and body.offset > asked[0]:
                    del state.asked[body.controller]
            case SnapshotStarted() if event.process in state.ids:
                return self._started(state, event, body)
            case SnapshotStored() | SnapshotLoaded():
                state.started.pop(event.process, None)
            case ProcessExited():
                state.started.pop(body.ended, None)
        return NOTHING

    @staticmethod
    def _asked(state: _Snapshotting, event: Event, body: SnapshotAsked) -> Findings:
        if body.controller_epoch > state.epoch:
            state.renew(body.controller_epoch)
        state.patience_ms = body.patience_ms
        found: list[Finding] = []
        for other, (_, at_ns, ref) in state.asked.items():
            if other != body.controller and event.at_ns - at_ns < body.patience_ms * MS:
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} asked controller {controller} for a snapshot while, as far as it "
                    "knew, that of controller {other} was under way",
                    (ref,),
                    process=process_scope(event.process),
                    controller=Scope("controller", str(body.controller)),
                    other=Scope("controller", str(other)),
                    epoch=body.controller_epoch,
                )
                found.append(broken)
        state.ever.add((body.controller_epoch, body.controller))
        state.asked = {body.controller: (body.last_offset, event.at_ns, event.ref)}
        if body.waited:
            state.waited.add(body.controller)
        return found

    @staticmethod
    def _started(state: _Snapshotting, event: Event, body: SnapshotStarted) -> Findings:
        mine = state.ids[event.process]
        if body.controller_epoch < 0:
            if event.process in state.brokers:
                return NOTHING
            alone = violated(
                event.ref,
                Evidence.SELF,
                "{process} began a snapshot, and no active controller had asked it to",
                process=process_scope(event.process),
                offset=body.offset,
            )
            return (alone,)
        if body.controller_epoch > state.epoch:
            state.renew(body.controller_epoch)
        if body.controller_epoch != state.epoch:
            return NOTHING
        # An active controller gives up one that takes too long, and asks another. But nobody has
        # given up what was never asked for.
        asked = (body.controller_epoch, mine) in state.ever
        found: list[Finding] = []
        for other, (at_ns, ref) in state.started.items():
            patient = event.at_ns - at_ns < state.patience_ms * MS
            if other != event.process and (patient or not asked):
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} began a snapshot while that of {other} was under way, both "
                    "for the active controller of epoch {epoch}",
                    (ref,),
                    process=process_scope(event.process),
                    other=process_scope(other),
                    epoch=body.controller_epoch,
                )
                found.append(broken)
        state.started[event.process] = (event.at_ns, event.ref)
        if mine in state.waited and not found:
            state.waited.discard(mine)
            found.append(Exercised(event.ref, Evidence.PEER))
        return found


def written_version(kind: str, level: int) -> int:
    """The version in which a kind of record is written at a level of metadata.format."""
    return 1 if kind == "Broker" and level >= 2 else 0


@dataclass(slots=True)
class _Levels:
    """The offsets at which levels of metadata.format were enabled, and what must keep to them."""

    levels: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    records: list[tuple[Event, MetadataCommitted]] = field(default_factory=list)
    """Those that a node told: of a kind that has several versions, or of another one than the
    first."""
    snapshots: list[tuple[Event, SnapshotStored]] = field(default_factory=list)

    def at(self, offset: int) -> tuple[int, Cause | None]:
        """The level in force for the record at an offset; 1 before any level was finalized."""
        before = [o for o in self.levels if o < offset]
        return self.levels[max(before)] if before else (1, None)


@final
class FormatByLevel(Rule[_Levels]):
    """QC-33. Exercised by records of a kind that has more than one version. Every node that reads a
    record reports its version; the node that stores a snapshot reports the snapshot's format. All
    of it is judged at the end: a node that began with a snapshot may tell a record before anybody
    has told the level that was enabled before it."""

    clause = "QC-33"
    state = _Levels

    @on(MetadataCommitted, FeatureFinalized, SnapshotStored)
    def step(self, state: _Levels, event: Event, body: Struct) -> Findings:
        match body:
            case FeatureFinalized(feature="metadata.format"):
                state.levels.setdefault(body.offset, (body.level, event.ref))
            case MetadataCommitted() if body.kind == "Broker" or body.version != 0:
                state.records.append((event, body))
            case SnapshotStored():
                state.snapshots.append((event, body))
        return NOTHING

    def end(self, state: _Levels, end: RunEnd) -> Findings:
        found: list[Finding] = []
        broken: list[Violated] = []
        for event, body in state.records:
            level, ref = state.at(body.offset)
            wanted = written_version(body.kind, level)
            if body.version != wanted:
                wrong = violated(
                    event.ref,
                    Evidence.PEER,
                    "the {kind} record at metadata offset {offset} is written in version "
                    "{version}, and level {level} of metadata.format wants version {expected}",
                    () if ref is None else (ref,),
                    kind=body.kind,
                    offset=body.offset,
                    version=body.version,
                    level=level,
                    expected=wanted,
                    process=process_scope(event.process),
                )
                broken.append(wrong)
            elif body.kind == "Broker" and ref is not None:
                found.append(Exercised(event.ref, Evidence.PEER))
        for event, stored in state.snapshots:
            level, ref = state.at(stored.offset)
            if stored.level != level:
                wrong = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} stored a snapshot in the format of level {level}, and at its "
                    "offset {offset} level {expected} was enabled",
                    () if ref is None else (ref,),
                    process=process_scope(event.process),
                    level=stored.level,
                    offset=stored.offset,
                    expected=level,
                )
                broken.append(wrong)
        # Where the history is not complete, the level that was enabled may be missing.
        late = (Deadline(one, (), end.ended_at_ns, end.ended_at_ns, bound_ns=1) for one in broken)
        return [*found, *judged(late, end)]
