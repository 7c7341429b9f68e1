"""How long a process stood still, by what it says and by what it did."""

from __future__ import annotations

from msgspec import Struct

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


class Answer(Struct, frozen=True, tag="test.answer"):
    """A client's request to a node was answered."""

    slot: str
    sent_ns: int

    def answered_by(self) -> tuple[str, int] | None:
        return (self.slot, self.sent_ns) if self.slot else None


def ask(
    h: HistoryBuilder, slot: str = "broker-1", for_ms: int = 5, by: str = "clients/p#1"
) -> None:
    """A request is sent, and answered after a time."""
    sent_ns = h.now_ns
    h.after(for_ms).add(by, Answer(slot, sent_ns))


def test_a_process_that_answered_clients_all_the_time_did_not_stand_still() -> None:
    h = HistoryBuilder()
    h.add("broker-1#1", BUSY)
    for _ in range(30):
        ask(h.after(1_995))
    # From when one request is sent until the client has the answer to the next one.
    assert claimed(h, 60_000) == [("broker-1#1", 2_006)]


def test_a_request_that_waited_for_a_process_cuts_no_stall() -> None:
    h = HistoryBuilder()
    h.add("broker-1#1", BUSY)
    ask(h.after(1_000), for_ms=3_000)
    assert claimed(h.after(2), 4_000) == [("broker-1#1", 3_997)]


def test_neither_another_node_nor_silence_nor_a_nodes_own_word_is_an_answer() -> None:
    h = HistoryBuilder()
    h.add("broker-1#1", BUSY)
    ask(h.after(1_000), slot="broker-2")
    ask(h.after(1_000), slot="")
    ask(h.after(1_000), by="broker-2#1")
    assert claimed(h.after(985), 4_000) == [("broker-1#1", 4_000)]


def test_a_node_knows_nothing_of_the_stalls_of_another_one() -> None:
    h = HistoryBuilder()
    h.add("broker-1#1", BUSY)
    h.after(5_000).add("broker-3#1", Stalled(stalled_ns=4_000 * MS, of="broker-1#1"))
    h.add("clients/p#1", Stalled(stalled_ns=4_000 * MS, of="broker-1#1"))
    assert h.end().stalls == ()
    h.add("broker-1#1", Stalled(stalled_ns=4_000 * MS, of="broker-1#1"))
    assert [process for process, _, _ in h.end().stalls] == ["broker-1#1"]
