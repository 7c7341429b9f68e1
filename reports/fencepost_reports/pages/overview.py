"""What the summaries of many runs say together: the contents of the index. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from msgspec import Struct

from fencepost.reporting import ClauseCount, Outcome, counted
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.places import file_name

WORST = (
    Outcome.VIOLATED,
    Outcome.UNKNOWN,
    Outcome.NOT_EXERCISED,
    Outcome.HOLDS,
    Outcome.NOT_APPLICABLE,
)
"""The verdicts, the worst first."""


class Last(Struct, frozen=True):
    """The report before this one: its runs, and the clauses that any of them violated."""

    runs: tuple[str, ...]
    violated: tuple[str, ...]


def last(runs: Iterable[RunSummary]) -> Last:
    """What the next report is to know of this one."""
    read = tuple(runs)
    violated = {clause for run in read for clause in run.outcome.violated}
    return Last(tuple(sorted(run.outcome.run for run in read)), tuple(sorted(violated)))


class Subject(NamedTuple):
    """What runs are compared by: a column of the matrix."""

    system: str
    version: str
    runtime: str


class Cell(NamedTuple):
    """The worst verdict of a clause in the runs of a subject, in how many of them it is so, and
    whether each of these is a violation that is known."""

    verdict: str
    alike: int
    runs: int
    known: bool


@final
@dataclass(frozen=True, slots=True)
class Clause:
    """One clause over all runs; `new`: no run of the last report violated it."""

    id: str
    sentence: str
    cells: Sequence[Cell | None]
    """By subject; None where it has no verdict."""
    counts: Mapping[Subject, Counter[str]]
    """By subject: in how many runs it has each verdict."""
    anew: Sequence[RunSummary]
    """The runs that violate it otherwise than is known."""
    known: Sequence[RunSummary]
    """Those in which each violation of it is a known one."""
    new: bool
    count: ClauseCount
    """How often the runs exercised it, and how often faults excused it."""

    @property
    def violated(self) -> Sequence[RunSummary]:
        """All runs that violate it."""
        return [*self.anew, *self.known]

    @property
    def page(self) -> str:
        """The place of its page, below that of the report."""
        return f"clauses/{file_name(self.id)}.html"

    @property
    def worst(self) -> str:
        """Its worst verdict."""
        return min((cell.verdict for cell in self.cells if cell), key=_badness)


class Day(NamedTuple):
    """The runs that started on one day (UTC): of them `broken` violate a clause, and `open` of the
    others are not complete or have an unknown verdict."""

    date: str
    runs: int
    broken: int
    open: int


@final
@dataclass(frozen=True, slots=True)
class Overview:
    """All of it; clauses with the worst verdict first, runs with a violation first."""

    runs: Sequence[RunSummary]
    subjects: Sequence[Subject]
    clauses: Sequence[Clause]
    days: Sequence[Day]
    before: Last | None
    new_runs: int

    @property
    def not_judged(self) -> Sequence[Clause]:
        """The clauses that faults excused, or that a run left undecided: those first that were
        excused more often than exercised."""
        some = [one for one in self.clauses if one.count.excused or one.count.undecided]
        return sorted(some, key=lambda one: (not one.count.judged_seldom, one.id))

    def of(self, *verdicts: str) -> Sequence[Clause]:
        """The clauses whose worst verdict is one of these."""
        return [clause for clause in self.clauses if clause.worst in verdicts]


def overview(
    runs: Sequence[RunSummary], sentences: Mapping[str, str], before: Last | None
) -> Overview:
    """The overview of runs that could be read; `sentences` has that of each clause."""
    subjects = sorted({_subject(run) for run in runs})
    former = frozenset() if before is None else frozenset(before.runs)
    return Overview(
        runs=sorted(runs, key=lambda run: (not run.outcome.violated, _started(run))),
        subjects=subjects,
        clauses=_clauses(runs, subjects, sentences, before),
        days=_days(runs),
        before=before,
        new_runs=sum(run.outcome.run not in former for run in runs),
    )


def _clauses(
    runs: Sequence[RunSummary],
    subjects: Sequence[Subject],
    sentences: Mapping[str, str],
    before: Last | None,
) -> Sequence[Clause]:
    counts: dict[str, dict[Subject, Counter[str]]] = {}
    anew: dict[str, list[RunSummary]] = {}
    known: dict[str, list[RunSummary]] = {}
    known_in: Counter[tuple[str, Subject]] = Counter()
    counted_in = counted(run.outcome for run in runs)
    for run in runs:
        subject = _subject(run)
        for clause, verdict in run.verdicts.items():
            counts.setdefault(clause, {}).setdefault(subject, Counter())[verdict] += 1
        for clause in run.outcome.violated:
            is_known = clause in run.outcome.known
            (known if is_known else anew).setdefault(clause, []).append(run)
            known_in[clause, subject] += is_known
    clauses = [
        Clause(
            id=clause,
            sentence=sentences.get(clause, ""),
            cells=[
                _cell(found[one], known_in[clause, one]) if one in found else None
                for one in subjects
            ],
            counts=found,
            anew=anew.get(clause, ()),
            known=known.get(clause, ()),
            new=before is not None and clause in {*anew, *known} and clause not in before.violated,
            count=counted_in.get(clause, ClauseCount()),
        )
        for clause, found in counts.items()
        if any(verdict != Outcome.NOT_APPLICABLE for one in found.values() for verdict in one)
    ]
    return sorted(clauses, key=lambda one: (_badness(one.worst), not one.anew, not one.new, one.id))


def _cell(found: Counter[str], known: int) -> Cell:
    worst = min(found, key=_badness)
    of_worst = worst == Outcome.VIOLATED and known == found[worst]
    return Cell(worst, found[worst], found.total(), of_worst)


def _badness(verdict: str) -> int:
    return WORST.index(Outcome(verdict))


def _subject(run: RunSummary) -> Subject:
    """The subject of a run that could be read."""
    assert run.about is not None
    return Subject(run.about.system, run.about.version, run.about.runtime)


def _started(run: RunSummary) -> str:
    return "" if run.about is None else run.about.started_at


def _days(runs: Iterable[RunSummary]) -> Sequence[Day]:
    days: dict[str, list[RunSummary]] = {}
    for run in runs:
        days.setdefault(run.row.partition("date=")[2][:10], []).append(run)
    return [
        Day(
            date=date,
            runs=len(some),
            broken=sum(bool(run.outcome.violated) for run in some),
            open=sum(not run.outcome.violated and _is_open(run) for run in some),
        )
        for date, some in sorted(days.items(), reverse=True)
    ]


def _is_open(run: RunSummary) -> bool:
    return bool(run.outcome.lacks) or Outcome.UNKNOWN in run.verdicts.values()
