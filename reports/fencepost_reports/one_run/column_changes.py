"""Which changes of authority say something new, found in columns. Needs pyarrow and numpy.

Most changes repeat what is known: a record that each node replays, a lease that is renewed, a
refusal for the same reason. A change is left out only if the fold would do nothing with it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fencepost import Change
from fencepost_reports.one_run.history import Ends
from fencepost_reports.one_run.words import among, encoded

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]


def telling(rows: pa.Table, ends: Ends) -> pa.Array:
    """Which of these changes, some of a table in its order, `AuthorityFold.change` must take."""
    if rows.num_rows == 0:
        return pa.array([], pa.bool_())
    return pa.array(~(_repeated(rows) & ~_of_state(rows, ends)))


def _repeated(rows: pa.Table) -> Mask:
    """Which changes are no rows of the table, as far as these rows tell."""
    record, scope = _codes(rows, "record"), _codes(rows, "scope")
    recorded = ~_is(rows, "record", "")
    again = recorded & _seen_before(_paired(record, scope))
    matter, place = _codes(rows, "matter"), _paired(_codes(rows, "process"), scope)
    # What a record says for the first time here may have been said before these rows, and then it
    # is no matter of its process: so it is compared with no other change.
    rest = np.flatnonzero(~again)
    same = _as_before(place[rest], matter[rest], recorded[rest].astype(np.int64))
    again[rest] = same & ~recorded[rest] & ~_is(rows, "matter", "")[rest]
    return again


def _of_state(rows: pa.Table, ends: Ends) -> Mask:
    """Which changes may begin or end a state of their holder."""
    holder, state = _codes(rows, "holder"), _codes(rows, "state")
    without = _is(rows, "state", "") & ~_is(rows, "change", Change.LOST)
    bears = ~(_is(rows, "holder", "") | _is(rows, "change", Change.REFUSED) | without)
    chosen = np.flatnonzero(bears)
    key = _paired(holder, _codes(rows, "scope"))[chosen]
    said = (state, rows["epoch"].to_numpy(), _lives(rows, ends))
    bears[chosen] = ~_as_before(key, *(one[chosen] for one in said))
    return bears | _reported(rows)


def _reported(rows: pa.Table) -> Mask:
    """Which changes name their holder by its node only, and may begin a state of it."""
    names = (rows[name].cast(pa.string()) for name in ("node", "scope"))
    own: Mask = np.asarray(pc.equal(*names), np.bool_)
    by_node: Mask = _is(rows, "holder", "") & ~_is(rows, "node", "") & ~own
    return by_node & ~_is(rows, "state", "") & ~_is(rows, "change", Change.REFUSED)


def _lives(rows: pa.Table, ends: Ends) -> Codes:
    """How often the holder of each change had ended before it."""
    found = encoded(rows["holder"])
    holder, position = np.asarray(found.indices), rows["position"].to_numpy()
    lives = np.zeros(rows.num_rows, np.int64)
    for number, name in enumerate(found.dictionary.to_pylist()):
        if name in ends:
            mine = holder == number
            lives[mine] = np.searchsorted(np.asarray(ends[name]), position[mine], side="right")
    return lives


def _as_before(key: Codes, *values: Codes) -> Mask:
    """Which rows have the same values as the one before them with the same key."""
    order = np.argsort(key, kind="stable")
    same = np.ones(max(len(key) - 1, 0), np.bool_)
    for one in (key, *values):
        ordered = one[order]
        same &= ordered[1:] == ordered[:-1]
    found = np.zeros(len(key), np.bool_)
    found[order[1:]] = same
    return found


def _seen_before(key: Codes) -> Mask:
    """Which rows have a key that a row before them has."""
    _, first = np.unique(key, return_index=True)
    found = np.ones(len(key), np.bool_)
    found[first] = False
    return found


def _paired(one: Codes, other: Codes) -> Codes:
    return one * (int(other.max(initial=0)) + 1) + other


def _codes(rows: pa.Table, name: str) -> Codes:
    """A number for each row, equal for equal texts."""
    return np.asarray(encoded(rows[name]).indices).astype(np.int64)


def _is(rows: pa.Table, name: str, word: str) -> Mask:
    return np.asarray(among(rows[name], [word]))
