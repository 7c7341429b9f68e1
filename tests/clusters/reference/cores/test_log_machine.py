"""The index of a log against a list: truncation by epoch, and a producer's window of batches."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.log.index import LogIndex
from fencepost_clusters.reference.core.log.producers import (
    PRODUCER_WINDOW,
    begins_late,
    check_sequence,
)
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error

BOUNDED = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
SEQUENCES = 1 << 31


def batch(base: int, count: int, epoch: int) -> Entry:
    return Entry(
        base=base,
        end=base + count,
        epoch=epoch,
        size=10 * count,
        max_timestamp=base,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


class TwoLogs(RuleBasedStateMachine):
    """Two replicas. The leader of an epoch appends; the other copies, once it has truncated to the
    offset of divergence. The model of a log is a list of (offset, epoch)."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = (LogIndex(), LogIndex())
        self.models: tuple[list[Entry], list[Entry]] = ([], [])
        self.leader = 0
        self.epoch = 0

    @rule(leader=st.sampled_from([0, 1]), skipped=st.integers(1, 3))
    def elect(self, leader: int, skipped: int) -> None:
        self.leader, self.epoch = leader, self.epoch + skipped

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        self._append(self.leader, batch(self.logs[self.leader].end, count, self.epoch))

    @rule(which=st.sampled_from([0, 1]), to=st.integers(0, 40))
    def truncate(self, which: int, to: int) -> None:
        kept = [one for one in self.models[which] if one.end <= to]
        self.models[which][:] = kept
        assert self.logs[which].truncate(to) == (kept[-1].end if kept else 0)

    @rule()
    def follow(self) -> None:
        """KIP-101 and KIP-279: asks for the end of its last epoch until both agree; then copies."""
        theirs, ours = self.logs[self.leader], self.logs[1 - self.leader]
        common = 0
        for one, other in zip(*self.models, strict=False):
            if one != other:
                break
            common = one.end
        for _ in range(len(self.models[0]) + len(self.models[1]) + 1):
            epoch, end = theirs.end_for_epoch(ours.last_epoch)
            to = min(end, ours.end_for_epoch(epoch)[1])
            if to >= ours.end:
                break
            ours.truncate(to)
        assert ours.end == common
        follower = self.models[1 - self.leader]
        follower[:] = [one for one in follower if one.end <= common]
        for one in self.models[self.leader][len(follower) :]:
            self._append(1 - self.leader, one)
        assert self.models[0] == self.models[1]

    @rule(which=st.sampled_from([0, 1]), data=st.data())
    def serve(self, which: int, data: st.DataObject) -> None:
        """Whole batches: the first one, and as many more as fit below the bound."""
        end = self.logs[which].end
        start = data.draw(st.integers(0, end + 2))
        below = data.draw(st.integers(0, end + 2))
        most = data.draw(st.integers(0, 60))
        chosen: list[Entry] = []
        for one in self.models[which]:
            if one.end <= start:
                continue
            if one.end > below or (chosen and sum(c.size for c in chosen) + one.size > most):
                break
            chosen.append(one)
        expected = (chosen[0].base, chosen[-1].end) if chosen else (start, start)
        assert self.logs[which].span(start, below, most) == expected

    @invariant()
    def every_question_has_the_same_answer(self) -> None:
        for log, model in zip(self.logs, self.models, strict=True):
            assert log.end == (model[-1].end if model else 0)
            assert log.last_epoch == (model[-1].epoch if model else -1)
            for epoch in range(-1, self.epoch + 2):
                older = [one for one in model if one.epoch <= epoch]
                expected = (older[-1].epoch, older[-1].end) if older else (-1, 0)
                assert log.end_for_epoch(epoch) == expected

    def _append(self, which: int, one: Entry) -> None:
        self.logs[which].append(one)
        self.models[which].append(one)


def header_of(epoch: int, sequence: int, count: int, producer: int = 7) -> BatchHeader:
    """The header of a producer's batch of `count` messages."""
    return BatchHeader(
        base_offset=0,
        size=80,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=count - 1,
        max_timestamp=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence % SEQUENCES,
        count=count,
        crc=0,
    )


