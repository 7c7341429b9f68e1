"""Reads partitions from their leaders: positions, one fetch at a time to a broker, results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost import MS
from fencepost_clusters.reference.client.routes import Place, Routes
from fencepost_clusters.reference.core.node.effects import Address, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import BEGINNING

CHANNEL = "fetch"
WAIT_MS: Final = 200
LIMIT_MS: Final = 5_000
MOST_BYTES: Final = 1 << 20
BACKOFF_NS: Final = 100 * MS


@dataclass(frozen=True, slots=True)
class Came:
    """Messages of one partition in their order: offsets and the operations in their payloads."""

    place: Place
    offsets: tuple[int, ...]
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition that its leader would not read, by Kafka's error; the leader's id (-1: not
    known)."""

    place: Place
    error: Error
    broker_id: int


@dataclass(slots=True)
class _Position:
    """`offset` is the next one wanted, or BEGINNING; `turn` counts the times it was moved."""

    offset: int
    turn: int = 0
    not_before_ns: int = 0


class Fetcher:
    """See the module."""

    def __init__(self, routes: Routes, out: Outbox, min_bytes: int = 1) -> None:
        """A fetch waits for `min_bytes`, but no longer than WAIT_MS."""
        self._min_bytes = min_bytes
        self._routes = routes
        self._out = out
        self._positions: dict[Place, _Position] = {}
        self._calls: dict[int, tuple[Address, tuple[tuple[Place, int], ...]]] = {}
        self._busy: set[Address] = set()

    def move(self, place: Place, offset: int) -> None:
        """Continues to read from an offset (BEGINNING: the first available one)."""
        known = self._positions.get(place)
        # An answer to a request of before the move has another turn, and is dropped: it would put
        # the position back.
        self._positions[place] = _Position(offset, known.turn + 1 if known is not None else 0)

    def drop(self, place: Place) -> None:
        """Stops reading a partition."""
        self._positions.pop(place, None)

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        waiting = [
            one.not_before_ns
            for place, one in self._positions.items()
            if (at := self._routes.leader(place)) is not None and at not in self._busy
        ]
        return min(waiting, default=None)

    def tick(self, now: Instant) -> None:
        """Sends a request to every leader without one."""
        due: dict[Address, list[Place]] = {}
        for place, one in self._positions.items():
            address = self._routes.leader(place)
            if address is None:
                self._routes.stale(now)
            elif address not in self._busy and one.not_before_ns <= now.monotonic_ns:
                due.setdefault(address, []).append(place)
        for address, places in due.items():
            unknown = [p for p in places if self._positions[p].offset == BEGINNING]
            # Partitions with a known offset wait for this answer, too, since a leader has one
            # request at a time.
            if unknown:
                self._ask(address, unknown, _list_offsets(unknown))
            else:
                self._ask(address, places, self._fetch(places))

    def _ask(self, address: Address, places: Sequence[Place], request: m.Request) -> None:
        call = self._out.call(address, CHANNEL, request, LIMIT_MS)
        turns = tuple((place, self._positions[place].turn) for place in places)
        self._calls[call] = (address, turns)
        self._busy.add(address)

    def _fetch(self, places: Iterable[Place]) -> m.FetchRequest:
        topics: dict[str, list[m.FetchPartition]] = {}
        for topic, index in places:
            offset = self._positions[topic, index].offset
            epoch = self._routes.epoch((topic, index))
            part = m.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=MOST_BYTES,
                current_leader_epoch=epoch,
            )
            topics.setdefault(topic, []).append(part)
        several = tuple(
            m.FetchTopic(partitions=tuple(parts), topic=topic) for topic, parts in topics.items()
        )
        return m.FetchRequest(
            max_wait=WAIT_MS, min_bytes=self._min_bytes, max_bytes=MOST_BYTES, topics=several
        )

    def answered(
        self, call_id: int, answer: m.Response, now: Instant
    ) -> Sequence[Came | Refused] | None:
        """The results of an answer; None if the call was not ours."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return None
        address, turns = call
        self._busy.discard(address)
        current = {
            place
            for place, turn in turns
            if place in self._positions and self._positions[place].turn == turn
        }
        if isinstance(answer, m.ListOffsetsResponse):
            return self._bounds(address, answer, current, now)
        assert isinstance(answer, m.FetchResponse), answer
        found: list[Came | Refused] = []
        for topic in answer.responses:
            for part in topic.partitions:
                place = (topic.topic, part.partition_index)
                if place not in current:
                    continue
                if part.error_code != Error.NONE:
                    found.extend(self._refused(place, Error(part.error_code), address, now))
                elif isinstance(part.records, bytes) and part.records:
                    came = _messages(place, part.records, self._positions[place].offset)
                    if came is not None:
                        self._positions[place].offset = came.offsets[-1] + 1
                        found.append(came)
        return found

    def failed(self, call_id: int, now: Instant) -> bool:
        """A call got no answer; False if it was not ours."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return False
        address, turns = call
        self._busy.discard(address)
        for place, _ in turns:
            if place in self._positions:
                self._positions[place].not_before_ns = now.monotonic_ns + BACKOFF_NS
        self._routes.stale(now)
        return True

    def _bounds(
        self, address: Address, answer: m.ListOffsetsResponse, current: set[Place], now: Instant
    ) -> Sequence[Refused]:
        refused: list[Refused] = []
        for topic in answer.topics:
            for part in topic.partitions:
                place = (topic.name, part.partition_index)
                if place not in current:
                    continue
                if part.error_code == Error.NONE:
                    self._positions[place].offset = part.offset
                else:
                    refused.extend(self._refused(place, Error(part.error_code), address, now))
        return refused

    def _refused(
        self, place: Place, error: Error, address: Address, now: Instant
    ) -> Sequence[Refused]:
        """Looks for another leader; an error that no other leader can remove is returned to the
        caller."""
        self._positions[place].not_before_ns = now.monotonic_ns + BACKOFF_NS
        self._routes.stale(now)
        # Other errors say that this broker does not lead, or not yet: the next leader is asked the
        # same.
        if error is not Error.OFFSET_OUT_OF_RANGE:
            return []
        return [Refused(place, error, self._routes.broker_at(address))]


def _list_offsets(places: Iterable[Place]) -> m.ListOffsetsRequest:
    topics: dict[str, list[m.ListOffsetsPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(
            m.ListOffsetsPartition(partition_index=index, timestamp=BEGINNING)
        )
    return m.ListOffsetsRequest(
        topics=tuple(
            m.ListOffsetsTopic(name=topic, partitions=tuple(parts))
            for topic, parts in topics.items()
        )
    )


def _messages(place: Place, data: bytes, wanted: int) -> Came | None:
    """The messages from offset `wanted` on in whole batches; None if there is none."""
    offsets: list[int] = []
    operations: list[str] = []
    for header, batch in record_batch.split(data, verify=False):
        for at, value in enumerate(record_batch.values(batch), header.base_offset):
            # A leader sends whole batches: the first may begin before the offset that was asked
            # for.
            if at >= wanted:
                offsets.append(at)
                operations.append(operation_in(value))
    return Came(place, tuple(offsets), tuple(operations)) if offsets else None


def operation_in(value: bytes) -> str:
    """The operation id at the head of a payload."""
    return value.decode(errors="replace").split(" ", 1)[0]
