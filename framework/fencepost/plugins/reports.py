"""What a report is asked for, and what it says of each run to the program that asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from msgspec import Struct


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
