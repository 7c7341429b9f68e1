"""A core that follows a script, for tests of shells that carry out effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_clusters.reference.core.node.effects import (
    Effect,
    Input,
    Instant,
    Tick,
    ZooKeeperAnswer,
    ZooKeeperEvent,
)
from fencepost_clusters.zookeeper.client.port import Answer, Connected, Ended

START, CONNECTED, ENDED = "start", "connected", "ended"
SOON_NS = 10_000_000
Script = Mapping[str | int, Sequence[Sequence[Effect]]]
"""The effects per input: each input takes the next entry; then none. Inputs are the start, a
session that is connected or has ended, and the answer to the request of a number."""


@dataclass
class ScriptedCore:
    """See the module; `heard` are its inputs."""

    script: Script
    heard: list[Input] = field(default_factory=list)
    begin_ns: int | None = None
    met: list[str | int] = field(default_factory=list)

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        self.heard.append(what)
        if what == Tick() and self.begin_ns is None:
            self.begin_ns = now.monotonic_ns + SOON_NS
            return ()
        when = self._when(what)
        if when is None:
            return ()
        times = self.met.count(when)
        self.met.append(when)
        wanted = self.script.get(when, ())
        return tuple(wanted[times]) if times < len(wanted) else ()

    def deadline_ns(self) -> int | None:
        return None if START in self.met else self.begin_ns

    def _when(self, what: Input) -> str | int | None:
        match what:
            case Tick():
                return START
            case ZooKeeperEvent(Connected()):
                return CONNECTED
            case ZooKeeperEvent(Ended()):
                return ENDED
            case ZooKeeperAnswer(number, _):
                return number
            case _:
                return None

    @property
    def answers(self) -> dict[int, Answer]:
        """ZooKeeper's answers by number, in the order in which they came."""
        heard = (what for what in self.heard if isinstance(what, ZooKeeperAnswer))
        return {what.request_id: what.answer for what in heard}

    @property
    def events(self) -> list[object]:
        """The other events of the sessions."""
        return [what.event for what in self.heard if isinstance(what, ZooKeeperEvent)]
