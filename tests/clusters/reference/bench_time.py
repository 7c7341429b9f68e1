"""The time of a bench with one node: it passes from each Tick that the node wants to the next."""

from __future__ import annotations

from typing import Protocol

from fencepost_clusters.reference.assembly import Core
from fencepost_clusters.reference.core.node import effects as e

SECOND = 1_000_000_000
TICKS = 10
"""More Ticks than a node wants at one time."""


class Bench(Protocol):
    """One node, and the time that it has."""

    now_ns: int
    exited: bool
    core: Core

    def give(self, what: e.Input) -> object:
        """Has the node handle an input."""
        ...


def pass_time(bench: Bench, seconds: float) -> None:
    """Lets time pass. Fails if a Tick at a deadline leaves that deadline as it is."""
    end_ns = bench.now_ns + round(seconds * SECOND)
    again = 0
    while not bench.exited and (due_ns := bench.core.deadline_ns()) is not None:
        if due_ns > end_ns:
            break
        again = 0 if due_ns > bench.now_ns else again + 1
        assert again < TICKS, "a Tick at the deadline leaves what is due undone"
        bench.now_ns = max(bench.now_ns, due_ns)
        bench.give(e.Tick())
    bench.now_ns = end_ns
