"""A process that a fault stopped runs while its links are changed: it must not hang a proxy, and a
probe waits for its answer. That it ran is an event, since it may have acted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fencepost.events import Event, ProcessResumed
from fencepost.model.runtime import Process, Receipt


def told(
    receipt: Receipt,
    resumed: Sequence[Process],
    times_ns: tuple[int, int],
    record: Callable[[ProcessResumed], Event],
) -> Receipt:
    """Records that these processes ran between two times; the receipt of the change, which says so
    too."""
    from_ns, until_ns = times_ns
    for one in resumed:
        record(ProcessResumed(resumed=one.name, from_ns=from_ns, ran_ns=until_ns - from_ns))
    remarks = (f"{one.name} was resumed for the change of its links" for one in resumed)
    return replace(receipt, evidence="; ".join([receipt.evidence, *remarks]))
