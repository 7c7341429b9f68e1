"""How long a process stood still, by what it says and by what it did."""

from __future__ import annotations

from fencepost import NodeStopped, Stalled
from fencepost.testing import MS, HistoryBuilder

BUSY = NodeStopped(reason="asked")
"""An event like any other here."""


def claimed(h: HistoryBuilder, ms: int, of: str = "") -> list[tuple[str, int]]:
    """The stalls, each with its length in ms, once one of so many ms is claimed."""
    h.add("harness" if of else "broker-1#1", Stalled(stalled_ns=ms * MS, of=of))
    return [(process, (to_ns - from_ns) // MS) for process, from_ns, to_ns in h.end().stalls]


def test_a_process_that_recorded_nothing_meanwhile_is_believed() -> None:
    h = HistoryBuilder()
    h.add("broker-1#1", BUSY)
    h.add("broker-2#1", BUSY)
    assert claimed(h.after(5_000), 4_000) == [("broker-1#1", 4_000)]


def test_a_process_that_acted_all_the_time_did_not_stand_still() -> None:
    h = HistoryBuilder()
    for _ in range(2_000):
        h.after(9).add("broker-1#1", BUSY)
    assert claimed(h, 20_000) == [("broker-1#1", 1)]


def test_the_longest_time_without_an_event_counts() -> None:
    h = HistoryBuilder()
    h.after(1_000).add("broker-1#1", BUSY)
    h.after(6_999).add("broker-1#1", BUSY)
    h.after(4).add("broker-1#1", BUSY)
    assert claimed(h, 9_000) == [("broker-1#1", 7_000)]
    assert claimed(h.after(2_999), 3_000)[1:] == [("broker-1#1", 3_000)]


def test_the_harness_says_it_of_a_process_that_never_ran_again() -> None:
    h = HistoryBuilder()
    h.add("clients/reader#1", BUSY)
    assert claimed(h.after(999), 5_000, of="clients/reader#1") == [("clients/reader#1", 1_000)]
