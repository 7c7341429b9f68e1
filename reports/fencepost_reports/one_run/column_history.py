"""A run's history, read from its columns. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import final

import pyarrow as pa
from pyarrow import compute

from fencepost.columns import Columns, EventTable, confirmed
from fencepost.reporting import JudgedRun, Promises, RunFolder
from fencepost_reports.one_run.history import GRAIN_NS, Counted, Placed, Ref, telling_kinds


@final
@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Only events of these kinds are made; others are counted in columns."""

    columns: Columns
    kinds: frozenset[str]

    def telling(self, refs: Collection[Ref] = ()) -> Iterator[Placed]:
        return self.columns.events(self.kinds, refs)

    def others(self) -> Iterator[Counted]:
        for part in self.columns.other_than(self.kinds):
            yield from _counted(part)


def recorded(folder: RunFolder, judged: JudgedRun, promises: Promises) -> ColumnHistory | None:
    """The history in the columns of a run, if they are whole."""
    columns = confirmed(folder.path, judged.columns, promises.kinds)
    if columns is None:
        return None
    table = EventTable.of(promises.kinds)
    telling = telling_kinds(table.kinds.values())
    return ColumnHistory(
        columns, frozenset(n for n, kind in table.kinds.items() if kind in telling)
    )


def _counted(part: pa.Table) -> Iterator[Counted]:
    moment = compute.divide(part["at_ns"], pa.scalar(GRAIN_NS, pa.int64()))
    grouped = (
        part.append_column("moment", moment)
        .group_by(["process", "moment"], use_threads=False)
        .aggregate([("position", "min"), ("position", "count"), ("at_ns", "min"), ("at_ns", "max")])
    )
    names = ("process", "moment", "position_count", "position_min", "at_ns_min", "at_ns_max")
    for values in zip(*(grouped[name].to_pylist() for name in names), strict=True):
        yield Counted(*values)
