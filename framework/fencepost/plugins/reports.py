"""What a report is asked for, and what it says of each run to the program that asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from msgspec import Struct


class ClauseCount(Struct, frozen=True, kw_only=True):
    """How often a run, or several, exercised a clause, and how often faults excused it; in how many
    runs it is undecided; and `why` it was excused or undecided: sentences, the most frequent first.
    """

    exercised: int = 0
    excused: int = 0
    undecided: int = 0
    why: tuple[str, ...] = ()

    @property
    def judged_seldom(self) -> bool:
        """Whether it was excused more often than exercised."""
        return self.excused > self.exercised


class ReportedRun(Struct, frozen=True, kw_only=True):
    """What became of one run in a report.

    `violated` are its violated clauses; `broken`: one of their violations is not known; `known` are
    those of which all are. `undecided` are clauses that are unknown for a reason of their own.
    `lacks` says why its history is not complete, `stalled` how long its machine stood still,
    `in_part` for how long the run was judged. `refused` says why the run is not in the report. Each
    is empty where there is nothing to say.
    """

    run: str
    violated: tuple[str, ...] = ()
    broken: bool = False
    known: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    lacks: str = ""
    stalled: str = ""
    in_part: str = ""
    refused: str = ""
    counts: Mapping[str, ClauseCount] = {}
    """How often each clause that applies was exercised and excused."""


WHY_KEPT = 3
"""How many reasons of a clause are kept."""


def counted(runs: Iterable[ReportedRun]) -> Mapping[str, ClauseCount]:
    """The counts of all runs together, in the order of the clauses' ids."""
    of_clauses: dict[str, list[ClauseCount]] = {}
    for run in runs:
        for clause, count in run.counts.items():
            of_clauses.setdefault(clause, []).append(count)
    return {clause: _together(counts) for clause, counts in sorted(of_clauses.items())}


def _together(counts: Sequence[ClauseCount]) -> ClauseCount:
    reasons = Counter(why for one in counts for why in one.why)
    return ClauseCount(
        exercised=sum(one.exercised for one in counts),
        excused=sum(one.excused for one in counts),
        undecided=sum(one.undecided for one in counts),
        why=tuple(why for why, _ in reasons.most_common(WHY_KEPT)),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What computes a report over several runs.

    `master` and `remote` are URLs of a Spark cluster and of a Spark Connect server; with neither,
    it is the active session, or else this machine. `conf` are settings of Spark. `py_files` are
    archives of code for the workers.
    """

    master: str = ""
    remote: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    py_files: tuple[str, ...] = ()

    @property
    def chosen(self) -> bool:
        """Whether a certain cluster or server was asked for."""
        return bool(self.master or self.remote)


ANY_ENGINE = Engine()
"""The active session, or else this machine."""


class ReportUpdate(Struct, frozen=True, kw_only=True):
    """A report that follows a folder was made anew: its page, over how many runs it is, and the
    names of those that were read since the last time.

    `refused` says by run why it is not in the report. `waiting` is the number of runs that go on,
    `removed` of those whose folders were removed before they were read, since the start.
    """

    report: str
    runs: int
    read: tuple[str, ...]
    refused: Mapping[str, str]
    waiting: int
    removed: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """That a report follows a folder: it is made anew whenever runs were added below it.

    The folder is looked at every `every_s` seconds. A run that is not judged is waited for; one
    into whose folder nothing is written for `patience_s` seconds is reported as it is. `updated` is
    called after each time that the report was made.
    """

    every_s: float
    patience_s: float
    updated: Callable[[ReportUpdate], None]


def _say_nothing(run: ReportedRun) -> None:
    pass


def _count_nothing(read: int, of: int) -> None:
    pass


@final
@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report over `runs`, which are paths or URIs of run folders, in the folder or URI `out`.

    `notify` is called with each run before the first page is written, and `progressed` with how
    many of how many runs were read so far, from any thread. With `following`, `runs` is one folder
    below which runs are made, and the report goes on until it is interrupted.
    """

    runs: tuple[str, ...]
    out: str
    engine: Engine = ANY_ENGINE
    notify: Callable[[ReportedRun], None] = _say_nothing
    following: Following | None = None
    progressed: Callable[[int, int], None] = _count_nothing

    @classmethod
    def of(cls, folders: Sequence[Path], out: Path) -> ReportRequest:
        """A report over folders of this machine."""
        return cls(tuple(str(folder) for folder in folders), str(out))
