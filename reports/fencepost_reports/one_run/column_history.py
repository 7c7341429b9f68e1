"""A run's history, read from its columns. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
from msgspec import Struct
from pyarrow import compute

from fencepost import kind_name
from fencepost.columns import CHANGES, EVENTS, OPERATIONS, Columns, EventTable, confirmed
from fencepost.reporting import ChangeRow, JudgedRun, OperationRow, Promises, RunFolder
from fencepost_reports.one_run.column_service import tell_service
from fencepost_reports.one_run.history import (
    CLIENTS,
    ENDED,
    Facts,
    Placed,
    Ref,
    Seen,
    Share,
    operation_kinds,
)
from fencepost_reports.one_run.tables import BINS, DensityRow, Sort

_ENVELOPE = ("process", "position", "at_ns", "kind")


@final
@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Events are counted in columns, and few are made; `operations` are the kinds that record
    operations."""

    columns: Columns
    operations: frozenset[str]

    def shares(self, most: int) -> int:
        return max(1, -(-len(self.columns) // most))

    def events(
        self, kinds: Collection[type[Struct]], refs: Collection[Ref] = ()
    ) -> Iterator[Placed]:
        return self.columns.events({kind_name(kind) for kind in kinds}, refs)

    def at(self, positions: Collection[int]) -> Iterator[Placed]:
        return self.columns.at(positions)

    def tell(self, facts: Facts, share: Share) -> None:
        part = (share.number, share.of)
        for group in self.columns.rows(EVENTS, _ENVELOPE, part):
            self._count(facts, group)
        for group in self.columns.rows(OPERATIONS, OperationRow.__struct_fields__):
            mine = _of_share(group, "process", share)
            _tell_operations(facts, mine)
            tell_service(facts.service, mine)
        for group in self.columns.rows(CHANGES, ChangeRow.__struct_fields__):
            mine = _of_share(group, "scope", share)
            self._count_refusals(facts, mine)
            for values in _values(mine):
                facts.change(ChangeRow(*values))

    def _count(self, facts: Facts, group: pa.Table) -> None:
        seen = group.group_by("process", use_threads=False).aggregate(
            [("position", "min"), ("at_ns", "min"), ("at_ns", "max"), ("position", "count")]
        )
        names = ["process", "position_min", "at_ns_min", "at_ns_max", "position_count"]
        for values in _values(seen.select(names)):
            facts.see(Seen(*values))
        _count(facts, "other", self._others(group))

    def _count_refusals(self, facts: Facts, changes: pa.Table) -> None:
        """They are counted among the other events, too."""
        refusals = self._others(changes.filter(changes["refusal"]))
        _count(facts, "refused", refusals)
        _count(facts, "other", refusals, -1)

    def _others(self, group: pa.Table) -> pa.Table:
        """The events that are neither clients' nor operations."""
        operations = compute.is_in(group["kind"], pa.array(sorted(self.operations), pa.string()))
        clients = compute.starts_with(group["process"], CLIENTS)
        return group.filter(compute.invert(compute.or_(operations, clients)))


def recorded(folder: RunFolder, judged: JudgedRun, promises: Promises) -> ColumnHistory | None:
    """The history in the columns of a run, if they are whole."""
    columns = confirmed(folder.path, judged.columns, promises.kinds)
    if columns is None:
        return None
    kinds = EventTable.of(promises.kinds).kinds.values()
    return ColumnHistory(columns, frozenset(operation_kinds(kinds)))


def _tell_operations(facts: Facts, rows: pa.Table) -> None:
    ended = rows.filter(compute.not_equal(rows["outcome"], ""))
    # An event that ends several operations is counted by the first of them.
    firsts = _firsts(ended["position"])
    once = ended.filter(firsts).select(["process", "outcome", "ended_ns"])
    once = once.rename_columns(["process", "outcome", "at_ns"])
    for outcome, sort in ENDED.items():
        some = once.filter(compute.equal(once["outcome"], outcome))
        _count(facts, sort, some)
    failed = pa.array([ENDED["failed"], ENDED["unknown"]], pa.string())
    for row in ended.filter(compute.is_in(ended["outcome"], failed)).to_pylist():
        facts.failed(OperationRow(**row))


def _firsts(positions: pa.ChunkedArray) -> pa.Array:
    """Which rows have another position than the row before."""
    whole = positions.combine_chunks()
    if len(whole) == 0:
        return pa.array([], pa.bool_())
    changed = compute.not_equal(whole.slice(1), whole.slice(0, len(whole) - 1))
    return pa.concat_arrays([pa.array([True]), changed])


def _of_share(rows: pa.Table, key: str, share: Share) -> pa.Table:
    """The rows whose key is in the share."""
    if share.of == 1:
        return rows
    mine = [name for name in rows[key].unique().to_pylist() if share.has(name)]
    return rows.filter(compute.is_in(rows[key], pa.array(mine, pa.string())))


def _count(facts: Facts, sort: Sort, rows: pa.Table, each: int = 1) -> None:
    """Counts each row as so many events of its process, in its part of the run's time."""
    span = facts.span
    passed = compute.multiply(compute.subtract(rows["at_ns"], span.began_ns), BINS)
    place = compute.divide(passed, span.length_ns)
    place = compute.min_element_wise(compute.max_element_wise(place, 0), BINS - 1)
    placed = pa.table({"process": rows["process"], "place": place})
    grouped = placed.group_by(["process", "place"], use_threads=False).aggregate(
        [([], "count_all")]
    )
    for process, bin_, events in _values(grouped.select(["process", "place", "count_all"])):
        facts.count(DensityRow(process=process, sort=sort, bin=bin_, count=events * each))


def _values(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)
