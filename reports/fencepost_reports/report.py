"""Makes a report: reads run folders, writes tables and pages.

The report of one run is made here, without Spark, since there is nothing to correlate. A report
over more runs is a Spark job. Both make the tables and pages of a run by the same functions
(`making.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import msgspec

from fencepost import EnvironmentFailed, UsageError
from fencepost.reporting import Plugins, ReportRequest, load
from fencepost_reports import places
from fencepost_reports.making import Report, make_alone, maker, refused
from fencepost_reports.one_run.run import RunSource, sources
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.overview import Last, last
from fencepost_reports.pages.render import INDEX, report_pages

CORRELATION = "tables/correlation.parquet"
REFUSED = "tables/refused.parquet"
LAST = "last-report.json"
NAMED = 3
"""How many runs are named in the error that none could be read."""


def report(request: ReportRequest, plugins: Plugins | None = None) -> str:
    """Writes tables and pages; the place of the first page.

    A run that was not judged by these rules is judged, by the rules of `plugins`, or of all
    installed plugins. One of many that cannot be read is left out, and named. Raises UsageError if
    no run can be read; EnvironmentFailed if Spark is needed and does not start, or nothing can be
    written.
    """
    promises = (_installed() if plugins is None else plugins).promises
    found = sources(request.runs)
    if not found:
        raise UsageError("there is no run to report on")
    made = Report(promises, places.place(request.out), maker(promises))
    if len(found) == 1 and not request.engine.chosen:
        request.notify(make_alone(made, found[0]).outcome)
    else:
        _many(found, made, request)
    return places.below(made.out, INDEX)


def _many(found: Sequence[RunSource], made: Report, request: ReportRequest) -> None:
    """The report of several runs."""
    # Spark takes seconds to import, and the report of one run does not need it.
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from fencepost_reports.many_runs.correlation import correlation  # noqa: PLC0415
    from fencepost_reports.many_runs.job import run_job, windows  # noqa: PLC0415
    from fencepost_reports.many_runs.session import cause, session  # noqa: PLC0415

    once, again = _by_id(found)
    with session(request.engine) as spark:
        try:
            summaries = [*run_job(spark, once, made), *again]
            for summary in summaries:
                request.notify(summary.outcome)
            rows = [summary.row for summary in summaries if summary.row]
            if not rows:
                raise UsageError(_nothing(summaries))
            cut = windows(spark, [places.below(made.out, row) for row in rows])
            across = correlation(cut).orderBy("what", "fault", "type").toArrow()
        except (PySparkException, Py4JError) as failed:
            # An error of py4j cannot be shown once Java has ended, so it is no cause.
            raise EnvironmentFailed(f"Spark did not end the report: {cause(failed)}") from None
    _write_table(across, places.below(made.out, CORRELATION))
    _write_refused(summaries, places.below(made.out, REFUSED))
    last_report = places.below(made.out, LAST)
    before = _last(places.read(last_report))
    pages = report_pages(summaries, across.to_pylist(), made.promises, before)
    for place, page in pages.clauses.items():
        places.write(places.below(made.out, place), page.encode())
    places.write(places.below(made.out, INDEX), pages.index.encode())
    places.write(last_report, msgspec.json.encode(last(s for s in summaries if s.row)))


def _last(found: bytes | None) -> Last | None:
    """What the last report found; None if there was none, or it cannot be read."""
    try:
        return None if found is None else msgspec.json.decode(found, type=Last)
    except msgspec.DecodeError:
        return None


def _by_id(found: Sequence[RunSource]) -> tuple[Sequence[RunSource], Sequence[RunSummary]]:
    """The runs, and those refused since a run before them has the same id."""
    first: dict[str, RunSource] = {}
    again = [run for run in found if first.setdefault(run.run, run) is not run]
    return tuple(first.values()), [
        refused(run, f"{run.where} has the id of {first[run.run].where}: rename one of the folders")
        for run in again
    ]


def _nothing(summaries: Sequence[RunSummary]) -> str:
    why = [summary.outcome.refused for summary in summaries]
    more = f"; and {len(why) - NAMED} more" if len(why) > NAMED else ""
    return f"no run can be reported: {'; '.join(why[:NAMED])}{more}"


def _write_refused(summaries: Sequence[RunSummary], where: str) -> None:
    import pyarrow as pa  # noqa: PLC0415

    rows = [
        {"run": s.outcome.run, "why": s.outcome.refused} for s in summaries if s.outcome.refused
    ]
    columns = pa.schema([("run", pa.string()), ("why", pa.string())])
    _write_table(pa.Table.from_pylist(rows, columns), where)


def _write_table(table: Any, where: str) -> None:
    from pyarrow import parquet  # noqa: PLC0415

    content = BytesIO()
    parquet.write_table(table, content)
    places.write(where, content.getvalue())


def _installed() -> Plugins:
    with warnings.catch_warnings():
        # The caller has loaded the plugins already, with a warning for each broken one.
        warnings.simplefilter("ignore")
        return load()
