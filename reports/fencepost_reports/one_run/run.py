"""Makes the tables of a run folder. Reads files, and starts no process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike, fspath
from typing import final

from msgspec import Struct

from fencepost import (
    ClientFailed,
    ClusterRecovered,
    ConnectionClosed,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    NodeStarted,
    NodeStopped,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    RunEnd,
    RunEnded,
    RunStarted,
    Stalled,
    TestEnded,
    TestStarted,
    kind_name,
)
from fencepost.reporting import (
    JudgedRun,
    Promises,
    RunFolder,
    RunInfo,
    Verdict,
    changes_authority,
    judged_run,
    sentence,
    tells_operations,
)
from fencepost_reports import places
from fencepost_reports.one_run.activity import ActivityFold, sort_of
from fencepost_reports.one_run.authority import AuthorityFold
from fencepost_reports.one_run.causes import Causes
from fencepost_reports.one_run.failures import OperationFold, explained
from fencepost_reports.one_run.faults import FaultFold, windows
from fencepost_reports.one_run.history import EventHistory, History
from fencepost_reports.one_run.tables import (
    AuthorityRow,
    Count,
    Effect,
    EventRow,
    PhaseRow,
    RunRow,
    RunTables,
    SlotRow,
    VerdictRow,
)

MARKS = 4_000
"""How many events of one run are shown by themselves."""
_SHOWN: tuple[type[Struct], ...] = (
    RunStarted,
    RunEnded,
    TestStarted,
    TestEnded,
    ClusterRecovered,
    FaultInjected,
    FaultTookEffect,
    FaultHealed,
    ProcessSpawned,
    ProcessExited,
    Stalled,
    NodeStarted,
    NodeStopped,
    ConnectionClosed,
    ClientFailed,
)
"""Kinds of which every event is shown by itself, beside changes of authority and failures."""


@final
@dataclass(frozen=True, slots=True)
class RunSource:
    """A run to be read: its id in tables and pages, which is its folder's name; and where it is."""

    run: str
    where: str


def sources(given: Iterable[str | PathLike[str]]) -> tuple[RunSource, ...]:
    """Each run once, in the order of their places; a URI may stand for several."""
    found = places.expanded(fspath(one) for one in given)
    return tuple(RunSource(places.name_of(where), where) for where in found)


def run_tables(source: RunSource, promises: Promises) -> RunTables:
    """All tables of one run; judges it unless its folder holds the verdicts.

    Memory holds the changes of authority and the shown events, never the whole history. Nothing is
    written into the run's folder. Raises UsageError for a folder that is no run, or of an unknown
    system; EnvironmentFailed for a file system that does not answer.
    """
    info = places.info_of(source.where)
    plane = promises.plane(info.system)
    with places.run_folder(source.where) as folder:
        judged = judged_run(folder, promises, keep=False)
        history = history_of(folder, judged, promises)
        reading = _Pass()
        reading.take(history)
        run = _Run(source, info, plane, judged.end, _reads(promises))
        return reading.tables(run, judged.judgement.verdicts, history)


def history_of(folder: RunFolder, judged: JudgedRun, promises: Promises) -> History:
    """The history of a judged run: its columns, if they are whole and can be read here."""
    if judged.columns and find_spec("pyarrow") is not None:
        # A plain installation has no pyarrow.
        from fencepost_reports.one_run.column_history import recorded  # noqa: PLC0415

        found = recorded(folder, judged, promises)
        if found is not None:
            return found
    return EventHistory(folder.path, tuple(promises.kinds))


def _reads(promises: Promises) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for rule in promises.rules:
        found.setdefault(rule.clause, set()).update(map(kind_name, rule.kinds))
    return {clause: frozenset(kinds) for clause, kinds in found.items()}


@final
@dataclass(frozen=True, slots=True)
class _Run:
    """The facts of a run besides its events."""

    source: RunSource
    info: RunInfo
    plane: str
    end: RunEnd
    reads: Mapping[str, frozenset[str]]
    """The kinds of event that the rules of each clause read."""


