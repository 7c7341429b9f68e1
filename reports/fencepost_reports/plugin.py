"""The entry point: the report as a plugin. Spark is imported only when a report needs it."""

from __future__ import annotations

from fencepost import EnvironmentFailed, hookimpl
from fencepost.reporting import Engine, ReportRequest, check_extra
from fencepost_reports.many_runs.java import check_java


@hookimpl
def fencepost_report_lacks(runs: int, engine: Engine) -> str:
    """A report over more than one run is a Spark job, which needs PySpark, and Java 17 or newer
    unless a server of Spark Connect has it."""
    if runs == 1 and not engine.chosen:
        return ""
    try:
        check_extra("connect" if engine.remote else "spark", "a report over more than one run")
        if not engine.remote:
            check_java()
    except EnvironmentFailed as lacking:
        return str(lacking)
    return ""


@hookimpl
def fencepost_report(request: ReportRequest) -> str:
    """Makes Parquet tables of the runs in `tables` below `request.out`, and the page `report.html`.

    Raises UsageError where no run can be read. Over more than one run it is a Spark job, which
    raises EnvironmentFailed without Java 17 or newer.
    """
    # What a report needs costs seconds to import; loading plugins must not.
    from fencepost_reports.report import report  # noqa: PLC0415

    return report(request)
