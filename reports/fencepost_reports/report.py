"""Makes a report: reads run folders, writes tables and pages.

The report of one run is made here, without Spark, since there is nothing to correlate. A report
over more runs is a Spark job. Both make the tables and pages of a run by the same functions
(`making.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fencepost import UsageError
from fencepost.reporting import Plugins, ReportRequest, load, system_of
from fencepost_reports import places
from fencepost_reports.making import Report, make_alone, maker
from fencepost_reports.one_run.run import RunSource, sources
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.render import INDEX

NAMED = 3
"""How many runs are named in the error that none could be read."""


def report(request: ReportRequest, plugins: Plugins | None = None) -> str:
    """Writes tables and pages; the place of the first page.

    A run that was not judged by these rules is judged, by the rules of `plugins`, or of all
    installed plugins. One of many that cannot be read is left out, and named. Raises UsageError if
    no run can be read; EnvironmentFailed if Spark is needed and does not start, or nothing can be
    written.
    """
    promises = (_installed(request.runs) if plugins is None else plugins).promises
    if request.following is not None:
        from fencepost_reports.many_runs.follow import follow  # noqa: PLC0415

        follow(
            request, request.following, Report(promises, places.place(request.out), maker(promises))
        )
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
    from fencepost_reports.many_runs.across import by_id, last_report, write_across  # noqa: PLC0415
    from fencepost_reports.many_runs.job import run_job  # noqa: PLC0415
    from fencepost_reports.many_runs.progress import counted  # noqa: PLC0415
    from fencepost_reports.many_runs.session import failures_named, session  # noqa: PLC0415

    once, again = by_id(found)
    with session(request.engine) as spark, failures_named():
        with counted(spark, len(once), request.progressed):
            read = run_job(spark, once, made)
        summaries = [*read, *again]
        for summary in summaries:
            request.notify(summary.outcome)
        if not any(summary.row for summary in summaries):
            raise UsageError(_nothing(summaries))
        write_across(spark, summaries, made, last_report(made.out))


def _nothing(summaries: Sequence[RunSummary]) -> str:
    why = [summary.outcome.refused for summary in summaries]
    more = f"; and {len(why) - NAMED} more" if len(why) > NAMED else ""
    return f"no run can be reported: {'; '.join(why[:NAMED])}{more}"


def _installed(runs: Sequence[str]) -> Plugins:
    with warnings.catch_warnings():
        # The caller has loaded the plugins already, with a warning for each broken one.
        warnings.simplefilter("ignore")
        return load(system=system_of(runs))
