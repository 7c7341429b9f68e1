"""A process that a fault stopped runs while its links are changed: it must not hang a proxy, and a
probe waits for its answer. That it ran is an event, since it may have acted."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.events import ProcessResumed
from fencepost.model.runtime import Process


def ran_meanwhile(
    resumed: Sequence[Process], from_ns: int, until_ns: int
) -> Sequence[ProcessResumed]:
    """An event for each process that was resumed."""
    ran_ns = until_ns - from_ns
    return [ProcessResumed(resumed=one.name, from_ns=from_ns, ran_ns=ran_ns) for one in resumed]


def remarks(resumed: Sequence[Process]) -> Sequence[str]:
    """A sentence for each, for the receipt of the change."""
    return [f"{one.name} was resumed for the change of its links" for one in resumed]
