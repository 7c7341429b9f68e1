"""How sure a correlation is: an interval for each share of windows with a failure, and how likely a
difference is by chance."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, lgamma
from typing import Any

import pyarrow as pa

from fencepost.reporting import interval

COLUMNS = pa.schema(
    [
        pa.field("elsewhere", pa.float64()),
        pa.field("low", pa.float64(), nullable=False),
        pa.field("high", pa.float64(), nullable=False),
        pa.field("differs", pa.bool_(), nullable=False),
    ]
)


def with_certainty(across: pa.Table) -> pa.Table:
    """The correlation with further columns (`COLUMNS`).

    `elsewhere` is the share of windows with such a failure among those in which it did not occur;
    null if it occurred in all. `low` and `high` are the interval of its own share, `confidence`:
    all intervals of one sort of failure together contain the true shares with 95 %. It `differs`
    if `elsewhere` is not between them.
    """
    rows = across.to_pylist()
    compared = Counter(row["what"] for row in rows)
    found = []
    for row in rows:
        others = row["windows"] - row["occurred"]
        elsewhere = (row["failed"] - row["both"]) / others if others else None
        low, high = interval(row["both"], row["occurred"], compared[row["what"]])
        differs = elsewhere is not None and not low <= elsewhere <= high
        found.append({"elsewhere": elsewhere, "low": low, "high": high, "differs": differs})
    more = pa.Table.from_pylist(found, COLUMNS)
    for field in COLUMNS:
        across = across.append_column(field, more[field.name])
    return across


CLAUSE_COLUMNS = pa.schema(
    [
        pa.field("low", pa.float64(), nullable=False),
        pa.field("high", pa.float64(), nullable=False),
        pa.field("low_elsewhere", pa.float64(), nullable=False),
        pa.field("high_elsewhere", pa.float64(), nullable=False),
        pa.field("p", pa.float64(), nullable=False),
        pa.field("compared", pa.bool_(), nullable=False),
        pa.field("differs", pa.bool_(), nullable=False),
    ]
)
ALPHA = 0.05


def with_significance(clauses: pa.Table) -> pa.Table:
    """The correlation of clauses with further columns (`CLAUSE_COLUMNS`).

    `low` and `high` are the interval of the share of windows in which the clause was violated
    afterwards, `low_elsewhere` and `high_elsewhere` that of the windows in which it did not occur:
    all intervals of the table together contain the true shares with 95 %. `p` is how likely so many
    violations, or more, come after it by chance: Fisher's exact test, corrected by Holm's method
    for all rows that are `compared`. It `differs` below 5 %.

    A row with too few windows cannot differ, whatever comes after it: its least possible `p` is
    above the level of one among many. Such rows are not compared, so that they do not make the
    others say less (Tarone 1990), and their `p` is 1.

    Windows of one run are counted as independent of each other, though they are not quite.
    """
    rows = clauses.to_pylist()
    found = []
    compared = comparable([_chance(row, min(row["occurred"], row["failed"])) for row in rows])
    corrected = iter(holm([_chance(rows[n], rows[n]["both"]) for n in sorted(compared)]))
    for number, row in enumerate(rows):
        p = next(corrected) if number in compared else 1.0
        others = row["windows"] - row["occurred"]
        here = interval(row["both"], row["occurred"], 2 * len(rows))
        elsewhere = interval(row["failed"] - row["both"], others, 2 * len(rows))
        found.append(
            {
                "low": here.low,
                "high": here.high,
                "low_elsewhere": elsewhere.low,
                "high_elsewhere": elsewhere.high,
                "p": p,
                "compared": number in compared,
                "differs": p < ALPHA,
            }
        )
    more = pa.Table.from_pylist(found, CLAUSE_COLUMNS)
    for field in CLAUSE_COLUMNS:
        clauses = clauses.append_column(field, more[field.name])
    return clauses


def _chance(row: Mapping[str, Any], both: int) -> float:
    return at_least(both, row["occurred"], row["failed"], of=row["windows"])


def at_least(both: int, occurred: int, failed: int, *, of: int) -> float:
    """How likely at least `both` of the `occurred` windows are among the `failed` ones, if these
    are any of all windows: the upper tail of the hypergeometric distribution."""
    most = min(occurred, failed)
    every = _ways(of, failed)
    ways = (
        exp(_ways(occurred, k) + _ways(of - occurred, failed - k) - every)
        for k in range(max(both, failed + occurred - of), most + 1)
    )
    return min(1.0, sum(ways))


def _ways(of: int, chosen: int) -> float:
    """The logarithm of how many ways there are to choose so many."""
    return lgamma(of + 1) - lgamma(chosen + 1) - lgamma(of - chosen + 1)


def comparable(least: Sequence[float]) -> frozenset[int]:
    """The places of the rows that are compared, by the least probability that each can have.

    With the smallest number k for which at most k of them can be as unlikely as `ALPHA` / k, these
    are compared. The counts that decide this do not depend on how many violations came after each,
    so a correction for these rows alone is one for all (Tarone 1990).
    """
    ordered = sorted(least)
    k = next((k for k in range(1, len(least) + 1) if bisect_right(ordered, ALPHA / k) <= k), 1)
    return frozenset(place for place, p in enumerate(least) if p <= ALPHA / k)


def holm(found: Sequence[float]) -> Sequence[float]:
    """Probabilities, corrected so that the least of so many says what one alone would say (Holm
    1979)."""
    corrected = [1.0] * len(found)
    worst = 0.0
    for rank, place in enumerate(sorted(range(len(found)), key=lambda n: found[n])):
        worst = max(worst, min(1.0, found[place] * (len(found) - rank)))
        corrected[place] = worst
    return corrected
