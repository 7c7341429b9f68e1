"""A producer: messages at a steady rate, each with the outcome that its report proves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fencepost import ClientFailed
from fencepost_kafka.clients.commands import ProducerOptions
from fencepost_kafka.confluent import outcomes
from fencepost_kafka.confluent.session import SLICE_S, Session, named
from fencepost_kafka.events import ProduceCompleted, ProduceInvoked, ProducerEpochChanged
from fencepost_kafka.events.values import CallOutcome

_STATISTICS_MS = 200
"""How often librdkafka reports statistics, which are the only source of its producer epoch."""


class _Identity(msgspec.Struct, frozen=True):
    """The id and the epoch of the producer, as brokers know it (both -1: none, or none now)."""

    producer_id: int = -1
    producer_epoch: int = -1


class _Statistics(msgspec.Struct, frozen=True):
    """The relevant part of librdkafka's statistics."""

    eos: _Identity = _Identity()


@final
class ProducerWork:
    """One producer's work, from its first message to the last report."""

    def __init__(self, session: Session, options: ProducerOptions) -> None:
        self._session = session
        self._options = options
        self._open: dict[str, tuple[str, int]] = {}
        """operation -> partition, for every message without a report."""
        acks = "all" if options.acks == -1 else str(options.acks)
        own: dict[str, object] = {
            "acks": acks,
            "enable.idempotence": options.idempotent,
            "linger.ms": options.linger_ms,
            "message.timeout.ms": 30_000,
            "request.timeout.ms": 5_000,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
            "statistics.interval.ms": _STATISTICS_MS if options.idempotent else 0,
            "stats_cb": self._statistics,
        }
        if options.linger_ms:
            own["batch.num.messages"] = options.in_a_row  # a batch that is full waits no longer
        self._identity: _Identity | None = None
        self._reported_ns = time.monotonic_ns()
        self._producer = Producer(session.settings(own, options.settings.items(), options.user))

    def run(self, now: Callable[[], float]) -> None:
        """Produces until `count`, a fatal error or a request to stop; then flushes.

        `now` is a monotonic clock in seconds: after a late message the next one follows at once, so
        that the rate holds on average.
        """
        began = now()
        number = 0
        while number < self._options.count or not self._options.count:
            able = self._serve(began + number / self._options.rate, now)
            if not able or self._session.stopping.is_set() or not self._send(number):
                break
            number += 1
        self._finish(now)

    def _serve(self, until: float, now: Callable[[], float]) -> bool:
        """Lets librdkafka work and report until that time. Returns False if it cannot go on: an
        idempotent producer that lost its sequence fails here."""
        try:
            self._producer.poll(0)
            while (left := until - now()) > 0 and not self._session.stopping.is_set():
                self._producer.poll(min(left, SLICE_S))
        except KafkaException as failed:
            self._session.recorder.record(ClientFailed(error=named(failed.args[0]), fatal=True))
            return False
        return True

    def _send(self, number: int) -> bool:
        """Hands one message over; returns False if the producer cannot go on."""
        options = self._options
        operation = f"{self._session.config.process}:{number}"
        topic, partition = options.place(number)
        self._session.recorder.record(
            ProduceInvoked(
                operation=operation,
                topic=topic,
                partition=partition,
                acks=options.acks,
                idempotent=options.idempotent,
            )
        )
        self._open[operation] = (topic, partition)
        value = f"{operation} ".encode().ljust(options.size, b".")
        try:
            self._producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, message: self._reported(operation, error, message),
            )
        except BufferError:
            self._complete(operation, "failed", -1, "_QUEUE_FULL")
            self._producer.poll(SLICE_S)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            never = error.code() in outcomes.NEVER_SENT
            self._complete(operation, "failed" if never else "unknown", -1, named(error))
            return False
        return True

    def _statistics(self, statistics: str) -> None:
        """Records a new producer epoch, for every partition that is written to."""
        last_ns, self._reported_ns = self._reported_ns, time.monotonic_ns()
        now = msgspec.json.decode(statistics, type=_Statistics).eos
        if now.producer_id < 0 or now.producer_epoch < 0 or now == self._identity:
            return
        first, self._identity = self._identity is None, now
        if first:
            return
        for topic, partition in dict.fromkeys(self._options.partitions):
            self._session.recorder.record(
                ProducerEpochChanged(
                    topic=topic,
                    partition=partition,
                    producer_id=now.producer_id,
                    epoch=now.producer_epoch,
                    since_ns=last_ns,
                )
            )

    def _reported(self, operation: str, error: KafkaError | None, message: Message) -> None:
        outcome = outcomes.of_produce(self._options.acks, error)
        offset = message.offset()
        stored_at = offset if outcome == "ok" and offset is not None else -1
        if error is None:
            self._complete(operation, outcome, stored_at, "")
        else:
            self._complete(operation, outcome, stored_at, error.name(), outcomes.reason(error))

    def _complete(
        self, operation: str, outcome: CallOutcome, offset: int, error: str, reason: str = ""
    ) -> None:
        # A report may come after a flush gave up: the first result counts.
        place = self._open.pop(operation, None)
        if place is not None:
            acks = self._options.acks
            self._session.recorder.record(
                ProduceCompleted(
                    operation=operation,
                    topic=place[0],
                    partition=place[1],
                    acks=acks,
                    outcome=outcome,
                    offset=offset,
                    error=error,
                    reason=reason,
                )
            )

    def _finish(self, now: Callable[[], float]) -> None:
        deadline = now() + self._options.flush_ms / 1000
        try:
            while self._open and (left := deadline - now()) > 0:
                self._producer.flush(min(left, SLICE_S))
        except KafkaException as failed:
            self._session.recorder.record(ClientFailed(error=named(failed.args[0]), fatal=True))
        for operation in list(self._open):
            self._complete(operation, "unknown", -1, "no report")
        self._producer.purge()
