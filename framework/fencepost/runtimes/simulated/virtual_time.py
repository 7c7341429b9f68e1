"""Virtual time: an agenda of actions, in an order that only the seed decides."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, final

from fencepost.model.clock import MS, SECOND

START_NS: Final = SECOND
MOST_STEPS_A_MS: Final = 20_000
"""More steps than this within one virtual millisecond mean that a deadline is always due."""


@final
class Agenda:
    """Actions by their time; at the same time, in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.steps = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self._spins = 0
        self._spinning_ns = 0

    def at(self, at_ns: int, action: Callable[[], None]) -> None:
        """Schedules an action at a time that is not before now."""
        self._asked += 1
        # The number decides between actions of one instant. Without it the heap would compare the
        # actions themselves, which have no order.
        heappush(self._due, (max(at_ns, self.now_ns), self._asked, action))

    def due_by(self, at_ns: int) -> bool:
        """Whether an action is due at that time or before."""
        return len(self._due) > 0 and self._due[0][0] <= at_ns

    def step(self) -> None:
        """Advances to the time of the next action, and runs it.

        Raises RuntimeError if time does not advance any more.
        """
        at_ns, _, action = heappop(self._due)
        self.now_ns = at_ns
        self.steps += 1
        # A step takes no virtual time, so a program that is always due would stop the time of the
        # whole run.
        if at_ns - self._spinning_ns > MS:
            self._spinning_ns, self._spins = at_ns, 0
        self._spins += 1
        if self._spins > MOST_STEPS_A_MS:
            raise RuntimeError(f"{self._spins} steps within a virtual millisecond: it spins")
        action()

    def rest_until(self, at_ns: int) -> None:
        """Lets time pass during which no action is due."""
        self.now_ns = max(self.now_ns, at_ns)
