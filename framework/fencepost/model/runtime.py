"""The contract of runtimes: where processes run and time passes.

A test holds no client object, starts no thread and never sleeps: time passes in `Runtime.advance`,
and while a change of links or a signal is measured. The process, docker and simulated runtimes
satisfy this protocol, and one suite of tests runs on all three. A test can see these differences:
only a simulated machine can lose its power (`Powered`), and only real processes have clients of a
third party's library, sockets that a test opens itself and pages that are read over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.model.errors import UsageError, no_such
from fencepost.model.faults.effects import Effects
from fencepost.model.faults.hold import Hold, HoldCounts
from fencepost.model.system.apps import Parse, Program
from fencepost.model.system.topology import CLIENT, NAME, Cut, Layout, Link, Slot
from fencepost.model.view import View


class Signal(StrEnum):
    """The signals that a process can get, by POSIX name."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    INT = "SIGINT"
    STOP = "SIGSTOP"
    CONT = "SIGCONT"


ORDERLY = frozenset({Signal.TERM, Signal.INT})
"""The signals that ask a process to end in order, in its own time."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started: its name (`broker-2#3`), its slot and its id on the host."""

    name: str
    slot: Slot
    pid: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Evidence, measured, that something took effect; nothing may depend on it unless `true` is
    set.

    `unused`: applied, but not verifiable, because the link was idle, or no process ran at both of
    its ends; `true` is false then. `idle`: processes ran at both ends, and had no connection open.
    `unanswered`: nothing answered through any of the links before they were changed, either.
    """

    true: bool
    evidence: str
    # Three reasons for a receipt that is not true, which are not exclusive. They decide what is
    # printed (`question`), and whether a later measurement may still find the fault (`unused`).
    unused: bool = False
    idle: bool = False
    unanswered: bool = False

    @property
    def question(self) -> str:
        """What to look at if a fault of links misses in run after run; empty if nothing is likely.

        A system whose nodes pass the links by, or whose probe no node answers, never has a receipt.
        """
        if self.unanswered:
            return "does the system's probe ask what its nodes answer, at `place.address`?"
        if self.idle:
            return "is that link idle, or do the nodes not dial the addresses of `place.hosts`?"
        return ""

    @property
    def why_missed(self) -> str:
        """Of a receipt that is not true: what was measured, and what to look at; else empty."""
        if self.true:
            return ""
        return f"{self.evidence}{self.question and f': {self.question}'}"


@dataclass(frozen=True, slots=True)
class LinkState:
    """The effect of a link on the data that passes; directions are seen from the dialling slot.

    `cut_upstream` drops data that the dialler sends, `cut_downstream` data that it would receive.
    Latency and jitter are milliseconds one way, `rate_kb` is kilobytes a second (0: unlimited).
    """

    cut_upstream: bool = False
    cut_downstream: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0
    rate_kb: int = 0


HEALTHY = LinkState()
"""A link that passes everything at once."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to wait for, as a value: true or false of a `View` of the run so far.

    `description` completes the sentence "waited for ...". `holds` is called after every event, so
    it must be cheap: it reads the view and its folds, and never the whole log of events again. A
    condition that does costs more with each event, and may time out for what happened long before.
    """

    description: str
    holds: Callable[[View], bool]

    # One condition, asked of one view: two waits one after the other would be met by two different
    # moments.
    def __and__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.description} and {other.description}",
            lambda view: self.holds(view) and other.holds(view),
        )

    def __or__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.description}, or {other.description}",
            lambda view: self.holds(view) or other.holds(view),
        )

    def __invert__(self) -> Condition:
        return Condition(f"not {self.description}", lambda view: not self.holds(view))


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """A client to start: `workload` names a plugin's worker, `options` are the worker's own (plain
    data).

    `may_die`: a crash of the client's library is recorded and does not end the run. `slot` is the
    slot of an app in which it runs; empty: that of all clients.
    """

    name: str
    workload: str
    options: Mapping[str, object] = field(default_factory=dict)
    may_die: bool = False
    slot: str = ""


class ClientSession(Protocol):
    """A running client worker; its actions are visible only in the history."""

    @property
    def process(self) -> str:
        """The name of the process."""
        ...

    def tell(self, command: Mapping[str, object]) -> None:
        """Sends the worker one command; it answers by events."""
        ...

    def stop(self) -> None:
        """Asks the worker to finish its open operations, and to end; see `client.*` events."""
        ...

    def end(self) -> None:
        """Ends a worker that hangs, at once."""
        ...


class Runtime(Protocol):
    """Where processes run and time passes."""

    @property
    def layout(self) -> Layout:
        """The slots and links of the run."""
        ...

    @property
    def view(self) -> View:
        """The state of the run by its events so far."""
        ...

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """Where clients connect first (`Layout.bootstrap`): one `address:port` each."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """Slot -> the address at which clients outside of the run reach it; empty if none can."""
        ...

    @property
    def secrets(self) -> Path | None:
        """The folder of the run's keys and passwords (`Secured`), while it lasts; None: it has
        none."""
        ...

    @property
    def effects(self) -> Effects:
        """What was done to links, processes and disks so far, by faults and by their healing."""
        ...

    def now_ns(self) -> int:
        """The time on the run's clock, in nanoseconds."""
        ...

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        """Lets time pass until the condition holds; returns the event that decided it, or None if
        it is too late.

        Returns at once, with the last event so far, if it holds already. Raises EnvironmentFailed
        if a process that should be alive has died in between, unless it is started again
        (`supervise`), and UsageError if one has started in a role that no slot has.
        """
        ...

    def supervise(self) -> None:
        """From now on, while time passes, starts the next process of a node that ended by itself;
        see `fencepost.runtimes.restarts`."""
        ...

    def start(self, slot: Slot) -> Process:
        """Starts a process in a slot; returns before it is ready. Raises UsageError if one runs
        there, and for an app whose program was not given (`RunsApps`)."""
        ...

    def signal(self, process: Process, what: Signal) -> Receipt:
        """Sends a process a signal; the receipt says whether it took effect."""
        ...

    def living(self, slot: Slot) -> Process | None:
        """The process that now runs in a slot; None if there is none."""
        ...

    def set_links(self, links: Sequence[Link], state: LinkState) -> Receipt:
        """Sets what these links themselves do, at once, with one receipt for all.

        A direction that `apply_cut` has cut stays cut. Raises UsageError for a link that does not
        exist.
        """
        ...

    def apply_cut(self, cut: Cut) -> Receipt:
        """Cuts these directions at once, in addition to earlier cuts, with one receipt for all."""
        ...

    def lift_cut(self, cut: Cut) -> Receipt:
        """Undoes one `apply_cut` of these directions; a direction that another cut covers stays
        cut."""
        ...

    def in_use(self, links: Sequence[Link]) -> Receipt:
        """Whether a process has a connection open through any of these links now, to a process
        that runs.

        It is the later receipt of a fault whose links no process used when it began
        (`Receipt.unused`).
        """
        ...

    def hold(self, link: Link, what: Hold) -> None:
        """Has a link choose among the messages that its source sends from now on.

        Raises UsageError for a link that holds already, and where links carry no messages
        (`Layout.framed`).
        """
        ...

    def held(self, link: Link) -> HoldCounts:
        """The counts of the messages since the hold began; still available after the release."""
        ...

    def release(self, link: Link) -> Receipt:
        """Releases the held messages, in their order, and ends the hold; safe to call twice.

        A message that outlived its connection goes to the process that now listens at the link's
        target. The receipt is true if no message waits any more and none was lost.
        """
        ...

    def heal_links(self) -> Receipt:
        """Makes every link healthy: undoes all cuts, states and holds."""
        ...

    def client(self, spec: ClientSpec) -> ClientSession:
        """Starts a client worker. Raises UsageError for an unknown workload or a malformed name."""
        ...

    def events(self) -> Sequence[Event]:
        """The events so far, in the order in which they arrived."""
        ...

    @property
    def damage(self) -> Sequence[str]:
        """A sentence for each line so far, of a node or a client, that is not an event."""
        ...

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        """Adds an event of the harness itself."""
        ...

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """Copies the present content of another slot's disk to a slot without a process (None:
        empties it).

        Raises UsageError if a process runs in the target.
        """
        ...

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """Damages the disk of a slot without a process, as torn writes do: of each folder, the last
        bytes of the last file by name that matches become zeros. Returns the files that changed.

        `files` is a pattern of pathlib's match, below the disk. Raises UsageError if a process
        runs in the target, or if its simulated disk cannot be damaged.
        """
        ...

    def close(self, completed: bool = True) -> None:
        """Ends every process that the run started, in bounded time; may be called twice.

        `completed` is recorded in `run.ended`: whether the run reached its planned end.
        """
        ...