@final
class _Pass:
    """One reading of a history, for all folds that need only one."""

    def __init__(self) -> None:
        self._authority = AuthorityFold()
        self._faults = FaultFold()
        self._activity = ActivityFold()
        self._operations = OperationFold()
        self._shown: dict[int, Event] = {}
        self._phases: list[PhaseRow] = []
        self._test = ""

    def take(self, history: History) -> None:
        """Reads the whole history."""
        for some in history.others():
            self._activity.apply_counted(some)
        for position, event in history.telling():
            body = event.body
            self._activity.apply(position, event)
            if isinstance(body, PhaseStarted):
                self._phases.append(PhaseRow(phase=body.phase, from_ns=event.at_ns))
            if isinstance(body, TestStarted):
                self._test = body.nodeid
            if isinstance(body, (FaultInjected, FaultTookEffect, FaultHealed)):
                self._faults.apply(event)
            if tells_operations(body):
                self._operations.apply(position, event, self._faults.active)
            if changes_authority(body) or isinstance(body, (NodeStarted, ProcessExited)):
                rows = len(self._authority.rows)
                self._authority.apply(position, event)
                new = self._authority.rows[rows:]
                if any(row.effect is not Effect.REFUSES for row in new):
                    self._shown[position] = event
            if isinstance(body, _SHOWN):
                self._shown[position] = event
            sort = sort_of(event)
            if sort is not None:
                self._activity.count(event, sort)

    def tables(self, run: _Run, verdicts: Mapping[str, Verdict], history: History) -> RunTables:
        """The tables; `history` is read once more if there is a failure."""
        ended_ns = run.end.ended_at_ns
        began_ns = ended_ns if self._activity.began_ns is None else self._activity.began_ns
        faults = self._faults.rows(ended_ns)
        failed = explained(
            verdicts,
            self._operations.groups,
            authority=self._authority.rows,
            causes=Causes(self._authority.rows, self._authority.nodes, ended_ns - began_ns),
            reads=run.reads,
            faults=faults,
            history=history,
            ended_ns=ended_ns,
        )
        missed = self._faults.missed()
        about = _about(run, self._test, self._activity.events, began_ns, missed)
        candidates = {**self._shown, **failed.events}
        shown = _shown(candidates, self._authority.rows, {r.explained_by for r in failed.rows})
        return RunTables(
            about=about,
            verdicts=tuple(_verdict(clause, one) for clause, one in verdicts.items()),
            processes=tuple(self._activity.processes(about.slots)),
            phases=tuple(self._phases),
            faults=tuple(faults),
            authority=tuple(self._authority.rows),
            spans=tuple(self._authority.spans(ended_ns)),
            density=tuple(self._activity.density(began_ns, ended_ns)),
            failures=failed.rows,
            windows=tuple(
                windows(faults, self._authority.rows, failed.rows, began_ns, ended_ns)
            ),
            shown=shown,
            left_out=len(candidates) - len(shown),
        )  # fmt: skip


def _about(run: _Run, test: str, events: int, began_ns: int, missed: tuple[str, ...]) -> RunRow:
    info = run.info
    family = info.system.partition("@")[0]
    return RunRow(
        run=run.source.run,
        path=run.source.where,
        system=info.system,
        version=info.versions.get(family, info.versions.get("fencepost", "")),
        plane=run.plane,
        runtime=info.runtime,
        seed=info.seed,
        test=test,
        counts=_counts(info),
        defects=info.defects,
        started_at=info.started_at,
        slots=tuple(SlotRow(name=s.name, role=s.role, node_id=s.node_id) for s in info.slots),
        events=events,
        began_ns=began_ns,
        ended_ns=run.end.ended_at_ns,
        complete=run.end.complete,
        damage=run.end.damage,
        stalled=run.end.stalled_in_words,
        missed=missed,
    )


def _counts(info: RunInfo) -> tuple[Count, ...]:
    """The counts that the run was started with, or else how many slots of each role it had."""
    asked = {name: n for name, n in info.counts.items() if n}
    regular = Counter(s.role for s in info.slots if not s.duplicate and not s.spare)
    return tuple(Count(name=name, count=n) for name, n in (asked or regular).items())


def _verdict(clause: str, verdict: Verdict) -> VerdictRow:
    return VerdictRow(
        clause=clause,
        verdict=str(verdict.verdict),
        exercised=verdict.exercised,
        evidence=str(verdict.evidence or ""),
        sentence=verdict.sentence,
        reason=verdict.reason,
        violated=verdict.violated,
        known=verdict.known,
    )


# ------------------------------------------------------------------ events shown by themselves


def _shown(
    events: Mapping[int, Event], authority: Iterable[AuthorityRow], explaining: set[int]
) -> tuple[EventRow, ...]:
    """The most important of the events that could be shown, in their order.

    Chosen first are events that explain a failure, then losses of authority, then all others by
    position.
    """
    changes = {row.position: row for row in authority}

    def rank(position: int) -> tuple[int, int]:
        if position in explaining:
            return 0, position
        change = changes.get(position)
        return (1 if change is not None and change.effect is Effect.TAKES else 2), position

    chosen = sorted(sorted(events, key=rank)[:MARKS])
    return tuple(_event(p, events[p], changes.get(p)) for p in chosen)


def _event(position: int, event: Event, change: AuthorityRow | None) -> EventRow:
    return EventRow(
        position=position,
        at_ns=event.at_ns,
        process=event.process,
        node_seq=event.node_seq,
        kind=event.kind,
        lane=_lane(event),
        shape=_shape(event, change),
        sentence=sentence(event),
    )


def _lane(event: Event) -> str:
    """The process that an event is about: an action of the harness on a process is on that
    process's lane."""
    match event.body:
        case ProcessSpawned(started=process) | ProcessExited(ended=process):
            return process
        case _:
            return event.process


def _shape(event: Event, change: AuthorityRow | None) -> str:
    """The shape of an event's mark, by its effect on authority."""
    match event.body:
        case ProcessSpawned():
            return "started"
        case ProcessExited():
            return "ended"
    if change is None or change.effect in (Effect.NOTES, Effect.REFUSES):
        return "note"
    if change.change == "lost":
        return "takes"
    return "epoch" if change.epoch > change.was else "gives"
