"""What a system under test offers: small capability protocols, none of them to be inherited.

A system is a value: it lays out slots and says how to start a node in a place. What else it can do
(be stopped gently, be broken by a named defect) is a protocol of its own; the faults and suites
that are offered derive from what it satisfies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from fencepost.model.runtime import ClientSpec
from fencepost.model.topology import Layout, Role, Slot


@dataclass(frozen=True, slots=True)
class Spare:
    """A node with an id of its own that is laid out and not started: `Cluster.start` does that."""

    role: Role
    node_id: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a cluster is wanted, with its settings (Kafka's dotted names, values as text).

    In the first `combined` brokers' processes a controller lives as well. `own` holds the settings
    of single nodes, by the names of their slots, over those of all.
    """

    controllers: int = 3
    brokers: int = 3
    settings: Mapping[str, str] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    spares: tuple[Spare, ...] = ()
    combined: int = 0
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one process is to live: made by the runtime, given to the system.

    `process` is its name (`broker-2#3`). `address` is the slot's own; a node binds there. `hosts`
    maps every slot name to the address at which this slot reaches it (its end of the link; its own
    address for itself). `advertised` is the address at which clients reach this slot.
    `data_dir` is the slot's disk and outlives processes; `work_dir` is the process's own folder.
    The process appends its events to `events_path`, one NDJSON line each.
    """

    run: str
    process: str
    slot: Slot
    layout: Layout
    address: str
    hosts: Mapping[str, str]
    advertised: str
    data_dir: Path
    work_dir: Path
    events_path: Path
    seed: int = 0
    """The run's seed; what a process draws derives from it and from the process's name."""
    image: str = ""
    """The image of the container it is to live in, whose programs are its programs (else: none)."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a process; `files` (path below the work folder, text) are written first."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class System(Protocol):
    """Something under test, by name (`reference/quorum`)."""

    @property
    def name(self) -> str: ...
    @property
    def plane(self) -> str: ...
    def layout(self, shape: Shape) -> Layout:
        """The slots and links of a cluster of that shape; raises UsageError for a bad shape."""
        ...

    def client_port(self) -> int:
        """The port of the brokers' client listener."""
        ...


@runtime_checkable
class Launchable(Protocol):
    """A system whose nodes are programs."""

    def command(self, place: Place, shape: Shape) -> Command: ...


@dataclass(frozen=True, slots=True)
class Heard:
    """An event body that a narrator made of a line, and when the process said that it happened."""

    at_ns: int
    body: Struct


class Narrator(Protocol):
    """Makes events of what one process prints; it knows no file, and may remember what it heard.

    Lines come whole, in order, without their end. One that tells nothing makes no event.
    """

    def hear(self, line: str) -> Sequence[Heard]: ...


@runtime_checkable
class Narrated(Protocol):
    """A system whose nodes write no events: the runtime writes those that narrators hear.

    A node's standard output is followed from its start to its end, and what its narrator makes of
    it is numbered and written to the node's events file as it comes.
    """

    def narrator(self, slot: Slot, shape: Shape) -> Narrator:
        """One for the next process in a slot of a cluster of that shape."""
        ...


@runtime_checkable
class Observed(Protocol):
    """A system whose state clients of the run tell: they are started right after the nodes."""

    def observers(self) -> Sequence[ClientSpec]: ...


@runtime_checkable
class Versioned(Protocol):
    """A system of which there are several versions: `name@version` is one of them."""

    @property
    def version(self) -> str: ...
    def at(self, version: str) -> System:
        """The system in another version; raises UsageError for one it does not know."""
        ...


@runtime_checkable
class Contained(Protocol):
    """A launchable system whose nodes can live in containers as well.

    Its `command` finds in `Place.image` which image's programs it is to name.
    """

    def image(self) -> str:
        """The name of an image; its user is the one with id 65532, as that of the pods."""
        ...


@runtime_checkable
class HasDefects(Protocol):
    """A system that can be broken on purpose."""

    def defects(self) -> Sequence[Defect]: ...


@dataclass(frozen=True, slots=True)
class Defect:
    """A named way to break a system, with the clauses it breaks.

    `unseen`: the runtimes on which nobody can see it, each with why.
    """

    name: str
    breaks: tuple[str, ...]
    says: str
    unseen: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Configured(Protocol):
    """A system that can say what a node would make of a configuration, without starting it."""

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Every setting as a node so configured has it; raises UsageError where it would refuse."""
        ...


@runtime_checkable
class Exclusive(Protocol):
    """A system that says who has an id that two processes claim."""

    @property
    def holder_keeps_id(self) -> bool:
        """Whether a second process is refused as long as controllers hear of the first one.

        Random schedules may start one then while other nodes suffer. Elsewhere the newer one takes
        the id over, with whatever its disk holds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """The bounds that tests and rules take from a cluster's configuration, all in milliseconds."""

    heartbeat_ms: int
    lease_ms: int
    election_ms: int
    replica_lag_ms: int
    recovery_bound_ms: int


@runtime_checkable
class Timed(Protocol):
    """A system that can say what its settings mean for how long things take."""

    def timing(self, shape: Shape) -> Timing: ...
