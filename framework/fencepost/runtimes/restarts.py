"""What becomes of a slot whose node ended by itself: it is started again, as a supervisor would.

A cluster in production has a supervisor (systemd, Kubernetes), so a node that crashes is not the
end of it, and a test of what comes afterwards is worth more than one that stops there. The end
itself is an event, and a promise of every system (AVAIL-running) says that it must not be.

A node that crashes again and again proves nothing more: at its third crash within a minute the run
gives up. Before the cluster was ready once, it gives up at the first: a node that cannot start says
so best by its first end. Where two processes have one id, a system may refuse it to either of them,
so one that ends then is left alone: the fault that started the second one has to heal.

See docs/decisions/50-going-on.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, final

from fencepost.model.clock import SECOND
from fencepost.model.system.topology import Slot

RESTART_NS: Final = SECOND
"""How long after its end a node is started again."""
MOST_CRASHES: Final = 3
WITHIN_NS: Final = 60 * SECOND
"""The run gives up at the third crash of a slot within a minute."""


@final
class Restarts:
    """Which slots are started again, and when. It does nothing until it is `active`."""

    def __init__(self) -> None:
        self.active = False
        self._crashes: dict[str, deque[int]] = {}
        """slot -> when its last processes ended by themselves."""
        self._due_ns: dict[str, int] = {}
        """slot -> when it is started again. A slot in which a process was started meanwhile, by a
        fault that healed or a test, is not in it."""

    def crashed(self, slot: Slot, at_ns: int, *, rivalled: bool = False) -> bool:
        """Notes that a node ended by itself, and schedules its next process; returns whether the
        run goes on. `rivalled`: two processes had its id, and the slot stays as it is."""
        if rivalled and self.active:
            return True
        # Only the last three are kept: if the first of them is within the minute, all are.
        crashes = self._crashes.setdefault(slot.name, deque(maxlen=MOST_CRASHES))
        crashes.append(at_ns)
        often = len(crashes) == MOST_CRASHES and at_ns - crashes[0] <= WITHIN_NS
        # A crash before the cluster was ready counts, too, but ends the run at once.
        if not self.active or often:
            return False
        self._due_ns[slot.name] = at_ns + RESTART_NS
        return True

    def started(self, slot: Slot) -> None:
        """Notes that a process was started in a slot."""
        self._due_ns.pop(slot.name, None)

    def due(self, now_ns: int) -> Sequence[str]:
        """The slots to start now."""
        return [slot for slot, due_ns in self._due_ns.items() if due_ns <= now_ns]

    def next_ns(self, limit_ns: int) -> int:
        """When the next slot is due; the limit, if that is earlier or none is."""
        return min(limit_ns, *self._due_ns.values()) if self._due_ns else limit_ns

    def why_not(self, slot: str) -> str:
        """Why a slot is not started again, to add to a message; empty for a first crash."""
        crashes = self._crashes.get(slot, deque())
        often = len(crashes) == MOST_CRASHES and crashes[-1] - crashes[0] <= WITHIN_NS
        return f"; it ended by itself {MOST_CRASHES} times within a minute" if often else ""
