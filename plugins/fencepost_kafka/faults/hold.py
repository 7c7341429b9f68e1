"""Holds, delays or drops requests in a link, chosen by fields of Kafka's format.

A held request keeps its place: later bytes of its connection wait as well, and all leave in order
at the heal. If the connection ends first, the request is kept, and delivered to the target's
process at the heal. Its sender reads no answer. A sender usually gives up at its request timeout,
connects anew and sends the request again.

It does not imitate a request that is lost on its way while its connection lives (TCP would send it
again), nor one that is duplicated. Answers are never held. Nobody can read requests in links with
TLS, so there a hold is refused. Where each connection begins with a login, as with SASL, a request
cannot be delivered over another connection: there a hold needs `outlives=False`.
"""

# See docs/decisions/16-held-messages.md.

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, final, get_args
from uuid import UUID

from fencepost import (
    Handle,
    Hold,
    HoldAction,
    HoldCounts,
    Injected,
    Link,
    Receipt,
    Runtime,
    UsageError,
    needs,
    no_such,
)
from fencepost_kafka.view import KafkaView
from fencepost_plugins.targets import Names, as_names, find_slots

API_KEYS: Mapping[str, int] = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "LeaderAndIsr": 4,
    "StopReplica": 5,
    "UpdateMetadata": 6,
    "ControlledShutdown": 7,
    "OffsetForLeaderEpoch": 23,
    "Vote": 52,
    "BeginQuorumEpoch": 53,
    "EndQuorumEpoch": 54,
    "AlterPartition": 56,
    "FetchSnapshot": 59,
    "BrokerRegistration": 62,
    "BrokerHeartbeat": 63,
    "AllocateProducerIds": 67,
}
"""Requests between nodes by name, as in Kafka's message schemas; others are chosen by key."""
_MOST_DELAY_MS = 600_000
_BASE64_ID = 22


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequests:
    """Chooses requests on every link from a source to a target. Each link counts separately."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    apis: tuple[int, ...]
    topic: str
    skip: int
    first: int
    action: HoldAction
    delay_ms: int
    overtake: bool
    outlives: bool
    name: str = "hold"

    def inject(self, runtime: Runtime) -> Injected:
        """Arms the links. The receipt is true once a request was chosen, by the links' own counts.

        Raises UsageError when no link joins the nodes, one of the links holds already, links carry
        TLS, or a request would be delivered over a connection that has not logged in.
        """
        layout = runtime.layout
        find_slots(layout, (*self.sources, *self.targets))
        if layout.sealed:
            raise UsageError(
                f"the fault 'hold' reads requests, and the links carry {layout.sealed}: it cannot "
                "choose any in a cluster that is secured so"
            )
        if layout.logs_in and self.outlives and self.action != "drop":
            raise UsageError(
                "the fault 'hold' cannot deliver a request over another connection where each "
                "begins with a login: give outlives=False"
            )
        links = [
            link
            for link in layout.links
            if link.source in self.sources and link.target in self.targets
        ]
        if not links:
            raise UsageError("the fault 'hold' holds nothing: no link joins those nodes")
        what = self.on_links(runtime.view.of(KafkaView).topics)
        # Either all links hold, or none: what a half-armed fault held would be healed by nobody.
        armed: list[Link] = []
        try:
            for link in links:
                runtime.hold(link, what)
                armed.append(link)
        except UsageError:
            for link in armed:
                runtime.release(link)
            raise

        def measure() -> Receipt:
            counts = sum((runtime.held(link) for link in links), HoldCounts())
            # If no request was chosen, none of those kinds was sent: that shows nothing about the
            # harness.
            return Receipt(counts.taken > 0, str(counts), unused=not counts.taken)

        def heal() -> Receipt:
            return _all(links, [runtime.release(link) for link in links])

        targets = tuple(sorted({*self.sources, *self.targets}))
        directions = frozenset((link.source, link.target) for link in links)
        return Injected(targets, measure(), heal, measure, directions)

    def on_links(self, topic_ids: Mapping[str, str]) -> Hold:
        """The same choice in bytes: a request begins with its API's key, and its body names a topic
        by a string, whose length has one byte or two, or by an id."""
        return Hold(
            prefixes=tuple(struct.pack(">h", api) for api in self.apis),
            containing=_named(self.topic, topic_ids.get(self.topic)) if self.topic else (),
            skip=self.skip,
            first=self.first,
            action=self.action,
            delay_ms=self.delay_ms,
            overtake=self.overtake,
            outlives=self.outlives,
        )

    def arguments(self) -> Mapping[str, object]:
        return {
            "sources": list(self.sources),
            "targets": list(self.targets),
            "apis": list(self.apis),
            "topic": self.topic,
            "skip": self.skip,
            "first": self.first,
            "action": self.action,
            "delay_ms": self.delay_ms,
            "overtake": self.overtake,
            "outlives": self.outlives,
        }


@needs(Handle.FRAMES)
def hold(
    sources: Names,
    targets: Names,
    apis: str | int | Sequence[str | int],
    topic: str = "",
    skip: int = 0,
    first: int = 1,
    action: str = "hold",
    delay_ms: int = 0,
    overtake: bool = False,
    outlives: bool = True,
) -> HoldRequests:
    """Chooses requests that sources send to targets, and holds them until the heal.

    `apis` are names (`AlterPartition`) or keys (56); `topic`, if given, must be named in the body.
    Of the requests that match, the `first` (0: all) after `skip` are chosen on each link. `action`
    is `hold`, `delay` (by `delay_ms`) or `drop`. `overtake` lets later requests of the connection
    pass a held one: some clients end a connection on which answers come in another order. With
    `outlives=False` a held request is dropped when its connection ends.
    """
    given = (apis,) if isinstance(apis, str | int) else tuple(apis)
    keys = tuple(_key(api) for api in given)
    if not keys:
        raise UsageError("hold needs at least one API")
    if action not in get_args(HoldAction):
        raise no_such("action", action, get_args(HoldAction))
    if skip < 0 or first < 0 or not 0 <= delay_ms <= _MOST_DELAY_MS:
        raise UsageError(
            f"hold takes a skip and a first of 0 or more, and a delay_ms up to {_MOST_DELAY_MS}"
        )
    if (action == "delay") != (delay_ms > 0):
        raise UsageError("hold needs a delay_ms for the action 'delay', and for no other")
    return HoldRequests(
        sources=as_names(sources),
        targets=as_names(targets),
        apis=keys,
        topic=topic,
        skip=skip,
        first=first,
        action=cast(HoldAction, action),
        delay_ms=delay_ms,
        overtake=overtake,
        outlives=outlives,
    )


def _key(api: str | int) -> int:
    if isinstance(api, int):
        if 0 <= api < 2**15:
            return api
        raise UsageError(f"an API's key is a number from 0 to {2**15 - 1}, not {api}")
    if api not in API_KEYS:
        raise no_such("API", api, API_KEYS)
    return API_KEYS[api]


def _named(topic: str, topic_id: str | None) -> tuple[bytes, ...]:
    """How a request's body names a topic: as STRING, as COMPACT_STRING, or by its id. Where topics
    have no ids, the id is the name."""
    name = topic.encode()
    # The length is part of what is searched, so that a topic whose name ends or begins with another
    # topic's is not taken for that one.
    ways = [struct.pack(">h", len(name)) + name, _unsigned_varint(len(name) + 1) + name]
    if topic_id and topic_id != topic:
        ways.append(_id_bytes(topic_id))
    return tuple(ways)


def _id_bytes(text: str) -> bytes:
    """An id as events have it: like `Uuid.toString` of Kafka, 22 characters of URL-safe base 64, or
    in the usual hexadecimal form."""
    if len(text) == _BASE64_ID:
        return urlsafe_b64decode(f"{text}==")
    return UUID(text).bytes


def _unsigned_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _all(links: Sequence[Link], receipts: Sequence[Receipt]) -> Receipt:
    evidence = "; ".join(
        f"{link.source} -> {link.target}: {receipt.evidence}"
        for link, receipt in zip(links, receipts, strict=True)
    )
    return Receipt(all(receipt.true for receipt in receipts), evidence)
