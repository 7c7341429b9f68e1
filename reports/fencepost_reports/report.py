"""A report from beginning to end: the runs' folders in, tables and pages out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from fencepost import EnvironmentFailed, UsageError
from fencepost.reporting import Plugins, load
from fencepost_reports import reading
from fencepost_reports.job import correlate, session
from fencepost_reports.judging import Promises
from fencepost_reports.render import render
from fencepost_reports.schema import EventTable


def report(run_folders: Sequence[Path], out: Path, plugins: Plugins | None = None) -> Path:
    """Writes tables, page and still timelines below `out`; the page's path.

    Runs are judged by the rules of `plugins`, or of all that are installed. Raises UsageError for
    no run at all, and as `session` and `reading.described` do.
    """
    known = _installed() if plugins is None else plugins
    planes = {name: system.plane for name, system in known.systems.items()}
    described = [reading.described(source, planes) for source in reading.sources(run_folders)]
    if not described:
        raise UsageError("there is no run to report on")
    promises = Promises(known.rules, known.clauses, known.event_kinds)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise EnvironmentFailed(f"the report's folder {out}: {failed.strerror}") from failed
    with session() as started:
        tables = correlate(started, described, promises, out / "tables")
        return render(tables, EventTable.of(promises.kinds), out)


def _installed() -> Plugins:
    with warnings.catch_warnings():
        # Whoever asks for a report has loaded the plugins, and heard which of them are broken.
        warnings.simplefilter("ignore")
        return load()
