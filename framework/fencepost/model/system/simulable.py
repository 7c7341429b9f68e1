"""The interface between a system that can be simulated and the simulator.

A simulated process is its system's own decisions without sockets, files or clocks: the simulator
calls it for each input, and it acts through its `Host`. Messages are values that are passed
unchanged; the simulator decides how they are delivered (`fencepost.runtimes.simulated.network`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.model.runtime import Signal
from fencepost.model.system.capabilities import Place
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Slot
from fencepost.model.system.worker_config import WorkerConfig

Chance = Callable[[int, int], int]
"""Draws a whole number between two bounds, both included."""


class Host(Protocol):
    """The machine on which a simulated process runs; every call takes effect at once."""

    def monotonic_ns(self) -> int:
        """This machine's monotonic clock, which may drift."""
        ...

    def wall_ms(self) -> int:
        """This machine's wall clock, which may be set wrong and drift."""
        ...

    @property
    def chance(self) -> Chance:
        """This process's source of random numbers, seeded by the run and the process's name."""
        ...

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        """Writes one event of the process."""
        ...

    def dial(self, target: str, port: int) -> int:
        """Opens a connection to a slot's listener and returns its number at once.

        If no process listens there, `broken` is called.
        """
        ...

    def send(self, connection: int, message: object) -> None:
        """Sends a message; messages on one connection arrive in order, or not at all."""
        ...

    def hang_up(self, connection: int) -> None:
        """Closes a connection; `broken` is called at the other end."""
        ...

    def exit(self, code: int) -> None:
        """Ends the process."""
        ...


class SimulatedProcess(Protocol):
    """One process. Each method is called when something happens; virtual time does not pass during
    the call."""

    def wake(self) -> None:
        """The process starts, or the time of its `deadline_ns` has come."""
        ...

    def deadline_ns(self) -> int | None:
        """When it must be woken next, by its own monotonic clock; None: no timer is set.

        Asked after each call of the other methods; only they may change it."""
        ...

    def accepted(self, connection: int, port: int) -> None:
        """A connection to one of its listeners was opened."""
        ...

    def received(self, connection: int, message: object) -> None:
        """A message arrived over a connection."""
        ...

    def broken(self, connection: int, reason: str) -> None:
        """A connection is gone: refused, reset, or closed by the other end."""
        ...

    def signalled(self, what: Signal) -> None:
        """SIGTERM or SIGINT; the simulator itself carries out the other signals."""
        ...

    def command(self, command: Mapping[str, object]) -> None:
        """A command for a client."""
        ...


class SimulatedDisk(Protocol):
    """The content of a slot's disk, which outlives processes."""

    def copy(self) -> Self:
        """A disk of its own with the same content."""
        ...

    def lose_power(self, chance: Chance) -> None:
        """Loses some of what was never synced, like a machine that loses power."""
        ...


@runtime_checkable
class DamageableDisk(Protocol):
    """A simulated disk that torn writes can damage."""

    def damage(self, files: str, last_bytes: int) -> Sequence[str]:
        """Removes what a node's recovery would remove: the records of each file from the first
        damaged one on. `files` and `last_bytes`: see `Runtime.damage_disk`. Returns the files that
        changed, as a real node would name them."""
        ...


@runtime_checkable
class Simulable(Protocol):
    """A system whose nodes and clients can be simulated."""

    def simulated_disk(self, slot: Slot) -> SimulatedDisk:
        """An empty disk for a slot."""
        ...

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        """One node's process, about to be woken. The paths of the place must not be used."""
        ...

    def simulated_probe(self, port: int) -> object:
        """The message that asks whether a link to that port answers: a node answers it by any
        message, and changes nothing."""
        ...

    def simulated_client(self, config: WorkerConfig, host: Host) -> SimulatedProcess:
        """One client's process; the bootstrap's addresses are `slot:port`."""
        ...


@runtime_checkable
class Framing(Protocol):
    """A simulable system whose links carry messages (`Layout.framed`), so that they can be held."""

    def frame(self, message: object, port: int) -> bytes | None:
        """The bytes of a message that was sent to a port, without their length, as real links carry
        them. None: it is an answer."""
        ...
