"""The seam that matters most: where processes live and time passes.

A test holds no client object, starts no thread and never sleeps: all time passes in
`Runtime.advance`. Process, docker and simulated runtimes satisfy this protocol and differ in
nothing a test can see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.model.errors import UsageError
from fencepost.model.topology import CLIENT, Cut, Layout, Link, Slot
from fencepost.model.view import View


class Signal(StrEnum):
    """What can be done to a process, by POSIX name."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    INT = "SIGINT"
    STOP = "SIGSTOP"
    CONT = "SIGCONT"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started: its name (`broker-2#3`), its slot and its id on the host."""

    name: str
    slot: Slot
    pid: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Evidence, measured, that something took effect; without `true` nothing may depend on it.

    `unused`: it took effect where nothing passed just then, which is why it is not true.
    """

    true: bool
    evidence: str
    unused: bool = False


@dataclass(frozen=True, slots=True)
class LinkState:
    """What a link does to what passes: both directions are seen from the dialling slot.

    `cut_upstream` drops what the dialler sends, `cut_downstream` what it would receive. Latency and
    jitter are milliseconds one way, `rate_kb` kilobytes a second (0: unlimited).
    """

    cut_upstream: bool = False
    cut_downstream: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0
    rate_kb: int = 0


HEALTHY = LinkState()


@dataclass(frozen=True, slots=True)
class Condition:
    """Something awaited, as a value: true of a `View` of the run so far.

    `description` completes the sentence "waited for ...".
    """

    description: str
    holds: Callable[[View], bool]

    def __and__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.description} and {other.description}",
            lambda view: self.holds(view) and other.holds(view),
        )

    def __invert__(self) -> Condition:
        return Condition(f"not {self.description}", lambda view: not self.holds(view))


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """A client to start: `workload` names a plugin's worker, `options` are its own (plain data).

    `may_die`: when its library takes its process down, that is recorded, and the run goes on.
    """

    name: str
    workload: str
    options: Mapping[str, object] = field(default_factory=dict)
    may_die: bool = False


class ClientSession(Protocol):
    """A running client worker; what it does shows in the history only."""

    @property
    def process(self) -> str: ...
    def tell(self, command: Mapping[str, object]) -> None:
        """Hands the worker one command; it answers through events."""
        ...

    def stop(self) -> None:
        """Asks the worker to finish what it has begun, and to end; see `client.*` events."""
        ...

    def end(self) -> None:
        """Ends a worker that hangs, at once and whatever it has begun."""
        ...


class Runtime(Protocol):
    """Where processes live and time passes."""

    @property
    def layout(self) -> Layout: ...
    @property
    def view(self) -> View: ...
    @property
    def bootstrap(self) -> tuple[str, ...]:
        """Where clients begin (`Layout.bootstrap`): an `address:port` each."""
        ...

    def now_ns(self) -> int: ...
    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        """Lets time pass until the condition holds; the event that decided it, or None too late.

        Returns at once, with the last event so far, when it holds already. Raises
        EnvironmentFailed when a process that should live has died meanwhile.
        """
        ...

    def start(self, slot: Slot) -> Process: ...
    def signal(self, process: Process, what: Signal) -> Receipt: ...
    def living(self, slot: Slot) -> Process | None:
        """The process now living in a slot."""
        ...

    def set_link(self, link: Link, state: LinkState) -> Receipt:
        """Sets what the link does by itself; what `apply_cut` cut stays cut."""
        ...

    def apply_cut(self, cut: Cut) -> Receipt:
        """Cuts these directions at once, on top of what is cut, with one receipt for all."""
        ...

    def lift_cut(self, cut: Cut) -> Receipt:
        """Undoes one `apply_cut` of these directions; one that another cut covers stays cut."""
        ...

    def heal_links(self) -> Receipt: ...
    def client(self, spec: ClientSpec) -> ClientSession: ...
    def events(self) -> Sequence[Event]: ...
    @property
    def damage(self) -> Sequence[str]:
        """A sentence for each line so far, of a node or a client, that is not an event."""
        ...

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        """Adds an event of the harness itself."""
        ...

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """Gives a slot, in which no process lives, what another's disk holds now (None: nothing).

        Raises UsageError when a process lives in the target.
        """
        ...

    def close(self, completed: bool = True) -> None:
        """Ends every process it started, in bounded time; safe to call twice.

        `completed` goes into `run.ended`: whether the run came to its planned end.
        """
        ...


@runtime_checkable
class Powered(Protocol):
    """A runtime whose machines can lose their power, so that disks forget what was not synced."""

    def lose_power(self, process: Process) -> Receipt:
        """Ends a process with its machine; the receipt says whose disk forgot."""
        ...


def let_pass_until(runtime: Runtime, at_ns: int) -> None:
    """Lets time pass until then, whatever happens meanwhile; raises as `Runtime.advance`."""
    runtime.advance(Condition("time to pass", lambda view: False), at_ns)


def clients_slot(layout: Layout, spec: ClientSpec) -> Slot:
    """The slot in which a client is to live.

    Raises UsageError for an unfit name, or a cluster without a slot for clients.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", spec.name):
        raise UsageError(f"the client name {spec.name!r} is not lower-case words joined by '-'")
    slots = layout.of(CLIENT)
    if not slots:
        raise UsageError("the system lays out no slot for clients")
    return slots[0]


def client_port(layout: Layout) -> int:
    """The port at which clients begin; 0 where a system names none."""
    return layout.bootstrap[0][1] if layout.bootstrap else 0


def describe(names: Iterable[str]) -> str:
    """`a, b and c`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
