"""A producer: sends messages at a steady rate, in order, to each partition's leader. It sends a
message again if the answer proves nothing, and records the outcome that the answer proves.

A batch waits for all messages of `linger_ms`, and the next one goes to another partition.

When a batch fails, no further batch is sent until all batches in flight have an answer; then the
failed ones are sent again, in their order. So an idempotent producer keeps its sequence numbers in
order (KIP-98).

A partition's leader recognises a batch again if it is among the last five of its producer. So no
batch is sent that would be the sixth from the oldest one without an answer, whose first leader may
have stored it and be unable to answer.

A batch that is given up leaves a gap in the sequence numbers of its partition, which then takes
another producer id. What waits behind the gap is sent again with that id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fencepost import MS, SECOND, ClientFailed
from fencepost_clusters.reference.client import outcomes
from fencepost_clusters.reference.client.routes import CHANNEL, Place, Routes
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import CallOutcome, ProduceCompleted, ProduceInvoked, ProducerOptions

MOST_RECOGNISED: Final = 5
MOST_IN_BATCH: Final = 100
MESSAGE_LIMIT_NS: Final = 30 * SECOND
REQUEST_LIMIT_MS: Final = 5_000
BACKOFF_NS: Final = 50 * MS
MOST_BACKOFF_NS: Final = 500 * MS
_DESYNCHRONISED = {Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH}


_Message = tuple[str, bytes, int]
"""Operation, value, and when it is given up."""


@dataclass(slots=True)
class _Batch:
    """Messages that are sent together; a retry has the same sequence number and bytes. `gap`: the
    last answer was that an earlier sequence number is missing, so it is not stored."""

    place: Place
    number: int
    """How many batches of its partition were made before it."""
    messages: tuple[_Message, ...]
    data: bytes
    call: int | None = None
    tries: int = 0
    again_ns: int = 0
    gap: bool = False

    @property
    def limit_ns(self) -> int:
        """When it is given up."""
        return self.messages[0][2]


@dataclass(slots=True)
class _Partition:
    """`sent` are batches without an answer, in order. `producer` is the producer id and epoch that
    its sequence numbers are of; `broken`: one of these will never be stored."""

    unsent: deque[_Message] = field(default_factory=deque)
    sent: deque[_Batch] = field(default_factory=deque)
    made: int = 0
    """How many batches it has had."""
    producer: tuple[int, int] | None = None
    next_sequence: int = 0
    broken: bool = False

    def may_send(self) -> bool:
        """Whether the leader would still recognise the oldest batch without an answer, if one more
        was sent."""
        return not self.sent or self.made - self.sent[0].number < MOST_RECOGNISED


class ProducerClient:
    """See the module. `done` is true once all its messages have an outcome."""

    def __init__(
        self, process: str, options: ProducerOptions, routes: Routes, out: Outbox, now: Instant
    ) -> None:
        self.done = False
        self._process = process
        self._options = options
        self._in_a_row = options.in_a_row
        self._routes = routes
        self._out = out
        self._began_ns = now.monotonic_ns
        self._number = 0
        self._gathering: Place | None = None
        """The partition to which the next message goes, too, in the batch of the last one."""
        self._partitions = {place: _Partition() for place in options.partitions}
        self._busy: dict[Place, _Partition] = {}
        """The partitions with messages that have no outcome yet."""
        self._open: dict[str, Place] = {}
        self._calls: dict[int, tuple[_Batch, ...]] = {}
        self._stop_ns: int | None = None
        self._producer: tuple[int, int] | None = None if options.idempotent else (-1, -1)
        """The newest producer id and epoch; None: it has to be asked for."""
        self._init: int | None = None
        self._init_ns = now.monotonic_ns

    # ------------------------------------------------------------------------------ time passes

    def stop(self, now: Instant) -> None:
        """Sends nothing new; waits for open messages."""
        self._gathering = None
        if self._stop_ns is None:
            self._stop_ns = now.monotonic_ns + self._options.flush_ms * MS

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        times = [self._routes.deadline_ns()]
        if self._stop_ns is None:
            times.append(self._due_ns())
        else:
            times.append(self._stop_ns)
        if self._producer is None and self._init is None:
            times.append(self._init_ns)
        times.extend(self._partition_ns(one) for one in self._busy.values())
        return min((t for t in times if t is not None), default=None)

    def _partition_ns(self, one: _Partition) -> int | None:
        """When a batch of a partition must be sent again, or given up."""
        times = [one.unsent[0][2]] if one.unsent else []
        times += [batch.limit_ns for batch in one.sent if batch.call is None]
        # While a batch is in flight, its answer is what the partition waits for.
        if not one.sent or any(batch.call is not None for batch in one.sent):
            return min(times, default=None)
        if self._routes.leader(one.sent[0].place) is not None:
            times.append(max(batch.again_ns for batch in one.sent))
        return min(times, default=None)

    def _due_ns(self) -> int:
        return self._began_ns + int(self._number * SECOND / self._options.rate)

    def tick(self, now: Instant) -> None:
        """Produces the messages that are due, gives up those that are too old, and sends
        batches."""
        self._routes.tick(now)
        options = self._options
        while self._stop_ns is None and now.monotonic_ns >= self._due_ns():
            self._invoke(now)
            if self._number == options.count:
                self.stop(now)
        if self._producer is None and self._init is None and now.monotonic_ns >= self._init_ns:
            self._init = self._out.call(
                self._routes.any_broker(),
                CHANNEL,
                m.InitProducerIdRequest(transactional_id=None),
                REQUEST_LIMIT_MS,
            )
        for place, one in tuple(self._busy.items()):
            self._expire(one, now)
            self._send(place, one, now)
            if not one.unsent and not one.sent:
                del self._busy[place]
        if self._stop_ns is not None and (not self._open or now.monotonic_ns >= self._stop_ns):
            self._finish()

    def _invoke(self, now: Instant) -> None:
        options = self._options
        operation = f"{self._process}:{self._number}"
        place = options.place(self._number)
        self._number += 1
        topic, partition = place
        self._out.note(
            ProduceInvoked(
                operation=operation,
                topic=topic,
                partition=partition,
                acks=options.acks,
                idempotent=options.idempotent,
            )
        )
        self._open[operation] = place
        value = f"{operation} ".encode().ljust(options.size, b".")
        limit_ns = now.monotonic_ns + MESSAGE_LIMIT_NS
        self._busy[place] = self._partitions[place]
        self._busy[place].unsent.append((operation, value, limit_ns))
        self._gathering = place if self._number % self._in_a_row else None

    def _expire(self, one: _Partition, now: Instant) -> None:
        while one.unsent and one.unsent[0][2] <= now.monotonic_ns:
            self._complete(one.unsent.popleft()[0], "unknown", -1, "_MSG_TIMED_OUT")
        for batch in [b for b in one.sent if b.limit_ns <= now.monotonic_ns and b.call is None]:
            # Its sequence numbers are used: later messages need a new producer id.
            one.sent.remove(batch)
            one.broken = self._options.idempotent
            self._end(batch, "unknown", -1, "_MSG_TIMED_OUT")

    # ------------------------------------------------------------------------------------- sending

    def _send(self, place: Place, one: _Partition, now: Instant) -> None:
        address = self._routes.leader(place)
        if address is None:
            self._routes.stale(now)
            return
        # All answers are in, and each says that an earlier number is missing. So none of these
        # batches is stored, and their messages may be sent again under another producer id.
        if one.broken and all(b.call is None and b.gap for b in one.sent):
            for batch in reversed(one.sent):
                one.unsent.extendleft(reversed(batch.messages))
            one.sent.clear()
        failed = [b for b in one.sent if b.call is None]
        if failed:
            # They keep their sequence numbers, so they need no new producer id.
            # Not before every batch has its answer: a batch that is sent again out of order would
            # have a sequence number that the leader refuses.
            if len(failed) == len(one.sent) and all(b.again_ns <= now.monotonic_ns for b in failed):
                for batch in failed:
                    self._dispatch(batch, one)
            return
        if not self._has_producer(one, now):
            return
        while one.unsent and place != self._gathering and one.may_send():
            batch = self._form(place, one, now)
            one.sent.append(batch)
            self._dispatch(batch, one)

    def _has_producer(self, one: _Partition, now: Instant) -> bool:
        """Whether the partition can go on with its producer id, or with a newer one."""
        if one.producer is not None and not one.broken:
            return True
        # Batches with the former producer id may still be stored. Only once they are settled may
        # the next id begin.
        if one.sent:
            return False
        # Another partition may have asked for a newer id already: then that one is taken.
        if one.broken and one.producer == self._producer:
            self._producer, self._init_ns = None, now.monotonic_ns
        if self._producer is None:
            return False
        one.producer, one.next_sequence, one.broken = self._producer, 0, False
        return True

    def _form(self, place: Place, one: _Partition, now: Instant) -> _Batch:
        count = min(len(one.unsent), MOST_IN_BATCH)
        several = [one.unsent.popleft() for _ in range(count)]
        assert one.producer is not None
        producer_id, epoch = one.producer
        sequence = one.next_sequence if producer_id >= 0 else -1
        one.next_sequence = (one.next_sequence + count) & 0x7FFFFFFF
        values = [value for _, value, _ in several]
        data = record_batch.build(
            values, 0, -1, now.wall_ms, producer=(producer_id, epoch, sequence)
        )
        one.made += 1
        return _Batch(place, one.made - 1, tuple(several), data)

    def _dispatch(self, batch: _Batch, one: _Partition) -> None:
        address = self._routes.leader(batch.place)
        assert address is not None
        topic, index = batch.place
        part = m.PartitionProduceData(index=index, records=batch.data)
        request = m.ProduceRequest(
            acks=self._options.acks,
            timeout=REQUEST_LIMIT_MS,
            topic_data=(m.TopicProduceData(name=topic, partition_data=(part,)),),
        )
        call = self._out.call(address, CHANNEL, request, REQUEST_LIMIT_MS)
        if self._options.acks == 0:
            one.sent.remove(batch)
            self._end(batch, "unknown", -1, "")  # acks=0 has no answer: the bytes were written
            return
        batch.call = call
        self._calls[call] = (batch,)

    # ------------------------------------------------------------------------------------- answers

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes an answer in; False if the call was not ours."""
        if self._routes.answered(call_id, answer, now):
            return True
        if call_id == self._init:
            assert isinstance(answer, m.InitProducerIdResponse), answer
            self._init = None
            if answer.error_code == Error.NONE:
                self._producer = (answer.producer_id, answer.producer_epoch)
            else:
                self._init_ns = now.monotonic_ns + BACKOFF_NS
            return True
        batches = self._calls.pop(call_id, None)
        if batches is None:
            return False
        assert isinstance(answer, m.ProduceResponse), answer
        part = answer.responses[0].partition_responses[0]
        for batch in batches:
            batch.call = None
            self._judge(batch, part.error_code, part.base_offset, now)
        return True

    def failed(self, call_id: int, now: Instant) -> bool:
        """A call got no answer; False if it was not ours."""
        if self._routes.failed(call_id, now):
            return True
        if call_id == self._init:
            self._init, self._init_ns = None, now.monotonic_ns + BACKOFF_NS
            return True
        batches = self._calls.pop(call_id, None)
        if batches is None:
            return False
        self._routes.stale(now)
        for batch in batches:
            batch.call, batch.gap = None, False
            self._retry(batch, now)
        return True

    def _judge(self, batch: _Batch, code: int, base: int, now: Instant) -> None:
        one = self._partitions[batch.place]
        # It was given up meanwhile, and has its outcome.
        if batch not in one.sent:
            return
        # A duplicate is stored already, by an earlier try. The leader does not say at which offset.
        if code in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
            one.sent.remove(batch)
            self._end(batch, "ok", base if code == Error.NONE else -1, "")
        elif code in outcomes.REFUSED_FOR_GOOD:
            one.sent.remove(batch)
            one.broken = self._options.idempotent
            self._end(batch, "failed", -1, outcomes.name_of(code))
        # The oldest batch, at its first try, follows on all that was acknowledged. If its number is
        # wrong, the leader has lost what it had acknowledged, or has counted otherwise.
        elif code in _DESYNCHRONISED and one.sent[0] is batch and not (batch.tries or one.broken):
            self._break_off(outcomes.name_of(code))
        else:
            batch.gap = code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
            if code in outcomes.STALE_ROUTE:
                self._routes.stale(now)
            self._retry(batch, now)

    @staticmethod
    def _retry(batch: _Batch, now: Instant) -> None:
        backoff_ns = min(BACKOFF_NS << min(batch.tries, 4), MOST_BACKOFF_NS)
        batch.tries += 1
        batch.again_ns = now.monotonic_ns + backoff_ns

    def _end(self, batch: _Batch, outcome: CallOutcome, base: int, error: str) -> None:
        for at, (operation, _, _) in enumerate(batch.messages):
            self._complete(operation, outcome, base + at if base >= 0 else -1, error)

    def _complete(self, operation: str, outcome: CallOutcome, offset: int, error: str) -> None:
        place = self._open.pop(operation, None)
        if place is not None:
            topic, partition = place
            self._out.note(
                ProduceCompleted(
                    operation=operation,
                    topic=topic,
                    partition=partition,
                    acks=self._options.acks,
                    outcome=outcome,
                    offset=offset,
                    error=error,
                )
            )

    def _break_off(self, error: str) -> None:
        """The broker's sequence numbers and ours differ: no message can be sent safely any more."""
        self._out.note(ClientFailed(error=f"{error}: sequence numbers no longer agree", fatal=True))
        self._finish()

    def _finish(self) -> None:
        for operation in _open_ones(self._open):
            self._complete(operation, "unknown", -1, "no report")
        self.done = True


def _open_ones(still: dict[str, Place]) -> Iterable[str]:
    return tuple(still)
