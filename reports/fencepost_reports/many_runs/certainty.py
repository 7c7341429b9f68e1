"""How sure the correlation is: an interval for each share of windows with a failure."""

from __future__ import annotations

from collections import Counter

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
