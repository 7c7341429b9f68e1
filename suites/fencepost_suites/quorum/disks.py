"""The metadata log as the controllers' disks hold it once all processes have ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Findings,
    Rule,
    RunEnd,
    on,
    slot_scope,
    violated,
    whole_run,
)
from fencepost_kafka import MetadataCommitted, SegmentFound
from fencepost_kafka.judging.owed import STARTS
from fencepost_kafka.voter_sets import VOTER_KINDS, VoterSets
from fencepost_suites.common.keys import NONE, Keys

METADATA_TOPIC = "__cluster_metadata"
CONTROLLER = "controller-"


def by_metadata_log(event: Event) -> Keys:
    """One key for the metadata log; none for other logs."""
    body = event.body
    if isinstance(body, SegmentFound) and body.topic != METADATA_TOPIC:
        return NONE
    return whole_run(event)


@dataclass(slots=True)
class _Log:
    ref: Cause
    first: int = -1
    """The offset of its first batch; earlier records are in a snapshot."""
    epochs: dict[int, int] = field(default_factory=dict)
    """offset -> the epoch of the record there."""

    def take(self, body: SegmentFound) -> None:
        """Adds a segment."""
        for batch in body.batches():
            if self.first < 0:
                self.first = batch.base_offset
            for offset in range(batch.base_offset, batch.end):
                self.epochs[offset] = batch.leader_epoch

    def has(self, offset: int, epoch: int) -> bool:
        """Whether it holds a record of that epoch, or had it before a snapshot."""
        return 0 <= offset < self.first or self.epochs.get(offset) == epoch


@dataclass(slots=True)
class _Stored:
    committed: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """offset -> the epoch of the committed record there, and the event that says so."""
    logs: dict[str, _Log] = field(default_factory=dict)
    """slot -> its log."""
    sets: VoterSets = field(default_factory=VoterSets)


@final
class CommittedRecordsAreStored(Rule[_Stored]):
    """QC-07. The disks of a majority of the voters have each committed record, in its epoch. So
    each later leader had it, since a majority voted for it. It needs disks that are read; what
    exercises the clause, the rule about elections says."""

    clause = "QC-07"
    absence = (STARTS,)
    keys = staticmethod(by_metadata_log)
    state = _Stored

    @on(*VOTER_KINDS, MetadataCommitted, SegmentFound)
    def step(self, state: _Stored, event: Event, body: Struct) -> Findings:
        if isinstance(body, MetadataCommitted):
            state.committed[body.offset] = body.epoch, event.ref
        elif isinstance(body, SegmentFound) and body.slot.startswith(CONTROLLER):
            state.logs.setdefault(body.slot, _Log(event.ref)).take(body)
        else:
            state.sets.take(event)
        return NOTHING

    def end(self, state: _Stored, end: RunEnd) -> Findings:
        for offset, (epoch, known_by) in sorted(state.committed.items()):
            having = [slot for slot, log in state.logs.items() if log.has(offset, epoch)]
            if state.logs and not state.sets.may_decide(having, state.logs.keys()):
                first = next(iter(state.logs.values()))
                broken = violated(
                    first.ref,
                    Evidence.PEER,
                    "the metadata record of epoch {epoch} at offset {offset} was committed, and "
                    "{stored} of {controllers} controllers have it on their disks",
                    (known_by,),
                    epoch=epoch,
                    offset=offset,
                    stored=len(having),
                    controllers=len(state.logs),
                    lacking=tuple(slot_scope(slot) for slot in state.logs if slot not in having),
                )
                return (broken,)
        return NOTHING
