"""Partition leaders as a client knows them: metadata from any broker, refreshed when stale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import Address, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m

REFRESH_NS: Final = 5_000 * MS
FAST_NS: Final = 100 * MS
"""How long to wait before stale metadata is requested again."""
ASK_LIMIT_MS: Final = 5_000
CHANNEL = "client"
Place = tuple[str, int]


class Routes:
    """See the module. `bootstrap` are the addresses to begin with."""

    def __init__(self, bootstrap: Sequence[Address], topics: Collection[str], out: Outbox) -> None:
        self.known: m.MetadataResponse | None = None
        self._bootstrap = tuple(bootstrap)
        self._topics = tuple(m.MetadataRequestTopic(name=name) for name in sorted(set(topics)))
        self._out = out
        self._leaders: dict[Place, tuple[Address, int]] = {}
        self._ids: dict[str, UUID] = {}
        """topic -> its id: a topic that is made again counts its epochs anew."""
        self._brokers: tuple[Address, ...] = ()
        self._next_ns = 0
        self._asked_ns = -FAST_NS
        self._call: int | None = None
        self._turn = 0

    def leader(self, place: Place) -> Address | None:
        """The address of the partition's leader, if it is known."""
        found = self._leaders.get(place)
        return found[0] if found is not None else None

    def epoch(self, place: Place) -> int:
        """The leader epoch that goes with `leader`; -1 if none is known."""
        found = self._leaders.get(place)
        return found[1] if found is not None else -1

    def broker_at(self, address: Address) -> int:
        """The id of the broker at that address, by the newest metadata; -1 if it has none there."""
        brokers = self.known.brokers if self.known is not None else ()
        return next((b.node_id for b in brokers if (b.host, b.port) == address), -1)

    def any_broker(self) -> Address:
        """A broker for a request that any broker can answer; another broker each time."""
        addresses = self._brokers or self._bootstrap
        self._turn += 1
        return addresses[self._turn % len(addresses)]

    def stale(self, now: Instant) -> None:
        """Marks the metadata as stale, since the known leader did not answer: they are requested
        soon."""
        self._next_ns = min(self._next_ns, max(self._asked_ns + FAST_NS, now.monotonic_ns))

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        return self._next_ns if self._call is None else None

    def tick(self, now: Instant) -> None:
        """Asks for metadata if it is due."""
        if self._call is None and now.monotonic_ns >= self._next_ns:
            # A bootstrap address helps if every known broker has moved or is fenced.
            addresses = (*self._brokers, *(a for a in self._bootstrap if a not in self._brokers))
            self._turn += 1
            request = m.MetadataRequest(topics=self._topics or None)
            self._call = self._out.call(
                addresses[self._turn % len(addresses)], CHANNEL, request, ASK_LIMIT_MS
            )
            self._asked_ns = now.monotonic_ns
            self._next_ns = now.monotonic_ns + REFRESH_NS

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes metadata in; False if the call was not ours."""
        if call_id != self._call:
            return False
        assert isinstance(answer, m.MetadataResponse), answer
        self._call = None
        self.known = answer
        at = {b.node_id: (b.host, b.port) for b in answer.brokers}
        if at:
            self._brokers = tuple(at.values())
        missing = False
        for topic in answer.topics:
            if topic.topic_id is not None:
                # Otherwise the lower epochs of the next topic would be taken for old news, and its
                # leaders never be learned.
                if self._ids.setdefault(topic.name, topic.topic_id) != topic.topic_id:
                    self._forget(topic.name)
                self._ids[topic.name] = topic.topic_id
            for part in topic.partitions:
                # A leader that is not among the brokers of the answer, as a fenced one, cannot be
                # asked.
                address = at.get(part.leader_id)
                place = (topic.name, part.partition_index)
                known = self._leaders.get(place)
                if address is None:
                    missing = True
                    self._leaders.pop(place, None)
                # A broker that is behind answers with a former leader: an older epoch does not
                # replace a newer one.
                elif known is None or part.leader_epoch >= known[1]:
                    self._leaders[place] = (address, part.leader_epoch)
            missing |= topic.error_code != 0
        if missing:
            self.stale(now)
        return True

    def _forget(self, topic: str) -> None:
        for place in [place for place in self._leaders if place[0] == topic]:
            del self._leaders[place]

    def failed(self, call_id: int, now: Instant) -> bool:
        """A metadata request got no answer; False if the call was not ours."""
        if call_id != self._call:
            return False
        self._call = None
        self.stale(now)
        return True
