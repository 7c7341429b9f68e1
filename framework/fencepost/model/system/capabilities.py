"""The capabilities of a system under test: small protocols, none of which is inherited.

A system is a value: it lays out slots and knows how to start a node in a place. Each further
capability (being stopped gently, being broken by a named defect) is a protocol of its own. The
faults and suites that are available follow from the protocols it satisfies.

See docs/decisions/04-readiness.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.model.cluster import Cluster
from fencepost.model.errors import UsageError, no_such
from fencepost.model.runtime import ClientSpec
from fencepost.model.system.apps import Listener, with_apps
from fencepost.model.system.probe import Probe
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Layout, Slot
from fencepost.model.view import Fold, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one process is to run: made by the runtime, given to the system.

    `process` is its name (`broker-2#3`). `address` is the slot's own; a node binds there. `hosts`
    maps every slot name to the address at which this slot reaches it (its end of the link; its own
    address for itself). `advertised` is the address at which clients reach this slot; at
    `listeners` it listens besides, for apps (`Advertises`). `data_dir` is the slot's disk and
    outlives processes; `work_dir` is the process's own folder. The process appends its events to
    `events_path`, one NDJSON line each.
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
    """The run's seed; a process's random choices derive from it and from the process's name."""
    image: str = ""
    """The image of the container in which it is to run, with the image's programs (empty: no
    container)."""
    secrets: Path | None = None
    """The folder of the run's secrets (`Secured`); None: its shape has no security."""
    listeners: tuple[Listener, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a process; `files` (path below the work folder, text) are written first.

    A node gets `environment` and little of the user's own: PATH, HOME, TMPDIR, TZ, LANG, LC_*,
    LD_LIBRARY_PATH, VIRTUAL_ENV, PYTHONHOME and PYTHONPATH. What else its program reads, such as
    JAVA_HOME, is named here. In a container it gets what the image has. A client's worker has the
    whole environment of the test.

    `preload` lets local processes start sooner, if `argv` is `(sys.executable, "-m", module, ...)`:
    one process of the run imports the module (of a package, its `__main__`), and the processes are
    forks of it. Importing the module must have no effect and start no thread.

    `hosts`: the program resolves the names of slots to the addresses of `Place.hosts`. They are in
    the file `hosts` of the work folder, from which libc answers by nss_wrapper, and a JVM by
    itself; in a container they are in /etc/hosts. A static program, such as most of Go's, asks
    neither.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    preload: bool = False
    hosts: bool = False


@runtime_checkable
class System(Protocol):
    """A system under test, by name (`reference/quorum`)."""

    @property
    def name(self) -> str:
        """Its name, `family/system`."""
        ...

    @property
    def plane(self) -> str:
        """The plane that clauses bind: systems of one plane make the same promises."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts that a shape of this system has, with their defaults; see `counted`."""
        ...

    @property
    def folds(self) -> Sequence[type[Fold]]:
        """The state that conditions read of this system's events."""
        ...

    @property
    def workload(self) -> str:
        """The name of the workload that tests use unless they choose another."""
        ...

    def layout(self, shape: Shape) -> Layout:
        """The slots and links of a cluster of that shape; raises UsageError for a bad shape."""
        ...

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """What the cluster lacks to be ready, a sentence each; empty if it is ready.

        A cluster is ready once nothing is missing after its start, and has recovered once nothing
        is missing after all faults were healed. This is called after every event.
        """
        ...

    def recovery_bound_ms(self, shape: Shape) -> int:
        """How long, by its configuration, a cluster may take to recover after everything was
        healed."""
        ...


@runtime_checkable
class Advertises(Protocol):
    """A system whose nodes tell clients the addresses of other nodes.

    For each instance of an app they listen once more, where `Place.listeners` says, and tell
    whoever asks there the addresses of that instance's own links.
    """

    @property
    def told_ports(self) -> Sequence[int]:
        """The ports of nodes whose addresses clients are told."""
        ...


def told_ports(system: System) -> Sequence[int]:
    """The ports whose addresses nodes of this system tell clients; none if they tell none."""
    return system.told_ports if isinstance(system, Advertises) else ()


def layout_of(system: System, shape: Shape) -> Layout:
    """The slots and links of a cluster of that shape, those of its apps included; raises UsageError
    for a bad shape."""
    return with_apps(system.layout(shape), shape.apps, told_ports(system))


def check_shape(system: System, shape: Shape) -> None:
    """Raises UsageError for a count that the system does not declare, for a defect that it does not
    plant, and for a security that it does not know."""
    counted(system, shape)
    if shape.security:
        if not isinstance(system, Secured):
            raise UsageError(
                f"{system.name} cannot be secured: leave out the security '{shape.security}'"
            )
        if shape.security not in system.securities:
            raise no_such(f"security of {system.name}", shape.security, system.securities)
    if not shape.defects:
        return
    if not isinstance(system, HasDefects):
        raise UsageError(f"{system.name} has no defects to switch on")
    names = [defect.name for defect in system.defects()]
    for name in shape.defects:
        if name not in names:
            raise no_such("defect", name, names)


def counted(system: System, shape: Shape) -> Mapping[str, int]:
    """Every count of a shape, defaults filled in.

    Raises UsageError, with the nearest right name, for a count that the system does not declare.
    """
    for name in shape.counts:
        if name not in system.counts:
            raise no_such(f"count of {system.name}", name, system.counts)
    return {**system.counts, **shape.counts}


@runtime_checkable
class Probed(Protocol):
    """A system that says how to measure that a link to one of its nodes answers.

    Without it a line of HTTP is sent, and any byte that comes back is the answer.
    """

    @property
    def probe(self) -> Probe:
        """A function of a module, importable by name where the nodes run."""
        ...


@runtime_checkable
class Secured(Protocol):
    """A system whose listeners can be secured (`Shape.security`).

    Its keys and passwords are made anew for each run that has a security. The runtime keeps them
    in a folder outside of the run's own, which only the user can read, and removes it at the end.
    Nodes find it in `Place.secrets`, clients in `WorkerConfig.secrets`.
    """

    @property
    def securities(self) -> Sequence[str]:
        """The names of the ways in which it can be secured."""
        ...

    def secrets(
        self,
        shape: Shape,
        layout: Layout,
        addresses: Mapping[str, Sequence[str]],
        now: datetime,
    ) -> Mapping[str, str]:
        """The texts of one run's secrets, by the names of their files.

        `addresses` has every address at which the process of a slot is reached: its own, and the
        ends of all links to it. `now` is the time, from which a certificate is good.
        """
        ...

    def client_files(self, shape: Shape, secrets: Path, user: str) -> Mapping[str, str]:
        """The files by which a program of the user's gets in, as the user of its slot; they are
        written into the folder of secrets."""
        ...

    def secured_probe(self, shape: Shape, secrets: Path) -> Probe:
        """The probe of a secured cluster (`Probed.probe`); `secrets` is the folder."""
        ...


@runtime_checkable
class Faceted(Protocol):
    """A system with an API of its own for tests, such as `cluster.leader("orders", 0)`."""

    def facade(self, cluster: Cluster) -> object:
        """What the fixture `cluster` returns; it is built on the framework's own cluster."""
        ...


@runtime_checkable
class Selecting(Protocol):
    """A system whose schedules may name their targets by their role at that time
    (`@leader/orders/0`)."""

    @property
    def selectors(self) -> Sequence[str]:
        """Its selectors, each up to the first `/` and with its `@`: `@leader`."""
        ...

    def select(self, selector: str, view: View, layout: Layout) -> Sequence[str] | None:
        """The names of the slots selected now, by the whole selector (`@leader/orders/0`); empty if
        none is known yet; None if there is no such selector."""
        ...


@runtime_checkable
class Launchable(Protocol):
    """A system whose nodes are programs."""

    def command(self, place: Place, shape: Shape) -> Command:
        """How to start the node of a place in a cluster of that shape."""
        ...


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """An event body that a log parser made of a line, and when the process said that it happened.

    `at_ns` is a time on the run's clock, the host's CLOCK_MONOTONIC, in nanoseconds. Most logs have
    stamps of the wall clock instead. For these, `wall` is set and `at_ns` is nanoseconds since
    1970: the runtime converts it when it reads the line. Stamps need at least milliseconds, since
    events of several processes are ordered by them.
    """

    at_ns: int
    body: Struct
    wall: bool = False


class LogParser(Protocol):
    """Makes events of what one process prints. It reads no file, and may remember earlier lines.

    Lines come whole, in order, without their end. A line without information makes no event. A
    parser that raises ends the run (exit code 2), and leaves its history incomplete.
    """

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The events of one line."""
        ...


@runtime_checkable
class ParsesLogs(Protocol):
    """A system whose nodes write no events: the runtime writes the events that log parsers make.

    A node's standard output is followed from its start to its end. The events that its log parser
    makes are numbered and written to the node's events file as they come.
    """

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser | None:
        """A log parser for the next process in a slot of a cluster of that shape.

        None: the node in that slot writes its own events.
        """
        ...


@runtime_checkable
class StartsInOrder(Protocol):
    """A system some of whose nodes must not start before others do their work.

    Without it, all nodes of a run start at once. A node that a fault or a test starts later is held
    back by nothing.
    """

    def may_start(self, slot: Slot, view: View, layout: Layout) -> bool:
        """Whether the node of a slot may start now, as a run begins.

        Each node that has not started is asked for after every event.
        """
        ...


@runtime_checkable
class Observed(Protocol):
    """A system whose state is recorded by clients of the run, which start right after the nodes."""

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """The clients to start in a cluster of that shape."""
        ...


@dataclass(frozen=True, slots=True)
class Remains:
    """What a run left when all its processes had ended.

    `disks` has the disk of each slot; `events` are those of the run in order. `from_wall_ns`
    converts nanoseconds since 1970 to the run's clock.
    """

    disks: Mapping[str, Path]
    events: Iterable[Event]
    from_wall_ns: Callable[[int], int]


class Supplied(NamedTuple):
    """An event that a disk supplies, at a time on the run's clock.

    An `EvidenceSupplied` has the `EvidenceMissed` that it closes as its cause.
    """

    at_ns: int
    body: Struct
    cause: Cause | None = None


@runtime_checkable
class ReadsDisks(Protocol):
    """A system whose nodes' disks have what no process reports, or what its observers missed.

    They are read once every process has ended, and before the run is judged.
    """

    def read_disks(self, remains: Remains, shape: Shape) -> Sequence[Supplied]:
        """The events that disks supply, by their times. What a disk lacks stays missing, as does
        what cannot be read there."""
        ...


@runtime_checkable
class StatesBounds(Protocol):
    """A system whose rules depend on its configuration, such as on a timeout."""

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """What rules must know of the configuration of a cluster of that shape: events of the
        system's own kinds. The harness records them when a run begins."""
        ...


@runtime_checkable
class SaysVersion(Protocol):
    """A system that says its version: reports head with it, and known findings are known in
    versions."""

    @property
    def version(self) -> str:
        """The version of the programs that a run starts here, such as `7.0.15`; empty if it is not
        known. It is asked for often: keep what a program answered."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A system that exists in several versions, named `name@version`."""

    @property
    def version(self) -> str:
        """See `SaysVersion`."""
        ...

    def at(self, version: str) -> System:
        """The system in another version; raises UsageError for an unknown version. In place of a
        version may stand the path of somebody's own build (`fencepost.named_path`), or an image
        (`fencepost.named_image`, `fencepost.images`)."""
        ...


@runtime_checkable
class Contained(Protocol):
    """A launchable system whose nodes can run in containers as well.

    Its `command` finds in `Place.image` the image whose programs it must name.
    """

    def image(self, slot: Slot) -> str:
        """The name of the image of a slot's node; its user has the id 65532, like that of pods."""
        ...


@runtime_checkable
class Fetched(Protocol):
    """A system whose nodes run software that is fetched, or built, once."""

    def fetch(self) -> str:
        """Fetches it now, unless it is there; says where it is. Raises EnvironmentFailed."""
        ...


@runtime_checkable
class HasSuite(Protocol):
    """A system with tests of its own promises: `fencepost run` runs them unless it is given a
    path."""

    @property
    def suite(self) -> str:
        """The package that holds the tests, importable by name."""
        ...


@runtime_checkable
class HasDefects(Protocol):
    """A system that can be broken deliberately."""

    def defects(self) -> Sequence[Defect]:
        """Every defect, in a stable order."""
        ...


@runtime_checkable
class Mutable(Protocol):
    """A system whose own code `fencepost mutants` changes; it runs in the simulator."""

    def mutable(self) -> Sequence[str]:
        """The modules and packages whose decisions its promises depend on."""
        ...


@dataclass(frozen=True, slots=True)
class Defect:
    """A named way to break a system, with the clauses it breaks.

    `unseen`: the runtimes on which it cannot be found, each with the reason.
    """

    name: str
    breaks: tuple[str, ...]
    says: str
    unseen: Mapping[str, str] = field(default_factory=dict)
