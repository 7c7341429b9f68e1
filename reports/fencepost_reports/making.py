"""Makes what a report holds of one run: its tables, as a row, its pages, and its summary.

This is what a task of a report does. It reads one run folder and writes below the report's place
only: files whose names and contents follow from the run alone, so a task may be repeated. The row
is written last and carries the summary and a stamp of what it was made of. While the stamp is that
of the run and of the code, neither is the run read nor anything written again.

See docs/decisions/31-tasks-write.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BytesIO
from operator import attrgetter
from typing import Any, final

import msgspec
from msgspec import Struct, structs, to_builtins

from fencepost import FencepostError, RunEnd, UsageError
from fencepost.reporting import ClauseCount, Outcome, Promises, ReportedRun, digest_of_package
from fencepost_reports import places
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import RunSummary, RunTables, VerdictRow
from fencepost_reports.pages.render import INDEX, run_pages

RUNS = "tables/runs"
_STAMP = b"fencepost"


def maker(promises: Promises) -> str:
    """A digest of the code that makes a report; empty if it has no source files."""
    rules = promises.fingerprint()
    own = digest_of_package("fencepost_reports")
    return rules and own and f"{rules} {own}"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """A report that is made: its promises, where it is written, and the digest of its code."""

    promises: Promises
    out: str
    maker: str


class Stamp(Struct, frozen=True):
    """What a row was made of and by which code, and the summary that goes with it."""

    made_of: str
    maker: str
    summary: RunSummary


def attempt(report: Report, source: RunSource) -> RunSummary:
    """As `make`, for a run of many; a run that cannot be read is refused in one sentence."""
    try:
        if report.maker and maker(report.promises) != report.maker:
            why = "a worker has other code than this process: add --py-files"
            return refused(source, why)
        return make(report, source)
    except FencepostError as failed:
        return refused(source, str(failed))
    except OSError as failed:
        return refused(source, f"{source.where} cannot be reported: {failed}")


def refused(source: RunSource, why: str) -> RunSummary:
    """The summary of a run that is not in a report."""
    return RunSummary(outcome=ReportedRun(run=source.run, refused=why))


def make(report: Report, source: RunSource) -> RunSummary:
    """The row and the pages of a run of many, unless they are there already.

    Raises UsageError for what is no run, or of an unknown system, and for a run that is removed
    while it is read; EnvironmentFailed if something does not answer, or cannot be written.
    """
    target = _Target.of(report, source)
    known = stamp_of(places.below(report.out, target.row))
    if report.maker and known is not None and known.made_of == target.made_of:
        return known.summary
    return _write(report, target, run_tables(source, report.promises))


@final
@dataclass(frozen=True, slots=True)
class _Target:
    """Where the row of a run goes, and what it is made of: the files of the run, and the code."""

    source: RunSource
    row: str
    recorded: Mapping[str, tuple[int, int]]
    made_of: str

    @classmethod
    def of(cls, report: Report, source: RunSource) -> _Target:
        row = _row(source.run, places.info_of(source.where).started_at)
        recorded = places.recorded(source.where)
        stamped = f"{places.mark(recorded)} {report.maker}".encode()
        return cls(source, row, recorded, hashlib.sha256(stamped).hexdigest())


def _write(report: Report, target: _Target, tables: RunTables) -> RunSummary:
    where = target.source.where
    if not target.recorded.keys() <= places.recorded(where).keys():
        # No file of a run ever goes, unless all of them do.
        raise UsageError(f"{where} was removed while it was read")
    name = places.file_name(target.source.run)
    made = summary(tables, target.row, f"runs/{name}.html")
    pages = run_pages(tables, index=f"../{INDEX}")
    places.write(places.below(report.out, made.page), pages.page.encode())
    places.write(places.below(report.out, f"timelines/{name}.html"), pages.still.encode())
    stamp = Stamp(target.made_of, report.maker, made)
    _write_row(tables, places.below(report.out, target.row), stamp)
    return made


def make_alone(report: Report, source: RunSource) -> RunSummary:
    """The row and the pages of the only run of a report; raises as `make`."""
    tables = run_tables(source, report.promises)
    made = summary(tables, _row(source.run, tables.about.started_at), INDEX)
    pages = run_pages(tables)
    if find_spec("pyarrow") is not None:  # a plain installation writes no tables
        _write_row(tables, places.below(report.out, made.row), Stamp("", "", made))
    places.write(places.below(report.out, "timeline-1.html"), pages.still.encode())
    places.write(places.below(report.out, INDEX), pages.page.encode())
    return made


def _row(run: str, started_at: str) -> str:
    """Where the row of a run is, below a report: in partitions by date (UTC) and run."""
    day = datetime.fromisoformat(started_at).astimezone(UTC).date()
    return f"{RUNS}/date={day}/run={places.file_name(run)}/run.parquet"


def summary(tables: RunTables, row: str, page: str) -> RunSummary:
    """The summary of a run's tables, which are at `row`, with its page at `page`."""
    about = tables.about
    violated = [one for one in tables.verdicts if one.verdict == Outcome.VIOLATED]
    unknown = [one for one in tables.verdicts if one.verdict == Outcome.UNKNOWN]
    lacks = "" if about.complete else RunEnd(False, about.ended_ns, about.damage).lacks
    outcome = ReportedRun(
        run=about.run,
        violated=tuple(one.clause for one in violated),
        broken=any(not one.known for one in violated),
        known=tuple(one.clause for one in violated if one.known),
        undecided=tuple(one.clause for one in unknown if not one.follows),
        lacks=lacks if about.events else "it has no events",
        stalled=about.stalled,
        in_part=about.in_part,
        counts={one.clause: _count(one) for one in tables.verdicts if one.applies},
    )
    return RunSummary(
        outcome=outcome,
        row=row,
        page=page,
        about=structs.replace(about, slots=(), damage=()),
        faults=len(tables.faults),
        verdicts={one.clause: one.verdict for one in tables.verdicts if one.applies},
    )


