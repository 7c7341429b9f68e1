"""A consumer, which reads until it is stopped, and a reader, which reads up to an end offset.

Neither has a group, and neither commits anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fencepost import MS, ClientFailed
from fencepost_clusters.reference.client.fetcher import Came, Fetcher, Refused
from fencepost_clusters.reference.client.routes import CHANNEL, Place, Routes
from fencepost_clusters.reference.core.node.effects import Address, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    BEGINNING,
    FETCH_MIN_BYTES,
    CallOutcome,
    ConsumerOptions,
    ConsumerPositioned,
    Polled,
    ReadCompleted,
    ReaderOptions,
    Seek,
)

LATEST = -1
ASK_LIMIT_MS: Final = 2_000
ASK_AGAIN_NS: Final = 100 * MS
MOST_IN_EVENT: Final = 500


class ConsumerClient:
    """See the module."""

    def __init__(self, options: ConsumerOptions, routes: Routes, out: Outbox, now: Instant) -> None:
        self.done = False
        self._routes = routes
        self._out = out
        self._fetching = Fetcher(routes, out, FETCH_MIN_BYTES)
        for place in options.partitions:
            self._move(place, options.offset)

    def _move(self, place: Place, offset: int, refused: Refused | None = None) -> None:
        topic, partition = place
        self._out.note(
            ConsumerPositioned(
                topic=topic,
                partition=partition,
                offset=offset,
                out_of_range=refused is not None,
                refused_by=-1 if refused is None else refused.broker_id,
            )
        )
        self._fetching.move(place, offset)

    def seek(self, command: Seek) -> None:
        """Continues at another offset."""
        self._move((command.topic, command.partition), command.offset)

    def stop(self, now: Instant) -> None:
        """Stops reading."""
        self.done = True

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        return _earliest(self._routes.deadline_ns(), self._fetching.deadline_ns())

    def tick(self, now: Instant) -> None:
        """Sends the requests that are due."""
        self._routes.tick(now)
        self._fetching.tick(now)

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes an answer in; False if the call was not ours."""
        if self._routes.answered(call_id, answer, now):
            return True
        found = self._fetching.answered(call_id, answer, now)
        for one in found or ():
            if isinstance(one, Came):
                record(self._out, one, False)
            elif isinstance(one, Refused):
                self._out.note(
                    ClientFailed(error=f"_AUTO_OFFSET_RESET: {one.error.name}", fatal=False)
                )
                self._move(one.place, BEGINNING, refused=one)
        return found is not None

    def failed(self, call_id: int, now: Instant) -> bool:
        """A call got no answer; False if it was not ours."""
        return self._routes.failed(call_id, now) or self._fetching.failed(call_id, now)


@dataclass(slots=True)
class _Progress:
    """The progress in one partition: its bounds, once they are known, and the offset read so
    far. `shown` is the end by the offsets that clients were shown."""

    shown: int = 0
    start: int = -1
    end: int = -1
    seen: int = 0
    not_before_ns: int = 0
    asking: bool = False
    asked_ns: int = 0
    error: str = "its bounds were not received in time"

    @property
    def missing(self) -> int:
        return self.end - self.start - self.seen

    @property
    def ended(self) -> bool:
        return self.start >= 0 and self.end >= 0 and self.missing == 0


