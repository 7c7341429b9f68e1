"""What clients felt, of operations in columns: no row becomes a value of its own. Needs pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import compute

from fencepost_reports.one_run.service import NEVER, NO_GAP, OK, Gap, Served, ServiceFold
from fencepost_reports.one_run.words import among, encoded, listed

_KEY = ("process", "what", "subject")


def tell_service(service: ServiceFold, rows: pa.Table) -> None:
    """Tells of operations, some of a table in its order."""
    if rows.num_rows == 0:
        return
    for some in _served(rows):
        service.served(some)
    _tell_times(service, rows)


def _tell_times(service: ServiceFold, rows: pa.Table) -> None:
    rows = rows.filter(compute.less(rows["began_ns"], rows["ended_ns"]))
    lasted = compute.subtract(rows["ended_ns"], rows["began_ns"])
    took = compute.if_else(among(rows["outcome"], [OK]), lasted, NEVER)
    table = pa.table({"began_ns": rows["began_ns"], "took": took})
    what = encoded(rows["what"])
    for number, word in enumerate(what.dictionary.to_pylist()):
        some = table.filter(compute.equal(what.indices, number)).sort_by("began_ns")
        service.took(word, _numbers(some["began_ns"]), _numbers(some["took"]))


def _served(rows: pa.Table) -> Iterator[Served]:
    """The operations of each client, by what they do and to what."""
    code = _codes(rows)
    order = compute.sort_indices(code)  # stable: the operations of one code stay in their order
    number = compute.subtract(compute.cumulative_sum(pa.repeat(1, len(code))), 1)
    ok = among(rows["outcome"], [OK])
    table = pa.table(
        {
            "code": code.take(order),
            "number": number,
            "began_ns": rows["began_ns"].take(order),
            "ended_ns": rows["ended_ns"].take(order),
            "ok": ok.take(order),
        }
    )
    good = table.filter(table["ok"])
    successes = {row["code"]: row for row in _ends(good)}
    gaps = _gaps(good)
    names = rows.select(_KEY).take(order)
    every = _ends(table)
    chosen = names.take(pa.array([row["first"] for row in every], pa.int64()))
    keys = zip(*map(listed, chosen.columns), strict=True)
    for key, row in zip(keys, every, strict=True):
        found = successes.get(row["code"])
        # Between two numbers of one code there are only operations of that code.
        missed = row["last"] - row["first"] + 1 if found is None else found["first"] - row["first"]
        yield Served(
            **dict(zip(_KEY, key, strict=True)),
            began_ns=row["began_ns"],
            ended_ns=row["last_ns"],
            missed=missed,
            first_ns=NEVER if found is None else found["first_ns"],
            last_ns=NEVER if found is None else found["last_ns"],
            since=0 if found is None else row["last"] - found["last"],
            longest=gaps.get(row["code"], NO_GAP),
        )


def _codes(rows: pa.Table) -> pa.Array:
    """A number for each row, equal for operations of one client that do the same to one subject."""
    code = pa.repeat(0, rows.num_rows)
    for name in _KEY:
        words = encoded(rows[name])
        code = compute.multiply(code, len(words.dictionary))
        code = compute.add(code, words.indices.cast(pa.int64()))
    return code


def _ends(table: pa.Table) -> list[dict[str, int]]:
    """Of each code: the first and last number, when these ended, and when the first one began."""
    found = table.group_by("code", use_threads=False).aggregate(
        [
            ("number", "min"),
            ("number", "max"),
            ("began_ns", "min"),
            ("ended_ns", "first"),
            ("ended_ns", "last"),
        ]
    )
    columns = [
        "code",
        "number_min",
        "number_max",
        "began_ns_min",
        "ended_ns_first",
        "ended_ns_last",
    ]
    names = ["code", "first", "last", "began_ns", "first_ns", "last_ns"]
    rows: list[dict[str, int]] = found.select(columns).rename_columns(names).to_pylist()
    return rows


def _gaps(good: pa.Table) -> dict[int, Gap]:
    """The longest gap between two successes of each code; of equal ones the first."""
    if good.num_rows < 2:
        return {}
    one, next_ = good.slice(0, good.num_rows - 1), good.slice(1)
    gaps = pa.table(
        {
            "code": one["code"],
            "from_ns": one["ended_ns"],
            "to_ns": next_["ended_ns"],
            "missed": compute.subtract(compute.subtract(next_["number"], one["number"]), 1),
            "length": compute.subtract(next_["ended_ns"], one["ended_ns"]),
        }
    ).filter(compute.equal(one["code"], next_["code"]))
    longest = gaps.sort_by([("code", "ascending"), ("length", "descending")])
    firsts = longest.group_by("code", use_threads=False).aggregate(
        [("from_ns", "first"), ("to_ns", "first"), ("missed", "first")]
    )
    return {
        row["code"]: Gap(row["from_ns_first"], row["to_ns_first"], row["missed_first"])
        for row in firsts.to_pylist()
    }


def _numbers(column: pa.ChunkedArray) -> array[int]:
    """A column of 64-bit integers, copied at once."""
    whole = column.combine_chunks()
    found = array("q")
    if len(whole):
        size, values = found.itemsize, memoryview(whole.buffers()[1])
        found.frombytes(values[whole.offset * size : (whole.offset + len(whole)) * size])
    return found
