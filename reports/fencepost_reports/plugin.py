"""The entry point: the report as a plugin. Spark is imported only when a report needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fencepost import EnvironmentFailed, hookimpl
from fencepost.reporting import check_extra
from fencepost_reports.many_runs.java import check_java


@hookimpl
def fencepost_report_lacks(runs: int) -> str:
    """A report over more than one run is a Spark job, which needs PySpark and Java 17 or newer."""
    if runs > 1:
        try:
            check_extra("spark", "a report over more than one run")
            check_java()
        except EnvironmentFailed as lacking:
            return str(lacking)
    return ""


@hookimpl
def fencepost_report(run_folders: Sequence[Path], out: Path) -> Path:
    """Makes Parquet tables of the runs in `out`/tables, and the page `out`/report.html.

    Raises UsageError for a folder without a run. Over more than one run it is a Spark job, which
    raises EnvironmentFailed without Java 17 or newer.
    """
    # What a report needs costs seconds to import; loading plugins must not.
    from fencepost_reports.report import report  # noqa: PLC0415

    return report(run_folders, out)
