"""The times when faults were active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fencepost.events import Event, FaultHealed, FaultInjected, FaultTookEffect, began_ns
from fencepost.judging.tables.rows import FaultRow


@final
class FaultFold:
    """A fold over the events of faults, in order; `rows` are the faults of the run."""

    def __init__(self) -> None:
        self.active: tuple[str, ...] = ()
        """The ids of the faults that are active now."""
        self._injected: list[tuple[int, FaultInjected]] = []
        """Each with when injecting it began."""
        self._healed: dict[str, tuple[int, bool]] = {}
        """fault id -> (when it was healed last, whether any of its healings was measured)."""
        self._late: dict[str, str] = {}
        """fault id -> the evidence of a receipt that came after the injection."""

    def apply(self, event: Event) -> int | None:
        """Applies one event; the time at which a fault began or was healed by it.

        It is earlier than the event's if injecting the fault took a while.
        """
        body = event.body
        if isinstance(body, FaultInjected):
            self._injected.append((began_ns(event), body))
            self.active = (*self.active, body.fault_id)
            return began_ns(event)
        if isinstance(body, FaultTookEffect):
            self._late[body.fault_id] = body.evidence
        elif isinstance(body, FaultHealed):
            _, measured = self._healed.get(body.fault_id, (0, False))
            self._healed[body.fault_id] = (event.at_ns, measured or body.receipt)
            self.active = tuple(name for name in self.active if name != body.fault_id)
            return event.at_ns
        return None

    def rows(self, ended_ns: int) -> Sequence[FaultRow]:
        """Each fault once; a fault that was not healed lasts until the run's end."""
        return [
            FaultRow(
                fault_id=body.fault_id,
                fault=body.fault,
                targets=body.targets,
                receipt=body.receipt or body.fault_id in self._late,
                evidence=self._late.get(body.fault_id, body.evidence),
                from_ns=from_ns,
                to_ns=self._healed.get(body.fault_id, (ended_ns, False))[0],
                healed=body.fault_id in self._healed,
                heal_receipt=self._healed.get(body.fault_id, (0, False))[1],
                arguments=body.arguments,
            )
            for from_ns, body in self._injected
        ]
