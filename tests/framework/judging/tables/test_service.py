"""What clients felt: the longest time without a success, and the latency round each fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fencepost.judging.tables.operations import OperationsFold
from fencepost.judging.tables.rows import OperationRow
from fencepost.judging.tables.service import ServiceFold
from fencepost.reporting import FaultRow, LatencyRow, SilenceRow, tells_operations
from fencepost.testing import HistoryBuilder
from fencepost_kafka import CallOutcome, Polled, ProduceCompleted, ProduceInvoked

MS = 1_000_000
WHATS, PARTS = ("fetch", "produce"), ("before", "during", "after")
NO_ROW = LatencyRow(
    fault_id="", part="before", what="", count=0, succeeded=0,
    median_ns=-1, slow_ns=-1, longest_ns=-1,
)  # fmt: skip
ONE, OTHER = "clients/producer-1#1", "clients/producer-2#1"


class Writes:
    """Writes of two clients, each begun and ended at stated milliseconds."""

    def __init__(self) -> None:
        self.h = HistoryBuilder(start_ms=0)
        self.count = 0

    def at(self, ms: int) -> HistoryBuilder:
        return self.h.after((ms * MS - self.h.now_ns) // MS)

    def begin(self, ms: int, process: str = ONE, partition: int = 0) -> str:
        self.count += 1
        name = f"op-{self.count}"
        body = ProduceInvoked(operation=name, topic="orders", partition=partition, acks=-1)
        self.at(ms).add(process, body)
        return name

    def end(self, ms: int, name: str, outcome: CallOutcome = "ok", process: str = ONE) -> None:
        body = ProduceCompleted(
            operation=name,
            topic="orders",
            partition=0,
            acks=-1,
            outcome=outcome,
            offset=1,
            error="",
        )
        self.at(ms).add(process, body)

    def write(self, began_ms: int, ended_ms: int, outcome: CallOutcome = "ok") -> None:
        self.end(ended_ms, self.begin(began_ms), outcome)

    def rows(self, ended_ms: int = 1_000) -> Sequence[OperationRow]:
        fold = OperationsFold()
        ended = [
            row
            for place, event in enumerate(self.h.events())
            if tells_operations(event.body)
            for row in fold.apply(place, event, event.body)
        ]
        return [*ended, *fold.unended(ended_ms * MS)]


def folded(rows: Iterable[OperationRow]) -> ServiceFold:
    fold = ServiceFold()
    for row in rows:
        fold.apply(row)
    return fold


def silences(writes: Writes, ended_ms: int = 1_000) -> Sequence[SilenceRow]:
    return folded(writes.rows(ended_ms)).silences


def times(rows: Iterable[SilenceRow]) -> list[tuple[str, int, int, int]]:
    return [(row.process, row.from_ns // MS, row.to_ns // MS, row.missed) for row in rows]


def test_the_longest_time_between_two_successes_is_kept() -> None:
    writes = Writes()
    writes.write(10, 20)
    writes.write(30, 90, "unknown")
    writes.write(95, 140)
    writes.write(150, 160)
    assert times(silences(writes)) == [(ONE, 20, 140, 1)]


def test_it_begins_with_the_first_operation_and_ends_with_the_last_one() -> None:
    writes = Writes()
    writes.write(10, 60, "failed")
    writes.write(70, 80)
    writes.write(90, 200, "unknown")
    assert times(silences(writes)) == [(ONE, 80, 200, 1)]
    first = Writes()
    first.write(10, 100)
    first.write(101, 110)
    assert times(silences(first)) == [(ONE, 10, 100, 0)]


def test_of_equal_times_the_first_is_kept() -> None:
    writes = Writes()
    for began in (10, 30, 50, 70):
        writes.write(began, began + 10)
    assert times(silences(writes)) == [(ONE, 20, 40, 0)]


def test_an_operation_without_an_end_ends_with_the_run() -> None:
    writes = Writes()
    writes.write(10, 20)
    writes.begin(30)
    assert times(silences(writes, 900)) == [(ONE, 20, 900, 1)]


def test_each_client_and_subject_has_its_own_and_those_that_tried_come_first() -> None:
    writes = Writes()
    one, other = writes.begin(10), writes.begin(11, OTHER)
    writes.end(20, one)
    writes.end(300, other, process=OTHER)
    writes.end(310, writes.begin(305, OTHER), "unknown", OTHER)
    writes.end(330, writes.begin(320), "failed")
    writes.at(340).add(
        ONE, Polled(topic="orders", partition=0, offsets=(1,), operations=("x",), final=False)
    )
    rows = silences(writes)
    assert times(rows) == [(ONE, 20, 330, 1), (OTHER, 11, 300, 0), (ONE, 340, 340, 0)]
    assert [(row.process, row.what, row.subject) for row in rows] == [
        (ONE, "produce", "orders-0"),
        (OTHER, "produce", "orders-0"),
        (ONE, "poll", "orders-0"),
    ]


def fault(name: str, from_ms: int, to_ms: int) -> FaultRow:
    return FaultRow(
        fault_id=name,
        fault="kill",
        targets=(),
        receipt=True,
        evidence="",
        from_ns=from_ms * MS,
        to_ns=to_ms * MS,
        healed=True,
        heal_receipt=True,
    )


def around(writes: Writes, *faults: FaultRow) -> Sequence[LatencyRow]:
    return folded(writes.rows()).stretches.latencies(faults)


def test_latency_is_counted_by_when_operations_began() -> None:
    writes = Writes()
    writes.write(10, 14)
    writes.write(99, 220)
    writes.write(300, 302, "unknown")
    writes.write(310, 315)
    rows = around(writes, fault("kill-1", 100, 200))
    assert [
        (r.part, r.count, r.succeeded, r.median_ns // MS, r.longest_ns // MS) for r in rows
    ] == [
        ("before", 2, 2, 121, 121),
        ("after", 2, 1, 5, 5),
    ]
    assert {row.what for row in rows} == {"produce"}


def test_a_part_in_which_nothing_succeeded_has_no_times() -> None:
    writes = Writes()
    writes.write(100, 180, "failed")
    (row,) = around(writes, fault("kill-1", 100, 200))
    assert (row.part, row.count, row.succeeded) == ("during", 1, 0)
    assert (row.median_ns, row.slow_ns, row.longest_ns) == (-1, -1, -1)


def test_before_and_after_end_where_another_fault_changes_something() -> None:
    writes = Writes()
    for began in (10, 60, 120, 210, 260, 400):
        writes.write(began, began + 5)
    first, second, third = fault("a", 20, 50), fault("b", 100, 200), fault("c", 250, 300)
    rows = [row for row in around(writes, first, second, third) if row.fault_id == "b"]
    assert [(row.part, row.count) for row in rows] == [("before", 1), ("during", 1), ("after", 1)]


def test_the_slowest_hundredth_is_left_to_the_longest() -> None:
    writes = Writes()
    for number in range(200):
        writes.write(2 * number, 2 * number + (2 if number >= 197 else 1))
    writes.write(450, 950)
    (row,) = around(writes, fault("kill-1", 900, 901))
    assert (row.count, row.median_ns // MS, row.slow_ns // MS, row.longest_ns // MS) == (
        201, 1, 2, 500,
    )  # fmt: skip


def test_operations_that_end_in_another_order_are_counted_by_their_beginning() -> None:
    writes = Writes()
    one, two = writes.begin(10), writes.begin(120)
    writes.end(130, two)
    writes.end(140, one)
    rows = around(writes, fault("kill-1", 100, 200))
    assert [(row.part, row.longest_ns // MS) for row in rows] == [("before", 130), ("during", 10)]


def test_an_operation_that_was_left_open_is_counted_and_one_of_a_single_event_is_not() -> None:
    writes = Writes()
    writes.begin(110)
    writes.at(120).add(
        ONE, Polled(topic="orders", partition=0, offsets=(1,), operations=("x",), final=False)
    )
    (row,) = around(writes, fault("kill-1", 100, 200))
    assert (row.part, row.what, row.count, row.succeeded) == ("during", "produce", 1, 0)


def test_a_fault_that_lasts_while_others_come_and_go_has_the_times_of_all() -> None:
    writes = Writes()
    took = [7, 3, 9, 1, 8, 2, 6]
    for number, ms in enumerate(took):
        writes.write(100 + 10 * number, 100 + 10 * number + ms)
    others = [fault(f"kill-{n}", 104 + 10 * n, 107 + 10 * n) for n in range(6)]
    rows = around(writes, fault("cut-1", 95, 900), *others)
    (row,) = [row for row in rows if row.fault_id == "cut-1"]
    assert (row.part, row.count, row.succeeded) == ("during", 7, 7)
    assert [ns // MS for ns in (row.median_ns, row.slow_ns, row.longest_ns)] == [6, 9, 9]


def test_without_a_fault_there_is_no_latency() -> None:
    writes = Writes()
    writes.write(10, 20)
    assert around(writes) == []


@st.composite
def some_operations(draw: st.DrawFn) -> Sequence[OperationRow]:
    """Operations of two clients on two partitions, in order, some of them at equal times."""
    times = st.tuples(st.integers(0, 3), st.sampled_from((0, 1, 2, 30)))
    fields = st.fixed_dictionaries(
        {
            "process": st.sampled_from((ONE, OTHER)),
            "what": st.sampled_from(WHATS),
            "subject": st.sampled_from(("orders-0", "orders-1")),
            "outcome": st.sampled_from(("ok", "ok", "failed", "unknown", "")),
        }
    )
    rows: list[OperationRow] = []
    now = 0
    for (later, took), some in draw(st.lists(st.tuples(times, fields), max_size=60)):
        now += later
        rows.append(
            OperationRow(
                position=len(rows),
                seq=len(rows),
                name=f"op-{len(rows)}",
                error="",
                began_ns=max(0, now - took),
                ended_ns=now,
                **some,
            )
        )
    return rows


@st.composite
def some_faults(draw: st.DrawFn) -> Sequence[FaultRow]:
    """Some faults that overlap, touch, or are healed at once."""
    times = st.tuples(st.integers(0, 90), st.sampled_from((0, 3, 40)))
    return [
        structs.replace(fault(f"kill-{n}", 0, 0), from_ns=ns, to_ns=ns + length)
        for n, (ns, length) in enumerate(draw(st.lists(times, max_size=5)))
    ]


def plain_silence(rows: Sequence[OperationRow]) -> tuple[int, int, int]:
    """The longest gap of operations of one kind, and what was missed in it."""
    ended = [one for one, row in enumerate(rows) if row.outcome == "ok"]
    froms = [(min(row.began_ns for row in rows), -1), *((rows[n].ended_ns, n) for n in ended)]
    untils = [*((rows[n].ended_ns, n) for n in ended), (rows[-1].ended_ns, len(rows))]
    gaps = [(a, b, m - n - 1) for (a, n), (b, m) in zip(froms, untils, strict=True)]
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def plain_latency(
    rows: Sequence[OperationRow], faults: Sequence[FaultRow], row: LatencyRow
) -> tuple[int, ...]:
    """The numbers of a row of latencies, out of lists."""
    (its,) = (one for one in faults if one.fault_id == row.fault_id)
    edges = [ns for one in faults if one is not its for ns in (one.from_ns, one.to_ns)]
    from_ns, to_ns = {
        "before": (max((ns for ns in edges if ns < its.from_ns), default=0), its.from_ns),
        "during": (its.from_ns, its.to_ns),
        "after": (its.to_ns, min((ns for ns in edges if ns >= its.to_ns), default=1_000)),
    }[row.part]
    chosen = [
        one
        for one in rows
        if one.what == row.what and one.began_ns < one.ended_ns and from_ns <= one.began_ns < to_ns
    ]
    took = sorted(one.ended_ns - one.began_ns for one in chosen if one.outcome == "ok")
    places = (len(took) // 2, len(took) * 99 // 100, -1)
    return len(chosen), len(took), *(took[place] if took else -1 for place in places)


@given(
    rows=some_operations(),
    faults=some_faults(),
    cuts=st.lists(st.tuples(*[st.integers(0, 60)] * 2)),
)
def test_the_fold_has_the_numbers_of_plain_lists(
    rows: Sequence[OperationRow], faults: Sequence[FaultRow], cuts: Sequence[tuple[int, int]]
) -> None:
    """Whenever it is told of which times: `cuts` are (after how many operations, of when)."""
    whole = ServiceFold()
    for number, row in enumerate(rows):
        for after, ns in cuts:
            if after == number:
                whole.stretches.cut(ns)
        whole.apply(row)

    of: dict[tuple[str, str, str], list[OperationRow]] = {}
    for row in rows:
        of.setdefault((row.process, row.what, row.subject), []).append(row)
    assert {
        (row.process, row.what, row.subject): (row.from_ns, row.to_ns, row.missed)
        for row in whole.silences
    } == {key: plain_silence(some) for key, some in of.items()}

    found = whole.stretches.latencies(faults)
    for row in found:
        numbers = (row.count, row.succeeded, row.median_ns, row.slow_ns, row.longest_ns)
        assert numbers == plain_latency(rows, faults, row)
    every = {(one.fault_id, part, what) for one in faults for part in PARTS for what in WHATS}
    for name, part, what in every - {(row.fault_id, row.part, row.what) for row in found}:
        none = structs.replace(NO_ROW, fault_id=name, part=part, what=what)
        assert plain_latency(rows, faults, none) == (0, 0, -1, -1, -1)
