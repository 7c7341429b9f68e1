"""A reading of whole partitions, from their start to the end they have when it begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fencepost import ClientFailed
from fencepost_kafka.clients.commands import ReaderOptions
from fencepost_kafka.confluent.consumer import (
    BATCH,
    make_consumer,
    offset_of,
    partition_of,
    record_contents,
    record_polled,
)
from fencepost_kafka.confluent.session import SLICE_S, Session, named
from fencepost_kafka.events import ReadCompleted
from fencepost_kafka.events.values import CallOutcome

ASK_S = 2.0
"""How long one request for a partition's bounds may take."""
ASKED_FOR = 0.5
"""For which part of the limit bounds are asked for: a partition without a leader has none, and the
others are read nevertheless."""


@final
@dataclass(slots=True)
class Progress:
    """The progress in one partition: its bounds, once received, and the offsets seen. `shown` is
    the end by the offsets that clients were shown."""

    shown: int = 0
    start: int = -1
    end: int = -1
    asked_ns: int = 0
    seen: set[int] = field(default_factory=set)
    error: str = "its bounds were not received in time"
    at_end: bool = False
    """Whether the library said that nothing follows: what it skipped, no client reads."""

    @property
    def bounded(self) -> bool:
        return self.end >= 0

    @property
    def missing(self) -> int:
        """How many offsets of [start, end) were not seen, and could be."""
        if self.at_end:
            return 0
        return self.end - self.start - len(self.seen)

    def see(self, offset: int) -> None:
        if self.start <= offset < self.end:
            self.seen.add(offset)


@final
class ReaderWork:
    """One reader's work."""

    def __init__(self, session: Session, options: ReaderOptions) -> None:
        self._session = session
        self._options = options
        settings = dict(options.settings)
        if options.contents:
            settings["enable.partition.eof"] = "true"
        self._consumer: Consumer = make_consumer(session, settings.items())
        self._progress = {place: Progress(end) for place, end in options.ends.items()}

    def run(self, now: Callable[[], float]) -> None:
        """Reads until everything was seen, the limit has passed, or it is asked to stop."""
        began, limit_s = now(), self._options.limit_ms / 1000
        asked_until = began + ASKED_FOR * limit_s

        def left(until: float = began + limit_s) -> float:
            return 0.0 if self._session.stopping.is_set() else max(0.0, until - now())

        settled = min(asked_until, began + self._options.settle_ms / 1000)
        self._ask_bounds(lambda: left(asked_until), lambda: now() >= settled)
        self._consumer.assign(
            [TopicPartition(*place, p.start) for place, p in self._progress.items() if p.bounded]
        )
        while any(p.bounded and p.missing for p in self._progress.values()) and left():
            messages = self._consumer.consume(BATCH, min(SLICE_S, left()))
            good = [m for m in messages if m.error() is None]
            record_polled(self._session, good, self._options.final)
            for message in good:
                self._progress[partition_of(message)].see(offset_of(message))
            if self._options.contents:
                record_contents(self._session, good)
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        self._progress[partition_of(message)].at_end = True
        self._consumer.close()
        for place, progress in self._progress.items():
            self._report(place, progress)

    def _ask_bounds(self, left: Callable[[], float], settled: Callable[[], bool]) -> None:
        """Asks every partition's leader for its bounds, again while there is time. An end below
        what clients were shown counts only once ends have settled."""
        unasked = list(self._progress)
        while unasked and left():
            for place in list(unasked):
                progress = self._progress[place]
                progress.asked_ns = time.monotonic_ns()
                try:
                    bounds = self._consumer.get_watermark_offsets(
                        TopicPartition(*place), timeout=min(ASK_S, left() or SLICE_S)
                    )
                except KafkaException as failed:
                    progress.error = named(failed.args[0])
                    self._consumer.poll(SLICE_S)
                    self._refresh(place[0], left)
                else:
                    if bounds is not None and (bounds[1] >= progress.shown or settled()):
                        progress.start, progress.end = bounds
                        unasked.remove(place)
                    elif bounds is not None:
                        self._consumer.poll(SLICE_S)

    def _refresh(self, topic: str, left: Callable[[], float]) -> None:
        """Asks a broker for the topic's leaders: a partition without one has no bounds, and the
        library asks again only after its refresh interval, even if it has one by then."""
        with suppress(KafkaException):  # no broker answers: the bounds are asked for again
            self._consumer.list_topics(topic, timeout=min(ASK_S, left() or SLICE_S))

    def _report(self, place: tuple[str, int], progress: Progress) -> None:
        outcome: CallOutcome
        if not progress.bounded:
            outcome, error = "unknown", progress.error
        elif progress.missing:
            outcome, error = "unknown", f"{progress.missing} offsets were not seen in time"
        else:
            outcome, error = "ok", ""
        if self._options.final:
            self._session.recorder.record(
                ReadCompleted(
                    topic=place[0],
                    partition=place[1],
                    start=progress.start,
                    end=progress.end,
                    outcome=outcome,
                    error=error,
                    asked_ns=progress.asked_ns,
                )
            )
        elif error:
            self._session.recorder.record(
                ClientFailed(error=f"{place[0]}-{place[1]}: {error}", fatal=False)
            )