@runtime_checkable
class Powered(Protocol):
    """A runtime whose machines can lose power, so that disks lose unsynced data."""

    def lose_power(self, process: Process) -> Receipt:
        """Ends a process together with its machine; the receipt names the slot whose disk lost
        data."""
        ...


@runtime_checkable
class RunsApps(Protocol):
    """A runtime that runs programs of the user's."""

    def install(self, program: Program, parse: Parse) -> None:
        """Gives the program that `start` starts in the slots of its app; `parse` makes events of
        what it prints.

        Raises UsageError for an app without a slot, and for a program that cannot be started.
        """
        ...

    def works(self, slot: Slot) -> str:
        """Asks the app in a slot whether it is ready, at the port or the URL of its program, once:
        empty if it is, or else why not."""
        ...


@runtime_checkable
class SeesBypass(Protocol):
    """A runtime that can see which connections of nodes pass no link, so that no fault of links
    acts on them."""

    def bypassing(self) -> Sequence[str]:
        """Those connections, a sentence for each pair of nodes. None before a fault has changed a
        link in this run: until then nothing was bypassed."""
        ...


def check_at_rest(runtime: Runtime, slot: Slot) -> None:
    """Raises UsageError if a process runs in the slot, and uses its disk."""
    # A disk that is copied or damaged below a process that uses it would have a content which no
    # failure of a disk leaves.
    occupant = runtime.living(slot)
    if occupant is not None:
        raise UsageError(f"{occupant.name} is alive in {slot.name}: its disk is in use")


def let_pass_until(runtime: Runtime, at_ns: int) -> None:
    """Lets time pass until then; raises as `Runtime.advance` does."""
    runtime.advance(Condition("time to pass", lambda view: False), at_ns)


def clients_slot(layout: Layout, spec: ClientSpec) -> Slot:
    """The slot in which a client is to run.

    Raises UsageError for a malformed name, or a cluster without a slot for clients.
    """
    # The name becomes part of file names, and of the process's name, in which `/` and `#` have a
    # meaning.
    if not NAME.fullmatch(spec.name):
        raise UsageError(f"the client name {spec.name!r} is not lower-case words joined by '-'")
    slots = layout.of(CLIENT)
    if not slots:
        raise UsageError("the system lays out no slot for clients")
    if not spec.slot:
        return slots[0]
    theirs = {slot.name: slot for slot in layout.instances()}
    if spec.slot not in theirs:
        raise no_such("slot of an app", spec.slot, theirs)
    return theirs[spec.slot]


def client_port(layout: Layout) -> int:
    """The port to which clients connect first; 0 if a system names none."""
    return layout.bootstrap[0][1] if layout.bootstrap else 0


def describe(names: Iterable[str]) -> str:
    """`a, b and c`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
