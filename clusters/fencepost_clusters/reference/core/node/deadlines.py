"""The times at which the parts of a node are due next, without a look at each of them.

See docs/decisions/38-fetch-sessions.md."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """One time for each key; the earliest of all is known at once."""

    def __init__(self) -> None:
        self._times: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        """The same, and times that have been replaced since."""
        self._numbers = 0

    def set(self, key: K, at_ns: int) -> None:
        """Gives a key its time, in place of any earlier one."""
        self._numbers += 1
        self._times[key] = at_ns
        # The number decides between equal times, so that keys need no order, and the same run has
        # the same order.
        heappush(self._heap, (at_ns, self._numbers, key))

    def drop(self, key: K) -> None:
        """Takes a key's time away, if it has one."""
        self._times.pop(key, None)

    def earliest_ns(self) -> int | None:
        """The earliest time; None without any."""
        heap = self._heap
        while heap:
            at_ns, _, key = heap[0]
            # A former time of the key is left in the heap until it comes up: to look for it would
            # cost more.
            if self._times.get(key) == at_ns:
                return at_ns
            heappop(heap)
        return None

    def due(self, now_ns: int) -> list[K]:
        """The keys whose time has come, the earliest first; they have no time any more."""
        keys = []
        while (at_ns := self.earliest_ns()) is not None and at_ns <= now_ns:
            _, _, key = heappop(self._heap)
            del self._times[key]
            keys.append(key)
        return keys


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two times; None if there is none."""
    if one is None or (other is not None and other < one):
        return other
    return one


def earliest(times: tuple[int | None, ...]) -> int | None:
    """The earliest of these times; None if there is none. Nodes ask after every step."""
    first = None
    for at in times:
        if at is not None and (first is None or at < first):
            first = at
    return first


def no_later(limit: int, times: tuple[int | None, ...]) -> int:
    """The earliest of these times, and the limit if there is no earlier one."""
    first = earliest(times)
    return limit if first is None else min(first, limit)
