"""The tables of one run, as values.

`RunTables` holds all tables of one run. The columns of every table, in Parquet, in Spark and in a
notebook, are the fields of these classes (`columns.py`).

Fields named `*_ns` are CLOCK_MONOTONIC of the run's one host, in nanoseconds. `position` is a place
in the run's history, from 0, which respects happens-before.

Rows of tables that may be long hold text and numbers only, so the collector of cycles leaves them
out (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

from msgspec import Struct

from fencepost.reporting import (
    AuthorityRow,
    DensityRow,
    FaultRow,
    LatencyRow,
    Outcome,
    PhaseRow,
    ReportedRun,
    SilenceRow,
    SpanRow,
)


class Count(Struct, frozen=True, kw_only=True):
    """How many nodes of one sort a run had, or how often something occurred."""

    name: str
    count: int


class SlotRow(Struct, frozen=True, kw_only=True):
    """A slot as it was laid out."""

    name: str
    role: str
    node_id: int


class RunRow(Struct, frozen=True, kw_only=True):
    """The contents of run.json, and how the history ended.

    `version` is that of the system, or Fencepost's for a system that comes with it. `test` is the
    pytest id of the test that the run belongs to (empty: none). `missed` names the faults without a
    receipt. `damage` says what the history lacks, `stalled` how long the run's machine stood still,
    if that is worth a word; `in_part` for how long the run was judged, if not to its end.
    """

    run: str
    path: str
    system: str
    version: str
    plane: str
    runtime: str
    seed: int
    test: str
    counts: tuple[Count, ...]
    defects: tuple[str, ...]
    started_at: str
    slots: tuple[SlotRow, ...]
    events: int
    began_ns: int
    ended_ns: int
    complete: bool
    damage: tuple[str, ...]
    stalled: str
    in_part: str
    missed: tuple[str, ...]


class VerdictRow(Struct, frozen=True, kw_only=True):
    """The verdict of one clause, as in verdicts.json."""

    clause: str
    verdict: str
    exercised: int
    evidence: str
    sentence: str
    reason: str
    violated: int
    known: tuple[str, ...]
    follows: str = ""
    """The violated clause because of which alone it is undecided."""
    excused: int = 0
    """How often a fault excused it; `reason` says which."""

    @property
    def applies(self) -> bool:
        """Whether it has anything to say of the run's system. A clause of another plane has not;
        one that differs on this plane says how."""
        return self.verdict != Outcome.NOT_APPLICABLE or bool(self.reason)


class ProcessRow(Struct, frozen=True, kw_only=True):
    """A process, and from when to when it is known to have lived. `node_id` is -1 for no node."""

    process: str
    slot: str
    role: str
    node_id: int
    from_ns: int
    to_ns: int
    events: int


class CandidateRow(Struct, frozen=True, kw_only=True):
    """A loss of authority that may explain a failure; `position` -1: no loss explains it.

    `how` is the reason, `sure` how likely it is, from 0 to 1, and `chance` the probability that
    such a loss lies as near to the failure by chance, at the rate at which the run has them.
    """

    position: int
    type: str
    scope: str
    at_ns: int
    how: str
    sure: float
    chance: float


class FailureRow(Struct, frozen=True, kw_only=True):
    """A broken promise, a client's operation that failed or was left open, a test that failed, or a
    long time without a success (`silence`), in which `count` operations were tried.

    A silence is no event: its `position` is -1.

    Operations that are alike (`process`, `says`, `subject`, `outcome` and faults) and follow one
    another are one row: `count` of them, from `began_ns` to `at_ns`; the explanation is that of the
    first. `candidates` are what may explain it, ranked; `explained_by` is the position of the first
    one (-1: no loss of authority explains it), `how` the reason for it, and `lines` the chain of
    events that leads to the failure. `faults` are the ids of those that were active, or were healed
    after `explained_by`.
    """

    id: str
    what: Literal["violation", "operation", "test", "silence"]
    clause: str
    evidence: str
    outcome: str
    says: str
    subject: str
    process: str
    position: int
    node_seq: int
    began_ns: int
    at_ns: int
    count: int
    faults: tuple[str, ...]
    explained_by: int
    explained_type: str
    explained_at_ns: int
    how: str
    candidates: tuple[CandidateRow, ...]
    lines: tuple[str, ...]


class EventRow(Struct, frozen=True, kw_only=True, gc=False):
    """An event that a page shows by itself; `lane` is the process that it is about."""

    position: int
    at_ns: int
    process: str
    node_seq: int
    kind: str
    lane: str
    shape: str
    sentence: str


class WindowRow(Struct, frozen=True, kw_only=True):
    """A part of the run: from one injection of a fault to the next, or to the run's end.

    `fault` names the fault that was injected at its beginning (empty: the time before the first).
    `types` are the types of loss of authority that occurred in it, `failed` the sorts of failure.
    """

    from_ns: int
    until_ns: int
    fault: str
    types: tuple[str, ...]
    failed: tuple[str, ...]


Antecedent = Literal["any", "loss", "transition", "fault", "two faults"]


class ExposureRow(Struct, frozen=True, kw_only=True):
    """In how many windows of a run something occurred, and each clause was violated afterwards.

    `sort` says what: a type of loss of authority, an epoch transition (`transition_of`), a fault
    that was injected, a pair of faults (one was injected while the other was active, or with it),
    or `any`, which is every window. `name` names it, and `other` the second fault of a pair.
    """

    sort: Antecedent
    name: str
    other: str
    occurred: int
    followed: tuple[Count, ...]


Delay = Literal["fault to fencing", "heal to unfenced", "leader loss to new leader"]


class DelayRow(Struct, frozen=True, kw_only=True):
    """How long a change of authority took: a node's loss of its own after a fault, its gain of it
    after the fault was healed, or a new holder of a scope after the loss of the old one.

    `of` is the fault, or the sort of scope, such as `partition`. `to_ns` is -1 if it did not come:
    a node was not fenced before the fault was healed, or the run ended first.
    """

    what: Delay
    of: str
    scope: str
    from_ns: int
    to_ns: int


@final
class RunTables(Struct, frozen=True, kw_only=True):
    """All tables of one run. `left_out` counts the events that did not fit into `shown`."""

    about: RunRow
    verdicts: tuple[VerdictRow, ...]
    processes: tuple[ProcessRow, ...]
    phases: tuple[PhaseRow, ...]
    faults: tuple[FaultRow, ...]
    authority: tuple[AuthorityRow, ...]
    spans: tuple[SpanRow, ...]
    density: tuple[DensityRow, ...]
    failures: tuple[FailureRow, ...]
    windows: tuple[WindowRow, ...]
    exposures: tuple[ExposureRow, ...]
    delays: tuple[DelayRow, ...]
    silences: tuple[SilenceRow, ...]
    latencies: tuple[LatencyRow, ...]
    shown: tuple[EventRow, ...]
    left_out: int


@final
class RunSummary(Struct, frozen=True, kw_only=True):
    """What an index needs of a run: `outcome` alone, if it could not be read.

    `row` and `page` are the places of its tables and of its page, below those of the report.
    `verdicts` maps each clause to its verdict. In `about`, no slots and no damage are listed.
    """

    outcome: ReportedRun
    row: str = ""
    page: str = ""
    about: RunRow | None = None
    faults: int = 0
    verdicts: Mapping[str, str] = {}
