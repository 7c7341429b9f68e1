"""Writes what a report says over several runs: correlations, distributions, the index, the page of
each clause.

All of it follows from the summaries and the rows of the runs, so it does not matter when each run
was read, nor whether its folder is still there.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from fencepost_reports import places
from fencepost_reports.making import Report, refused
from fencepost_reports.many_runs.certainty import with_certainty, with_significance
from fencepost_reports.many_runs.clauses import correlated
from fencepost_reports.many_runs.correlation import correlation
from fencepost_reports.many_runs.distributions import distributions, times
from fencepost_reports.many_runs.job import windows
from fencepost_reports.one_run.run import RunSource
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.overview import Last, last
from fencepost_reports.pages.render import INDEX, report_pages
from fencepost_reports.pages.statistics import Statistics

CORRELATION = "tables/correlation.parquet"
CLAUSES = "tables/clause_correlation.parquet"
DISTRIBUTIONS = "tables/distributions.parquet"
REFUSED = "tables/refused.parquet"
LAST = "last-report.json"


def by_id(found: Sequence[RunSource]) -> tuple[Sequence[RunSource], Sequence[RunSummary]]:
    """The runs, and those refused since a run before them has the same id."""
    first: dict[str, RunSource] = {}
    again = [run for run in found if first.setdefault(run.run, run) is not run]
    return tuple(first.values()), [
        refused(run, f"{run.where} has the id of {first[run.run].where}: rename one of the folders")
        for run in again
    ]


def last_report(out: str) -> Last | None:
    """What the last report found; None if there was none, or it cannot be read."""
    try:
        found = places.read(places.below(out, LAST))
        return None if found is None else msgspec.json.decode(found, type=Last)
    except msgspec.DecodeError:
        return None


def write_across(
    spark: SparkSession, summaries: Sequence[RunSummary], made: Report, before: Last | None
) -> None:
    """Writes the tables and pages over these runs, of which at least one was read; `before` is what
    the last report found. Raises EnvironmentFailed if they cannot be written."""
    out = made.out
    rows = [places.below(out, summary.row) for summary in summaries if summary.row]
    found = correlation(windows(spark, rows)).orderBy("what", "fault", "type").toArrow()
    across = with_certainty(found)
    _write_table(across, places.below(out, CORRELATION))
    violated = {clause for summary in summaries for clause in summary.outcome.violated}
    of_clauses = with_significance(correlated(spark, rows, violated))
    _write_table(of_clauses, places.below(out, CLAUSES))
    taken = distributions(times(spark, rows)).toArrow()
    _write_table(taken, places.below(out, DISTRIBUTIONS))
    _write_refused(summaries, places.below(out, REFUSED))
    statistics = Statistics(across.to_pylist(), of_clauses.to_pylist(), taken.to_pylist())
    pages = report_pages(summaries, statistics, made.promises, before)
    for place, page in pages.clauses.items():
        places.write(places.below(out, place), page.encode())
    places.write(places.below(out, INDEX), pages.index.encode())
    now = last(summary for summary in summaries if summary.row)
    places.write(places.below(out, LAST), msgspec.json.encode(now))


def _write_refused(summaries: Sequence[RunSummary], where: str) -> None:
    rows = [
        {"run": s.outcome.run, "why": s.outcome.refused} for s in summaries if s.outcome.refused
    ]
    columns = pa.schema([("run", pa.string()), ("why", pa.string())])
    _write_table(pa.Table.from_pylist(rows, columns), where)


def _write_table(table: pa.Table, where: str) -> None:
    content = BytesIO()
    parquet.write_table(table, content)
    places.write(where, content.getvalue())
