"""Probes through simulated links, in virtual time, by which receipts are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost.injection.probes import ProbeAnswer
from fencepost.model.clock import MS, SECOND
from fencepost.model.system.topology import Link
from fencepost.runtimes.simulated.network import KILOBYTE, SimulatedNetwork
from fencepost.runtimes.simulated.virtual_time import Agenda

Pass = Callable[[int, Callable[[], bool]], None]
"""Lets virtual time pass until a time, or until a condition holds."""


@final
@dataclass(eq=False)
class _Asker:
    """The dialling end of one probe's connection; `ended_ns` is when it was answered or broke."""

    slot_name: str
    agenda: Agenda
    until_ns: int
    answered: bool = False
    ended_ns: int | None = None

    def listens(self, port: int) -> bool:
        return False

    def connected(self, connection: int, port: int) -> None:
        raise AssertionError("nothing dials a probe")

    def arrived(self, connection: int, message: object) -> None:
        # The first message is the answer, as the real probe takes the first byte.
        if self.ended_ns is None:
            self.answered, self.ended_ns = True, self.agenda.now_ns

    def cut_off(self, connection: int, reason: str) -> None:
        if self.ended_ns is None:
            self.ended_ns = self.agenda.now_ns

    @property
    def over(self) -> bool:
        return self.ended_ns is not None or self.agenda.now_ns >= self.until_ns


@final
class SimulatedProber:
    """See `fencepost.injection.probes.Prober`. `question` is the system's message to a port."""

    def __init__(
        self,
        network: SimulatedNetwork,
        agenda: Agenda,
        question: Callable[[int], object],
        let_pass: Pass,
    ) -> None:
        self._network = network
        self._agenda = agenda
        self._question = question
        self._pass = let_pass

    def direct(self, links: Sequence[Link]) -> Mapping[Link, int]:
        """See `Prober.direct`: what is simulated has no way but its links."""
        return {}

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, ProbeAnswer]:
        """See `Prober.ask`: all links at once, each with a connection of its own."""
        began_ns = self._agenda.now_ns
        askers: dict[Link, tuple[_Asker, int]] = {}
        for link, (timeout_s, size) in asked.items():
            asker = _Asker(link.source, self._agenda, began_ns + int(timeout_s * SECOND))
            connection = self._network.dial(asker, link.target, link.port)
            self._network.send(asker, connection, self._question(link.port), max(size, KILOBYTE))
            askers[link] = asker, connection
        # The cluster goes on meanwhile: heartbeats come, leases run out, as while real links are
        # measured.
        last_ns = max((asker.until_ns for asker, _ in askers.values()), default=began_ns)
        self._pass(last_ns, lambda: all(asker.over for asker, _ in askers.values()))
        answers: dict[Link, ProbeAnswer] = {}
        for link, (asker, connection) in askers.items():
            ended_ns = asker.until_ns if asker.ended_ns is None else asker.ended_ns
            answers[link] = ProbeAnswer(asker.answered, (ended_ns - began_ns) / MS)
            self._network.hang_up(asker, connection)
        return answers

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """See `Prober.open_connections`."""
        return self._network.open_connections(links)

    def wait(self, holds: Callable[[], bool], limit_s: float, every_s: float) -> bool:
        """`fencepost.model.clock.poll` in virtual time."""
        until_ns = self._agenda.now_ns + int(limit_s * SECOND)
        while not holds():
            if self._agenda.now_ns >= until_ns:
                return False
            next_ns = min(until_ns, self._agenda.now_ns + int(every_s * SECOND))
            self._pass(next_ns, lambda: False)
        return True
