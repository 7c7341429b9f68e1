"""A run's history, read from its columns. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import final

import pyarrow as pa
from msgspec import Struct
from pyarrow import compute

from fencepost import kind_name
from fencepost.columns import CHANGES, EVENTS, OPERATIONS, Columns, EventTable, confirmed
from fencepost.reporting import ChangeRow, JudgedRun, OperationRow, Promises, RunFolder
from fencepost_reports.one_run.column_changes import telling
from fencepost_reports.one_run.column_service import tell_service
from fencepost_reports.one_run.history import (
    CLIENTS,
    ENDED,
    Facts,
    Placed,
    Ref,
    Seen,
    Share,
    Span,
    operation_kinds,
)
from fencepost_reports.one_run.tables import BINS, DensityRow
from fencepost_reports.one_run.words import among, encoded, listed

_EVENT = ("process", "position", "at_ns", "kind")
_EVENT_WORDS = ("process", "kind")
_OPERATION_WORDS = ("process", "what", "subject", "outcome", "error")
_CHANGE_WORDS = ("process", "kind", "scope", "change", "holder", "node", "state")


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
        for rows in self.columns.rows(EVENTS, _EVENT, _EVENT_WORDS, part):
            self._count(facts, rows)
        for rows in self.columns.rows(OPERATIONS, OperationRow.__struct_fields__, _OPERATION_WORDS):
            mine = _of_share(rows, "process", share)
            _tell_operations(facts, mine)
            tell_service(facts.service, mine)
        for rows in self.columns.rows(CHANGES, ChangeRow.__struct_fields__, _CHANGE_WORDS):
            mine = _of_share(rows, "scope", share)
            self._count_refusals(facts, mine)
            kept = mine.filter(telling(mine, facts.ends))
            for values in zip(*map(listed, kept.columns), strict=True):
                facts.change(ChangeRow(*values))

    def _count(self, facts: Facts, rows: pa.Table) -> None:
        others = self._others(rows).cast(pa.int64())
        for process, other, place, cell in _cells(facts.span, rows, others, 2):
            facts.see(Seen(process, *cell))
            if other:
                facts.count(DensityRow(process=process, sort="other", bin=place, count=cell[-1]))

    def _count_refusals(self, facts: Facts, changes: pa.Table) -> None:
        """They are counted among the other events, too."""
        refusals = changes.filter(compute.and_(changes["refusal"], self._others(changes)))
        for process, _, place, (*_, count) in _cells(facts.span, refusals):
            facts.count(DensityRow(process=process, sort="refused", bin=place, count=count))
            facts.count(DensityRow(process=process, sort="other", bin=place, count=-count))

    def _others(self, rows: pa.Table) -> pa.Array:
        """Which events are neither clients' nor operations."""
        clients = [
            one
            for one in encoded(rows["process"]).dictionary.to_pylist()
            if one.startswith(CLIENTS)
        ]
        return compute.invert(
            compute.or_(among(rows["kind"], self.operations), among(rows["process"], clients))
        )


def recorded(folder: RunFolder, judged: JudgedRun, promises: Promises) -> ColumnHistory | None:
    """The history in the columns of a run, if they are whole."""
    columns = confirmed(folder.path, judged.columns, promises.kinds)
    if columns is None:
        return None
    kinds = EventTable.of(promises.kinds).kinds.values()
    return ColumnHistory(columns, frozenset(operation_kinds(kinds)))


def _tell_operations(facts: Facts, rows: pa.Table) -> None:
    ended = rows.filter(compute.invert(among(rows["outcome"], [""])))
    # An event that ends several operations is counted by the first of them.
    once = ended.filter(_firsts(ended["position"]))
    once = once.rename_columns({"ended_ns": "at_ns"})
    outcomes = encoded(once["outcome"])
    words = outcomes.dictionary.to_pylist()
    for process, outcome, place, (*_, count) in _cells(
        facts.span, once, outcomes.indices, len(words)
    ):
        sort = ENDED.get(words[outcome])
        if sort is not None:
            facts.count(DensityRow(process=process, sort=sort, bin=place, count=count))
    bad = ended.filter(among(ended["outcome"], [ENDED["failed"], ENDED["unknown"]]))
    for values in zip(*map(listed, bad.columns), strict=True):
        facts.failed(OperationRow(**dict(zip(bad.column_names, values, strict=True))))


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
    words = encoded(rows[key]).dictionary.to_pylist()
    return rows.filter(among(rows[key], [word for word in words if share.has(word)]))


def _cells(
    span: Span, rows: pa.Table, sort: pa.Array | None = None, sorts: int = 1
) -> Iterator[tuple[str, int, int, tuple[int, int, int, int]]]:
    """The rows of each process, of each of so many sorts, in each part of the run's time: the
    position of the first, the times of the first and the last, and how many."""
    process = encoded(rows["process"])
    passed = compute.multiply(compute.subtract(rows["at_ns"], span.began_ns), BINS)
    place = compute.divide(passed, span.length_ns)
    place = compute.min_element_wise(compute.max_element_wise(place, 0), BINS - 1)
    code = compute.add(compute.multiply(process.indices.cast(pa.int64()), BINS), place)
    if sort is not None:
        code = compute.add(compute.multiply(code, sorts), sort.cast(pa.int64()))
    coded = pa.table({"code": code, "position": rows["position"], "at_ns": rows["at_ns"]})
    found = coded.group_by("code", use_threads=False).aggregate(
        [("position", "min"), ("at_ns", "min"), ("at_ns", "max"), ([], "count_all")]
    )
    names = process.dictionary.to_pylist()
    columns = ["code", "position_min", "at_ns_min", "at_ns_max", "count_all"]
    for number, *cell in zip(*(found[name].to_pylist() for name in columns), strict=True):
        rest, which = divmod(number, sorts)
        at, bin_ = divmod(rest, BINS)
        first, first_ns, last_ns, count = cell
        yield names[at], which, bin_, (first, first_ns, last_ns, count)