class ReaderClient:
    """See the module."""

    def __init__(self, options: ReaderOptions, routes: Routes, out: Outbox, now: Instant) -> None:
        self.done = False
        self._options = options
        self._routes = routes
        self._out = out
        self._fetching = Fetcher(routes, out)
        self._progress = {place: _Progress(end) for place, end in options.ends.items()}
        self._settled_ns = now.monotonic_ns + options.settle_ms * MS
        self._limit_ns = now.monotonic_ns + options.limit_ms * MS
        self._calls: dict[int, Place] = {}

    def stop(self, now: Instant) -> None:
        """Gives up the offsets that were not read."""
        self._limit_ns = min(self._limit_ns, now.monotonic_ns)

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        asks = (
            one.not_before_ns
            for place, one in self._progress.items()
            if one.end < 0 and not one.asking and self._routes.leader(place) is not None
        )
        return _earliest(
            self._limit_ns,
            self._routes.deadline_ns(),
            self._fetching.deadline_ns(),
            min(asks, default=None),
        )

    def tick(self, now: Instant) -> None:
        """Asks for bounds and messages; reports once every offset was seen or the time is over."""
        if now.monotonic_ns >= self._limit_ns or all(p.ended for p in self._progress.values()):
            for place, one in self._progress.items():
                self._report(place, one)
            self.done = True
            return
        self._routes.tick(now)
        for place, one in self._progress.items():
            if one.end < 0 and not one.asking and one.not_before_ns <= now.monotonic_ns:
                address = self._routes.leader(place)
                if address is None:
                    self._routes.stale(now)
                else:
                    self._ask(place, one, address, now)
        self._fetching.tick(now)

    def _ask(self, place: Place, one: _Progress, address: Address, now: Instant) -> None:
        topic, index = place
        # The beginning first: the end may be asked for again and again, until it has settled.
        wanted = BEGINNING if one.start < 0 else LATEST
        part = m.ListOffsetsPartition(partition_index=index, timestamp=wanted)
        request = m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name=topic, partitions=(part,)),))
        self._calls[self._out.call(address, CHANNEL, request, ASK_LIMIT_MS)] = place
        one.asking, one.asked_ns = True, now.monotonic_ns

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes an answer in; False if the call was not ours."""
        if self._routes.answered(call_id, answer, now):
            return True
        place = self._calls.pop(call_id, None)
        if place is not None:
            assert isinstance(answer, m.ListOffsetsResponse), answer
            self._bound(place, answer.topics[0].partitions[0], now)
            return True
        found = self._fetching.answered(call_id, answer, now)
        for one in found or ():
            if isinstance(one, Came):
                self._came(one)
            else:
                self._progress[one.place].error = one.error.name
                self._fetching.drop(one.place)
        return found is not None

    def failed(self, call_id: int, now: Instant) -> bool:
        """A call got no answer; False if it was not ours."""
        place = self._calls.pop(call_id, None)
        if place is not None:
            self._ask_again(place, "_TIMED_OUT", now)
            return True
        return self._routes.failed(call_id, now) or self._fetching.failed(call_id, now)

    def _bound(self, place: Place, part: m.ListOffsetsPartitionResponse, now: Instant) -> None:
        one = self._progress[place]
        if part.error_code != Error.NONE:
            self._ask_again(place, Error(part.error_code).name, now)
            return
        one.asking = False
        if one.start < 0:
            one.start = part.offset
            return
        # Clients were shown messages beyond this end. A new leader may learn only later that they
        # are committed, so the end is asked for again for a while.
        if part.offset < one.shown and now.monotonic_ns < self._settled_ns:
            one.not_before_ns = now.monotonic_ns + ASK_AGAIN_NS
            return
        one.end = part.offset
        if one.missing:
            self._fetching.move(place, one.start)

    def _ask_again(self, place: Place, error: str, now: Instant) -> None:
        one = self._progress[place]
        one.asking, one.error = False, error
        one.not_before_ns = now.monotonic_ns + ASK_AGAIN_NS
        self._routes.stale(now)

    def _came(self, came: Came) -> None:
        record(self._out, came, self._options.final)
        one = self._progress[came.place]
        # A batch may reach beyond the end that was asked for.
        one.seen += sum(1 for offset in came.offsets if one.start <= offset < one.end)
        if one.ended:
            self._fetching.drop(came.place)

    def _report(self, place: Place, one: _Progress) -> None:
        outcome: CallOutcome = "ok"
        error = ""
        if one.end < 0:
            outcome, error = "unknown", one.error
        elif one.missing:
            outcome, error = "unknown", f"{one.missing} offsets were not seen in time"
        if self._options.final:
            self._out.note(
                ReadCompleted(
                    topic=place[0],
                    partition=place[1],
                    start=one.start,
                    end=one.end,
                    outcome=outcome,
                    error=error,
                    asked_ns=one.asked_ns,
                )
            )
        elif error:
            self._out.note(ClientFailed(error=f"{place[0]}-{place[1]}: {error}", fatal=False))


def record(out: Outbox, came: Came, final: bool) -> None:
    """Records the messages that were read, as events of at most `MOST_IN_EVENT` messages."""
    topic, partition = came.place
    for at in range(0, len(came.offsets), MOST_IN_EVENT):
        to = at + MOST_IN_EVENT
        out.note(
            Polled(
                topic=topic,
                partition=partition,
                offsets=came.offsets[at:to],
                operations=came.operations[at:to],
                final=final,
            )
        )


def _earliest(*times: int | None) -> int | None:
    return min(_known(times), default=None)


def _known(times: Iterable[int | None]) -> Iterable[int]:
    return (t for t in times if t is not None)
