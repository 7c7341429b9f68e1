"""The producer's core: messages that are given up, and those that are sent again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fencepost_clusters.reference.client.producer import MESSAGE_LIMIT_NS, ProducerClient
from fencepost_clusters.reference.core.node.effects import Call, Instant, Outbox
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import ProducerOptions

SECOND = 1_000_000_000


class Bench:
    """An idempotent producer of one message each 5 s, to two partitions in turn. No call is
    answered but that for a producer id."""

    def __init__(self) -> None:
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
        options = ProducerOptions(partitions=(("orders", 0), ("orders", 1)), rate=0.2)
        self.producer = ProducerClient("p#1", options, routes, self.out, Instant(0, 0))
        self.open: set[int] = set()
        self.now_ns = 0

    def passes(self, until_ns: int) -> list[int]:
        """Lets time pass to a moment, in tenths of a second. Each call fails after one of them.
        Returns the partitions to which it has sent meanwhile."""
        sent: list[int] = []
        while self.now_ns < until_ns:
            self.now_ns += SECOND // 10
            now = Instant(self.now_ns, 0)
            for call in sorted(self.open):
                self.open.discard(call)
                assert self.producer.failed(call, now)
            self.producer.tick(now)
            for one in (e for e in self.out.drain() if isinstance(e, Call)):
                match one.message:
                    case m.InitProducerIdRequest():
                        answer = m.InitProducerIdResponse(
                            error_code=0, producer_id=7, producer_epoch=0
                        )
                        assert self.producer.answered(one.call_id, answer, now)
                    case m.ProduceRequest(topic_data=(topic,)):
                        self.open.add(one.call_id)
                        sent += [part.index for part in topic.partition_data]
        return sent


def test_a_message_is_sent_again_though_one_of_another_partition_was_given_up() -> None:
    bench = Bench()
    assert set(bench.passes(MESSAGE_LIMIT_NS)) == {0, 1}
    # The first message, to partition 0, is given up. That to partition 1 has 5 s left.
    bench.passes(MESSAGE_LIMIT_NS + SECOND // 2)
    assert 1 in bench.passes(MESSAGE_LIMIT_NS + 3 * SECOND)