class OneProducer(RuleBasedStateMachine):
    """An idempotent producer that sends, sends again, skips sequence numbers, and begins again; its
    leader's log loses batches at the end. Every batch that is stored in the model is stored in the
    log, once."""

    def __init__(self) -> None:
        super().__init__()
        self.log = LogIndex()
        self.stored: list[Entry] = []
        self.epoch = 0

    def _send(self, epoch: int, sequence: int, count: int) -> Entry | Error | None:
        return check_sequence(self.log.producer(7), header_of(epoch, sequence, count))

    def _store(self, sequence: int, count: int) -> None:
        base = self.log.end
        one = Entry(
            base=base,
            end=base + count,
            epoch=0,
            size=80,
            max_timestamp=0,
            producer_id=7,
            producer_epoch=self.epoch,
            base_sequence=sequence % SEQUENCES,
        )
        self.log.append(one)
        self.stored.append(one)

    @property
    def due(self) -> int:
        last = self.stored[-1]
        return (last.base_sequence + last.end - last.base) % SEQUENCES

    @precondition(lambda self: not self.stored)
    @rule(sequence=st.sampled_from([0, 5, SEQUENCES - 3]), count=st.integers(1, 4))
    def begin(self, sequence: int, count: int) -> None:
        """The log has no batch of this producer, or none any more, so any sequence number may
        follow."""
        assert self._send(self.epoch, sequence, count) is None
        self._store(sequence, count)

    @precondition(lambda self: self.stored and self.stored[-1].producer_epoch == self.epoch)
    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        assert self._send(self.epoch, self.due, count) is None
        self._store(self.due, count)

    @precondition(lambda self: self.stored)
    @rule(back=st.integers(1, PRODUCER_WINDOW + 2))
    def send_again(self, back: int) -> None:
        """A batch in the window is found; an older one is out of order."""
        if back > len(self.stored):
            return
        one = self.stored[-back]
        found = self._send(one.producer_epoch, one.base_sequence, one.end - one.base)
        if one.producer_epoch != self.stored[-1].producer_epoch:
            assert found is Error.INVALID_PRODUCER_EPOCH
        elif back <= PRODUCER_WINDOW:
            assert isinstance(found, Entry)
            assert (found.base, found.end) == (one.base, one.end)
        else:
            assert found is Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    @precondition(lambda self: self.stored)
    @rule(left_out=st.integers(1, 9))
    def leave_out(self, left_out: int) -> None:
        found = self._send(self.stored[-1].producer_epoch, self.due + left_out, 1)
        assert found is Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    @precondition(lambda self: self.stored)
    @rule(count=st.integers(1, 4))
    def begin_anew(self, count: int) -> None:
        self.epoch = self.stored[-1].producer_epoch + 1
        assert self._send(self.epoch, 3, count) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self._send(self.epoch, 0, count) is None
        self._store(0, count)

    @rule(lost=st.integers(1, 7))
    def lose(self, lost: int) -> None:
        """Another leader had a shorter log: lost batches must be accepted when they are sent
        again."""
        kept = self.stored[:-lost] if lost < len(self.stored) else []
        self.log.truncate(kept[-1].end if kept else 0)
        self.stored = kept
        self.epoch = kept[-1].producer_epoch if kept else self.epoch

    @invariant()
    def the_window_is_the_newest(self) -> None:
        assert self.log.producer(7) == tuple(self.stored[-PRODUCER_WINDOW:])
        assert self.log.producer(8) == ()


TestTwoLogs = TwoLogs.TestCase
TestTwoLogs.settings = BOUNDED
TestOneProducer = OneProducer.TestCase
TestOneProducer.settings = BOUNDED


@pytest.mark.parametrize(
    ("producer", "sequence", "log_start", "leader_epoch", "late"),
    [
        (7, 5, 0, 1, True),
        (0, 5, 0, 1, True),
        (7, 0, 0, 1, False),
        (-1, 5, 0, 1, False),
        (7, 5, 2, 1, False),
        (7, 5, 0, 0, False),
    ],
    ids=["late", "id-0", "first", "no-id", "deleted", "first-leader"],
)
def test_only_a_later_leader_of_a_whole_log_knows_that_a_producer_begins_late(
    producer: int, sequence: int, log_start: int, leader_epoch: int, late: bool
) -> None:
    header = header_of(0, sequence, 1, producer)
    assert begins_late(header, log_start, leader_epoch) is late


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_log_that_begins_at_the_end_of_another_has_its_last_epoch(epoch: int) -> None:
    """As after a snapshot. The epochs before it are not known."""
    log = LogIndex()
    log.begin_at(7, epoch)
    assert (log.start, log.end, log.last_epoch) == (7, 7, epoch)
    log.append(batch(7, 2, epoch + 2))
    ends = [log.end_for_epoch(epoch + more) for more in (-1, 0, 1, 2, 3)]
    first, second = (epoch, 7), (epoch + 2, 9)
    assert ends == [(-1, 0), first, first, second, second]


def test_an_empty_log_has_no_epoch() -> None:
    assert [LogIndex().end_for_epoch(epoch) for epoch in (-1, 0, 5)] == [(-1, 0)] * 3


def test_a_batch_is_found_by_its_time_only_below_a_bound() -> None:
    times = (5, 9, 9, 7)
    log = LogIndex(replace(batch(2 * n, 2, 0), max_timestamp=at) for n, at in enumerate(times))

    def base(found: Entry | None) -> int | None:
        return found.base if found is not None else None

    assert [base(log.with_timestamp(at, 8)) for at in (5, 6, 9, 10)] == [0, 2, 2, None]
    assert [base(log.with_timestamp(9, below)) for below in (3, 4)] == [None, 2]
    assert [base(log.newest(below)) for below in (1, 2, 3, 4, 8)] == [None, 0, 0, 2, 2]


def test_the_size_of_a_span_is_that_of_its_batches() -> None:
    log = LogIndex(batch(2 * n, 2, 0) for n in range(4))
    spans = [(0, 8), (2, 6), (4, 4), (6, 8)]
    assert [log.size(*span) for span in spans] == [80, 40, 0, 20]


@pytest.mark.parametrize("at_least_one", [True, False])
def test_a_batch_of_the_greatest_size_that_is_allowed_is_served(at_least_one: bool) -> None:
    log = LogIndex(batch(2 * n, 2, 0) for n in range(3))
    spans = [log.span(0, 6, most, at_least_one) for most in (19, 20, 39, 40)]
    assert spans == [(0, 2) if at_least_one else (0, 0), (0, 2), (0, 2), (0, 4)]


@pytest.mark.parametrize(("producer", "known"), [(-1, False), (0, True)])
def test_producers_have_numbers_from_0_on(producer: int, known: bool) -> None:
    """-1 is that of a batch without one: equal batches of it are no duplicates."""
    stored = replace(batch(0, 2, 0), producer_id=producer, producer_epoch=0, base_sequence=0)
    log = LogIndex([stored])
    assert log.producer(producer) == ((stored,) if known else ())
    again = check_sequence((stored,), header_of(0, 0, 2, producer))
    assert again == (stored if known else None)
