"""What the tables over many runs say on the pages: which rows, in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

Row = Mapping[str, Any]
SORTS: Mapping[str, str] = {
    "loss": "losses of authority",
    "transition": "epoch transitions",
    "fault": "faults",
    "two faults": "pairs of faults",
}
"""What may go before a violation, in the words of a page."""
ON_INDEX = 40
"""How many rows of all clauses an index lists."""
ON_PAGE = 20
"""How many rows of one sort the page of a clause lists."""


class Before(NamedTuple):
    """What went before the violations of a clause, of one sort, the least likely by chance
    first."""

    words: str
    rows: Sequence[Row]
    left_out: int


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """Rows of the tables `correlation`, `clause_correlation` and `distributions`."""

    correlation: Sequence[Row] = ()
    clauses: Sequence[Row] = ()
    times: Sequence[Row] = ()

    @property
    def telling(self) -> Sequence[Row]:
        """The rows of all clauses that differ from chance, the least likely first."""
        return sorted((row for row in self.clauses if row["differs"]), key=_likely)[:ON_INDEX]

    @property
    def compared(self) -> int:
        """How many rows of clauses were compared with chance."""
        return sum(row["compared"] for row in self.clauses)

    def before(self, clause: str) -> Sequence[Before]:
        """What went before the violations of a clause."""
        found = []
        for sort, words in SORTS.items():
            rows = [r for r in self.clauses if r["clause"] == clause and r["sort"] == sort]
            met = sorted((row for row in rows if row["both"]), key=_likely)
            if rows:
                found.append(Before(words, met[:ON_PAGE], len(rows) - len(met[:ON_PAGE])))
        return found


def _likely(row: Row) -> tuple[float, float, str, str, str]:
    share = row["both"] / row["occurred"]
    return row["p"], -share, row["clause"], row["name"], row["other"]
