"""What the rules share: the keys of events, and memory that is bounded."""

from __future__ import annotations

from typing import Any, TypeVar

from fencepost import MS, Event

Keys = tuple[tuple[str | int, ...], ...]
KEPT = 2_048
"""How many writes, reads, leases or requests of a key are remembered."""
HELD_NS = 60_000 * MS
"""For how long after its end a request of unknown outcome may still take effect, since a member
holds it. etcd gives a request up after 5 s and two election timeouts; the rest is for a member
that a fault kept from running, or a link that held the request."""
V = TypeVar("V")
K = TypeVar("K")


def remember(kept: dict[K, V], name: K, value: V) -> V:
    """Keeps the value under that name, and returns it; of more than `KEPT` names the oldest is
    forgotten."""
    kept[name] = value
    while len(kept) > KEPT:
        del kept[next(iter(kept))]
    return value


def by_term(event: Event) -> Keys:
    """The term of an election."""
    body: Any = event.body
    return ((body.term,),)


def by_register(event: Event) -> Keys:
    """The key that an operation is on."""
    body: Any = event.body
    return ((body.key,),)


def by_lock(event: Event) -> Keys:
    """The lock."""
    body: Any = event.body
    return ((body.lock,),)


def by_store(event: Event) -> Keys:
    """The store."""
    body: Any = event.body
    return ((body.store,),)
