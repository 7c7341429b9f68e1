"""The times in which ZooKeeper answered nothing, by the harness's events and measured stalls.

A controller stores each decision before it takes the next one. Without ZooKeeper it waits, and all
that falls due meanwhile waits, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

from msgspec import Struct

from fencepost import Event, ProcessExited, ProcessSpawned, RunEnd

SERVER_KINDS: frozenset[type[Struct]] = frozenset({ProcessSpawned, ProcessExited})
"""The events that `Away.take` applies."""
ROLE = "zookeeper"


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

    @property
    def actors(self) -> tuple[str, ...]:
        """The names by which a deadline counts ZooKeeper among those who had to act."""
        return (ROLE, *self.servers)

    def told(self, end: RunEnd) -> RunEnd:
        """The end of the run; a time in which no server ran is a stall of ZooKeeper there."""
        over = [(self.since_ns, end.ended_at_ns)] if self.servers and not self.running else []
        gaps = tuple((ROLE, from_ns, to_ns) for from_ns, to_ns in (*self.gaps, *over))
        return replace(end, stalls=(*end.stalls, *gaps))
