"""Keeps a report current while runs are added below a folder (`fencepost report --follow`).

The rows that were written are the checkpoint. Whenever runs are due (`arrivals.py`), one Spark job
makes their rows, and the tables and pages over all runs are made anew from the rows. A run counts
by its row even if its folder was removed since. So a follower that was interrupted at any time goes
on where it stopped, and what it has written is what one report over the same folders writes.

See docs/decisions/32-following.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from typing import NoReturn, Protocol, final

from pyspark.sql import SparkSession

from fencepost import UsageError
from fencepost.reporting import Following, ReportRequest, ReportUpdate
from fencepost_reports import places
from fencepost_reports.making import RUNS, Report
from fencepost_reports.many_runs.across import by_id, last_report, write_across
from fencepost_reports.many_runs.arrivals import Arrival, Arrivals
from fencepost_reports.many_runs.job import run_job, written
from fencepost_reports.many_runs.session import failures_named, session
from fencepost_reports.one_run.run import RunSource
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.render import INDEX


class Pace(Protocol):
    """The time of a follower, in seconds."""

    def now_s(self) -> float:
        """The time on a clock that nothing sets."""
        ...

    def wait(self, seconds: float) -> None:
        """Returns when so much time has passed; an interrupt ends it at once."""
        ...


@final
class _Clock:
    """The time of this machine."""

    def now_s(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        Event().wait(seconds)


def follow(
    request: ReportRequest, following: Following, made: Report, pace: Pace | None = None
) -> NoReturn:
    """Makes the report, and again whenever runs were added, until it is interrupted.

    The folder is looked at every `following.every_s` seconds. `request.notify` is called with each
    run that was read, `following.updated` with each new state of the report. Raises UsageError if
    there is no such folder; EnvironmentFailed if Spark does not start or ends, or nothing can be
    written.
    """
    if len(request.runs) != 1:
        raise UsageError("a report follows one folder, below which runs are made")
    root = places.place(request.runs[0])
    if not places.is_folder(root):
        raise UsageError(f"{root} is no folder: make it before it is followed")
    pace = _Clock() if pace is None else pace
    with session(request.engine) as spark, failures_named():
        follower = _Follower(spark, root, request, following, made)
        while True:
            follower.look(pace.now_s())
            pace.wait(following.every_s)


@final
class _Follower:
    """What was read of the runs below a folder."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        request: ReportRequest,
        following: Following,
        made: Report,
    ) -> None:
        self._spark = spark
        self._root = root
        self._request = request
        self._following = following
        self._made = made
        self._before = last_report(made.out)
        self._arrivals = Arrivals(following.patience_s)
        self._removed = 0
        self._read: dict[str, RunSummary] = self._rows()
        """place -> what was read of the run there."""
        self._restarted = bool(self._read)
        """Whether an interrupt may have come between the rows and what is made of them."""

    def look(self, now_s: float) -> None:
        """Looks at the folder once; makes the report anew if runs are due."""
        due = self._arrivals.due(self._found(), now_s)
        new = self._take(due) if due else ()
        if not new and not self._restarted:
            return
        self._restarted = False
        once, again = self._by_id()
        if not any(summary.row for summary in once):
            return
        summaries = [*once, *again]
        write_across(self._spark, summaries, self._made, self._before)
        self._following.updated(
            ReportUpdate(
                report=places.below(self._made.out, INDEX),
                runs=sum(bool(summary.row) for summary in summaries),
                read=tuple(new),
                refused={s.outcome.run: s.outcome.refused for s in summaries if s.outcome.refused},
                waiting=self._arrivals.waiting,
                removed=self._removed,
            )
        )

    def _found(self) -> Sequence[Arrival]:
        found = []
        for where, judged in places.runs_in(self._root, self._arrivals.done, self._made.out):
            mark = "" if judged else places.mark(places.recorded(where))
            found.append(Arrival(RunSource(places.name_of(where), where), judged, mark))
        return found

    def _rows(self) -> dict[str, RunSummary]:
        """The runs below the folder that were reported before, by the rows of this code: where
        each was."""
        days = places.folders_in(places.below(self._made.out, RUNS))
        rows = [places.below(run, "run.parquet") for day in days for run in places.folders_in(day)]
        found = written(self._spark, rows, self._made.maker) if rows else ()
        by_place = {one.about.path: one for one in found if one.about is not None}
        return {where: one for where, one in by_place.items() if places.is_below(where, self._root)}

    def _take(self, due: Sequence[RunSource]) -> Sequence[str]:
        """Reads runs; the names of those that are still there."""
        known = {where: RunSource(places.name_of(where), where) for where in self._read}
        known |= {source.where: source for source in due}
        once, again = by_id([known[where] for where in sorted(known)])
        first = {source.where for source in once}
        new = [source for source in due if source.where in first]
        taken = list(zip(new, run_job(self._spark, new, self._made), strict=True))
        others = {refused.outcome.run: refused for refused in again}
        taken += [(source, others[source.run]) for source in due if source.where not in first]
        names = []
        for source, summary in taken:
            if summary.outcome.refused and not places.is_folder(source.where):
                self._removed += 1
                continue
            self._read[source.where] = summary
            self._request.notify(summary.outcome)
            names.append(source.run)
        self._forget_refused()
        return names

    def _forget_refused(self) -> None:
        """Forgets the runs that could not be read and are gone: their removal may have begun before
        they were read, and ended after it."""
        self._read = {
            where: summary
            for where, summary in self._read.items()
            if not summary.outcome.refused or places.is_folder(where)
        }

    def _by_id(self) -> tuple[Sequence[RunSummary], Sequence[RunSummary]]:
        """What was read of all runs, in the order of one report over them; and those that have the
        id of a run before them."""
        places_of = sorted(self._read)
        once, again = by_id([RunSource(places.name_of(where), where) for where in places_of])
        return [self._read[source.where] for source in once], again
