"""The times in which ZooKeeper answered nothing, by the harness's events and measured stalls.

A controller stores each decision before it takes the next one. Without ZooKeeper it waits, and all
that falls due meanwhile waits, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Event, Finding, ProcessExited, ProcessSpawned, RunEnd, Undecided
from fencepost_suites.brokers.leases import Late, judge_late
from fencepost_suites.common.words import span

SERVER_KINDS: frozenset[type[Struct]] = frozenset({ProcessSpawned, ProcessExited})
"""The events that `Away.take` applies."""
ROLE = "zookeeper"
TOLERATED = 10
"""A part of the period: waiting for less than one such part explains nothing."""


@final
@dataclass(slots=True)
class Away:
    """ZooKeeper's servers: which of them run, and when none did."""

    servers: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    since_ns: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Applies an event."""
        body = event.body
        if isinstance(body, ProcessSpawned) and body.role == ROLE:
            if self.servers and not self.running:
                self.gaps.append((self.since_ns, event.at_ns))
            self.servers.add(body.started)
            self.running.add(body.started)
        elif isinstance(body, ProcessExited) and body.ended in self.running:
            self.running.discard(body.ended)
            self.since_ns = event.at_ns

    def away_ns(self, from_ns: int, to_ns: int, end: RunEnd) -> int:
        """For how long within these times no server ran, or one stalled."""
        over = [(self.since_ns, end.ended_at_ns)] if self.servers and not self.running else []
        gaps = sum(max(0, min(to_ns, b) - max(from_ns, a)) for a, b in (*self.gaps, *over))
        return gaps + sum(end.stalled_ns(from_ns, to_ns, one) for one in self.servers)


def judge_late_but(suspects: Sequence[Late], away: Away, end: RunEnd) -> Sequence[Finding]:
    """As `judge_late`; what ZooKeeper's absence may explain is undecided."""
    found: list[Finding] = []
    for one in suspects:
        away_ns = away.away_ns(one.from_ns, one.to_ns, end)
        if away_ns * TOLERATED > one.period_ns:
            why = f"ZooKeeper answered nothing for {span(away_ns)} meanwhile"
            found.append(Undecided(f"{one.violated.message}; but {why}", one.violated.at))
        else:
            found += judge_late((one,), end)
    return found
