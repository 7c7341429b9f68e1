"""The producer's core: messages that are given up, and those that are sent again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from fencepost_clusters.reference.client.producer import MESSAGE_LIMIT_NS, ProducerClient
from fencepost_clusters.reference.core.node.effects import Call, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ProduceCompleted, ProducerOptions

SECOND = 1_000_000_000


class Sent(NamedTuple):
    """A produce request: its partition, producer id, first sequence number and messages."""

    partition: int
    producer: int
    sequence: int
    messages: int = 1


def unanswered(sent: Sent) -> Error | None:
    return None


class Bench:
    """An idempotent producer of one message each `every_s`, to two partitions in turn. `answer`
    decides how a broker answers a produce, `lasts` after it. Without an answer the call fails.
    """

    def __init__(
        self,
        answer: Callable[[Sent], Error | None] = unanswered,
        every_s: float = 5,
        lasts: Callable[[Sent], int] = lambda sent: SECOND // 10,
        linger_ms: int = 0,
    ) -> None:
        self.out = Outbox()
        routes: Any = SimpleNamespace(
            leader=lambda place: ("broker", 9092),
            any_broker=lambda: ("broker", 9092),
            stale=lambda now: None,
            tick=lambda now: None,
            deadline_ns=lambda: None,
            answered=lambda *_: False,
            failed=lambda *_: False,
        )
        options = ProducerOptions(
            partitions=(("orders", 0), ("orders", 1)), rate=1 / every_s, linger_ms=linger_ms
        )
        self.producer = ProducerClient("p#1", options, routes, self.out, Instant(0, 0))
        self.answer = answer
        self.lasts = lasts
        self.open: dict[int, tuple[Sent, int]] = {}
        """Call -> what it has sent, and when it ends."""
        self.outcomes: dict[str, str] = {}
        self.ids = 6
        self.now_ns = 0

    def passes(self, until_ns: int) -> list[Sent]:
        """Lets time pass to a moment, in tenths of a second. Returns what was sent meanwhile."""
        sent: list[Sent] = []
        while self.now_ns < until_ns:
            self.now_ns += SECOND // 10
            now = Instant(self.now_ns, 0)
            for call, (one, ends_ns) in sorted(self.open.items()):
                if ends_ns <= self.now_ns:
                    del self.open[call]
                    self._end(call, one, now)
            before = set(self.open)
            self.producer.tick(now)
            for effect in self.out.drain():
                body = getattr(effect, "body", None)
                if isinstance(body, ProduceCompleted):
                    self.outcomes[body.operation] = body.outcome
                if isinstance(effect, Call):
                    self._take(effect, now)
            sent += [one for call, (one, _) in self.open.items() if call not in before]
        return sent

    def _end(self, call: int, one: Sent, now: Instant) -> None:
        error = self.answer(one)
        if error is None:
            assert self.producer.failed(call, now)
            return
        part = m.PartitionProduceResponse(index=one.partition, error_code=error, base_offset=0)
        topic = m.TopicProduceResponse(name="orders", partition_responses=(part,))
        assert self.producer.answered(call, m.ProduceResponse(responses=(topic,)), now)

    def _take(self, effect: Call, now: Instant) -> None:
        match effect.message:
            case m.InitProducerIdRequest():
                self.ids += 1
                answer = m.InitProducerIdResponse(
                    error_code=0, producer_id=self.ids, producer_epoch=0
                )
                assert self.producer.answered(effect.call_id, answer, now)
            case m.ProduceRequest(topic_data=(topic,)):
                (part,) = topic.partition_data
                assert part.records is not None
                batch = record_batch.parse(part.records)
                count = batch.last_offset_delta + 1
                one = Sent(part.index, batch.producer_id, batch.base_sequence, count)
                self.open[effect.call_id] = one, self.now_ns + self.lasts(one)


def test_a_message_is_sent_again_though_one_of_another_partition_was_given_up() -> None:
    bench = Bench()
    assert {one.partition for one in bench.passes(MESSAGE_LIMIT_NS)} == {0, 1}
    # The first message, to partition 0, is given up. That to partition 1 has 5 s left.
    bench.passes(MESSAGE_LIMIT_NS + SECOND // 2)
    sent = bench.passes(MESSAGE_LIMIT_NS + 3 * SECOND)
    assert 1 in {one.partition for one in sent}


def test_a_partition_goes_on_while_another_one_waits_for_a_new_producer_id() -> None:
    bench = Bench(lambda sent: Error.NONE if sent.partition == 1 else None)
    bench.passes(MESSAGE_LIMIT_NS + SECOND // 2)
    assert bench.outcomes["p#1:0"] == "unknown"
    later = bench.passes(MESSAGE_LIMIT_NS + 30 * SECOND)
    assert [one for one in later if one.partition == 1] == [Sent(1, 7, n) for n in (3, 4, 5)]


def test_what_waits_behind_a_gap_is_sent_again_with_a_new_producer_id() -> None:
    """The broker never gets the first message, and stores in the order of the sequence numbers of
    one producer id."""

    def answer(sent: Sent) -> Error | None:
        if sent.partition == 1 or sent.producer > 7:
            return Error.NONE
        return None if sent.sequence == 0 else Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    bench = Bench(answer, every_s=0.1, lasts=lambda sent: SECOND // 2)
    waiting = bench.passes(MESSAGE_LIMIT_NS - SECOND)
    assert {one.producer for one in waiting} == {7}
    bench.passes(MESSAGE_LIMIT_NS + 2 * SECOND)
    assert bench.outcomes["p#1:0"] == "unknown"
    assert [bench.outcomes.get(f"p#1:{number}") for number in (20, 40, 60)] == ["ok"] * 3


def test_a_leader_can_recognise_a_batch_again_that_had_no_answer() -> None:
    """A leader recognises the last five batches of a producer. So there may be no sixth before the
    first one has an answer, though those in between have theirs."""

    def lasts(sent: Sent) -> int:
        return 3 * SECOND if sent.sequence == 0 else SECOND // 10

    bench = Bench(lambda sent: Error.NONE, every_s=0.1, lasts=lasts)
    early = bench.passes(3 * SECOND)  # The first batch has two messages.
    assert [one.sequence for one in early if one.partition == 0] == [0, 2, 3, 4, 5]
    assert [bench.outcomes.get(f"p#1:{number}") for number in (2, 4, 8)] == [None, "ok", "ok"]
    bench.passes(5 * SECOND)
    assert [bench.outcomes.get(f"p#1:{number}") for number in (2, 12, 40)] == ["ok"] * 3


def test_a_batch_has_the_messages_of_its_linger_and_the_next_one_goes_to_another_partition() -> (
    None
):
    bench = Bench(lambda sent: Error.NONE, every_s=0.2, linger_ms=600)
    sent = bench.passes(2 * SECOND)
    assert sent == [Sent(0, 7, 0, 3), Sent(1, 7, 0, 3), Sent(0, 7, 3, 3)]
    assert [bench.outcomes.get(f"p#1:{number}") for number in (0, 5, 8, 9)] == ["ok"] * 3 + [None]


def test_a_producer_that_stops_waits_for_no_further_messages() -> None:
    bench = Bench(lambda sent: Error.NONE, every_s=0.4, linger_ms=900)
    assert bench.passes(SECOND // 2) == []
    bench.producer.stop(Instant(SECOND // 2, 0))
    assert bench.passes(SECOND) == [Sent(0, 7, 0, 2)]


def test_a_batch_is_sent_again_while_the_next_one_of_its_partition_is_gathered() -> None:
    failures = [None]

    def answer(sent: Sent) -> Error | None:
        return failures.pop() if failures and sent.partition == 0 else Error.NONE

    bench = Bench(answer, every_s=0.2, linger_ms=600, lasts=lambda sent: SECOND)
    bench.passes(
        14 * SECOND // 10
    )  # The first batch fails. Two of the next three messages are here.
    assert bench.passes(15 * SECOND // 10) == [Sent(0, 7, 0, 3)]
    assert bench.passes(16 * SECOND // 10) == [Sent(0, 7, 3, 3)]
