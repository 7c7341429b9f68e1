"""Makes a report: reads run folders, writes tables and pages.

The page of one run is made here, without Spark, since there is nothing to correlate. A report over
more runs is a Spark job. Both use the same function of one run, `one_run.run.run_tables`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import to_builtins

from fencepost import EnvironmentFailed, UsageError
from fencepost.reporting import Plugins, Promises, load, mode_below
from fencepost_reports.one_run.run import RunSource, check, run_tables, sources
from fencepost_reports.one_run.tables import RunTables
from fencepost_reports.pages.render import Pages

TABLES = "tables"


def report(run_folders: Sequence[Path], out: Path, plugins: Plugins | None = None) -> Path:
    """Writes tables and pages below `out`; the path of the first page. Pages of runs that an
    earlier report wrote there, and this one does not, are removed.

    A run that was not judged by these rules is judged, by the rules of `plugins`, or of all
    installed plugins. Raises UsageError for no run at all, and as `check` does; EnvironmentFailed
    if Spark is needed and does not start, or nothing can be written.
    """
    promises = (_installed() if plugins is None else plugins).promises
    found = sources(run_folders)
    if not found:
        raise UsageError("there is no run to report on")
    for source in found:
        check(source, promises)
    try:
        out.mkdir(mode_below(out.parent), parents=True, exist_ok=True)
        (out / TABLES).mkdir(exist_ok=True)
    except OSError as failed:
        raise EnvironmentFailed(f"the report's folder {out}: {failed.strerror}") from failed
    if len(found) == 1:
        return one(found[0], promises, out)
    return many(found, promises, out)


def one(source: RunSource, promises: Promises, out: Path) -> Path:
    """The report of one run."""
    tables = run_tables(source, promises)
    _write_table(tables, out / TABLES / "runs.parquet")
    pages = Pages(out, alone=True)
    page = pages.add(tables)
    pages.remove_stale()
    return page


def _write_table(tables: RunTables, path: Path) -> None:
    """Writes the tables of one run, if the packages of the extra `spark` are installed."""
    if find_spec("pyarrow") is None:
        return
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    from fencepost.columns import schema_of  # noqa: PLC0415

    row = pa.Table.from_pylist([to_builtins(tables)], schema_of(RunTables))
    parquet.write_table(row, path)


def many(found: Sequence[RunSource], promises: Promises, out: Path) -> Path:
    """The report of several runs."""
    # Spark takes seconds to import, and the report of one run does not need it.
    from fencepost_reports.many_runs.job import collected, run_job  # noqa: PLC0415
    from fencepost_reports.many_runs.session import session  # noqa: PLC0415

    with session() as started:
        made = run_job(started, found, promises, str(out / TABLES))
        pages = Pages(out, alone=False)
        for run in collected(made.runs):
            pages.add(run)
        in_order = made.correlation.orderBy("what", "fault", "type")
        page = pages.index([row.asDict() for row in in_order.collect()])
        pages.remove_stale()
        return page


def _installed() -> Plugins:
    with warnings.catch_warnings():
        # The caller has loaded the plugins already, with a warning for each broken one.
        warnings.simplefilter("ignore")
        return load()
