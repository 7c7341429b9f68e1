"""Makes the tables of a run folder. Reads files, and starts no process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from os import PathLike, fspath
from typing import final

from fencepost import Codec, Event, ProcessExited, ProcessSpawned, kind_name
from fencepost.reporting import (
    AuthorityRow,
    JudgedRun,
    Move,
    PhaseRow,
    Promises,
    RunInfo,
    Verdict,
    bears_on_explanations,
    judged_run,
    sentence,
)
from fencepost_reports import places
from fencepost_reports.one_run.causes import Causes
from fencepost_reports.one_run.delays import delays
from fencepost_reports.one_run.exposures import exposures
from fencepost_reports.one_run.failures import Explained, Reads, explained
from fencepost_reports.one_run.history import History, Placed, Ref, history_of
from fencepost_reports.one_run.processes import processes
from fencepost_reports.one_run.tables import Count, EventRow, RunRow, RunTables, SlotRow, VerdictRow
from fencepost_reports.one_run.windows import windows

MARKS = 4_000
"""How many events of one run are shown by themselves."""
END = "end"
"""The phase in which the harness ends the nodes."""


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

    Memory holds the rows of the tables, and the events that explanations look back over, never the
    whole history. Nothing is written into the run's folder. Raises UsageError for a folder that is
    no run, or of an unknown system; EnvironmentFailed for a file system that does not answer.
    """
    info = places.info_of(source.where)
    plane = promises.plane(info.system)
    with places.run_folder(source.where) as folder:
        judged = judged_run(folder, promises, keep=False)
        history = history_of(folder, judged, promises)
        return _Run(source, info, plane, judged, promises, history=history).tables()


@final
@dataclass(frozen=True, slots=True)
class _Run:
    """A run that is judged and can be read."""

    source: RunSource
    info: RunInfo
    plane: str
    judged: JudgedRun
    promises: Promises
    history: History

    def tables(self) -> RunTables:
        """The tables; reads the events that explanations are made of, if there is a failure, and
        those that are shown."""
        folded, end = self.judged.tables, self.judged.end
        began_ns, ended_ns = end.began_at_ns, end.ended_at_ns
        faults, authority = folded.faults, folded.authority
        verdicts = self.judged.judgement.verdicts
        failed = explained(
            verdicts,
            folded,
            causes=Causes(authority, folded.nodes, ended_ns - began_ns),
            reads=_reads(self.promises, authority),
            events=self._bearing,
            ended_ns=ended_ns,
        )
        about = _about(self)
        cut = windows(faults, authority, failed.rows, began_ns, ended_ns)
        shown, left_out = self._shown(failed)
        return RunTables(
            about=about,
            verdicts=tuple(_verdict(clause, one) for clause, one in verdicts.items()),
            processes=tuple(processes(folded.seen, folded.exited, about.slots)),
            phases=folded.phases,
            faults=faults,
            authority=authority,
            spans=folded.spans,
            density=folded.density,
            failures=failed.rows,
            windows=tuple(cut),
            exposures=tuple(exposures(cut, faults, authority, failed.rows)),
            delays=tuple(
                delays(
                    faults,
                    authority,
                    folded.nodes,
                    folded.exited,
                    until_ns=_nodes_end_ns(folded.phases, ended_ns),
                )
            ),
            silences=folded.silences,
            latencies=folded.latencies,
            shown=shown,
            left_out=left_out,
        )

    def _bearing(self, refs: Collection[Ref]) -> Iterable[Placed]:
        """The events that explanations are made of, and those with these names."""
        kinds = Codec(self.promises.kinds).kinds.values()
        return self.history.events(
            {kind_name(kind) for kind in kinds if bears_on_explanations(kind)}, refs
        )

    def _shown(self, failed: Explained) -> tuple[tuple[EventRow, ...], int]:
        """The most important of the events that could be shown, in their order, and how many are
        left out.

        Chosen first are events that explain a failure, then losses of authority, then all others
        by position.
        """
        folded = self.judged.tables
        changes = {row.position: row for row in folded.authority}
        explaining = {row.explained_by for row in failed.rows} - {-1}
        candidates = {*folded.shown, *failed.named, *explaining}
        candidates |= {r.position for r in folded.authority if r.effect is not Move.REFUSES}

        def rank(position: int) -> tuple[int, int]:
            if position in explaining:
                return 0, position
            change = changes.get(position)
            return (1 if change is not None and change.effect is Move.TAKES else 2), position

        chosen = frozenset(nsmallest(MARKS, candidates, key=rank))
        rows = (_event(p, event, changes.get(p)) for p, event in self.history.at(chosen))
        return tuple(rows), len(candidates) - len(chosen)


def _nodes_end_ns(phases: Iterable[PhaseRow], ended_ns: int) -> int:
    """When the harness begins to end the nodes; otherwise the run's end."""
    return next((row.from_ns for row in phases if row.phase == END), ended_ns + 1)


def _reads(promises: Promises, authority: Iterable[AuthorityRow]) -> Mapping[str, Reads]:
    """What the rules of each clause read, beside what tells of authority in this run."""
    told = frozenset(row.kind for row in authority)
    found: dict[str, set[str]] = {}
    for rule in promises.rules:
        found.setdefault(rule.clause, set()).update(map(kind_name, rule.kinds))
    return {clause: Reads(frozenset(kinds), told) for clause, kinds in found.items()}


def _about(run: _Run) -> RunRow:
    info, end, folded = run.info, run.judged.end, run.judged.tables
    return RunRow(
        run=run.source.run,
        path=run.source.where,
        system=info.system,
        version=info.version,
        plane=run.plane,
        runtime=info.runtime,
        seed=info.seed,
        test=folded.test,
        counts=_counts(info),
        defects=info.defects,
        started_at=info.started_at,
        slots=tuple(SlotRow(name=s.name, role=s.role, node_id=s.node_id) for s in info.slots),
        events=sum(one.events for one in folded.seen),
        began_ns=end.began_at_ns,
        ended_ns=end.ended_at_ns,
        complete=run.judged.judgement.whole(end),
        in_part=run.judged.judgement.in_part(end),
        damage=end.damage,
        stalled=end.stalled_in_words,
        missed=tuple(f"{one.fault} ({one.fault_id})" for one in folded.faults if not one.receipt),
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
        follows=verdict.follows,
        excused=verdict.excused,
    )


# ------------------------------------------------------------------ events shown by themselves


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
    if change is None or change.effect in (Move.NOTES, Move.REFUSES):
        return "note"
    if change.change == "lost":
        return "takes"
    return "epoch" if change.epoch > change.was else "gives"