def _count(row: VerdictRow) -> ClauseCount:
    undecided = row.verdict == Outcome.UNKNOWN
    return ClauseCount(
        exercised=row.exercised,
        excused=row.excused,
        undecided=int(undecided),
        why=(row.reason,) if row.reason and (row.excused or undecided) else (),
    )


def _write_row(tables: RunTables, where: str, stamp: Stamp) -> None:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    from fencepost.columns import schema_of  # noqa: PLC0415

    schema = schema_of(RunTables)
    arrays = [_cell(getattr(tables, field.name), field.type) for field in schema]
    row = pa.Table.from_arrays(
        arrays, schema=schema.with_metadata({_STAMP: msgspec.json.encode(stamp)})
    )
    content = BytesIO()
    parquet.write_table(row, content, compression="zstd")
    places.write(where, content.getvalue())


def _cell(value: Any, column: Any) -> Any:
    """One cell, as a column. A table in it is built column by column, since it may be long."""
    import pyarrow as pa  # noqa: PLC0415

    if not pa.types.is_list(column):
        return pa.array([to_builtins(value)], column)
    fields = list(column.value_type)
    columns = []
    for field in fields:
        values = list(map(attrgetter(field.name), value))
        plain = to_builtins(values) if pa.types.is_nested(field.type) else values
        columns.append(pa.array(plain, field.type))
    rows = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), rows, type=column)


def read_row(where: str, *tables: str) -> Mapping[str, Any]:
    """Tables of the row at a place, by name; raises OSError if it is not there any more."""
    from pyarrow import parquet  # noqa: PLC0415

    with places.reached(where) as (files, path), files.open_input_file(path) as row:
        (found,) = parquet.read_table(row, columns=list(tables), use_threads=False).to_pylist()
        return dict(found)


def stamp_of(where: str) -> Stamp | None:
    """The stamp of a row that is there; None if there is none, or it is damaged."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with places.reached(where) as (files, path), files.open_input_file(path) as row:
            try:
                found = parquet.read_metadata(row).metadata or {}
                return msgspec.json.decode(found[_STAMP], type=Stamp)
            except (pa.ArrowInvalid, KeyError, msgspec.DecodeError):
                return None
    except FileNotFoundError:
        return None
