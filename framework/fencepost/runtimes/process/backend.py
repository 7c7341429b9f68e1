"""The backend of a run's processes: all differences between the process and the docker runtime.

`fencepost.runtimes.process.runtime` conducts a run on one of these. A `BackendKind` describes it,
and opens it once the layout is known. `fencepost.runtimes.process.host`,
`fencepost.runtimes.docker.host` and `fencepost.runtimes.attached.backend` are the three.

See docs/decisions/11-backends.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, final

from fencepost.history.run_folder import RunFolder
from fencepost.injection.attached_links import AttachedLinks
from fencepost.injection.links import Links
from fencepost.injection.probes import Prober
from fencepost.model.faults.handles import Handle
from fencepost.model.runtime import Process, Signal
from fencepost.model.system.capabilities import System
from fencepost.model.system.probe import Probe
from fencepost.model.system.topology import Layout, Slot
from fencepost.supervision.addresses import check_layout
from fencepost.supervision.launcher import Child, Exit


class Launching(Protocol):
    """Children by name: started, signalled, watched. For one thread only, except `kill_soon`."""

    def fileno(self) -> int:
        """The descriptor to select on: readable when `exits` may return an end."""
        ...

    def start(self, child: Child) -> tuple[int, int]:
        """The child's process id, and the moment just before it was made.

        Raises EnvironmentFailed when its program cannot be started.
        """
        ...

    def owns(self, name: str) -> bool:
        """Whether the process of that name ends with the run. A node that was adopted does not."""
        ...

    def signal(self, name: str, number: int) -> bool:
        """Whether a live child received the signal; SIGKILL also ends the processes that it
        started."""
        ...

    def state(self, name: str) -> str:
        """The state letter of a child in /proc (`T`: stopped), or empty if it is gone."""
        ...

    def kill_soon(self, name: str) -> None:
        """Sends SIGKILL without waiting for an answer; the only call that any thread may make."""
        ...

    def wait(self, name: str, limit_s: float) -> Exit | None:
        """How the child ended, or None if it did not within the limit; `exits` yields the end as
        well."""
        ...

    def exits(self) -> list[Exit]:
        """The ends seen since the last call, oldest first; never waits.

        Everything that an ended child wrote is in its files by then.
        """
        ...


class Addressing(Protocol):
    """The IPv4 addresses of slots."""

    def own(self, slot: Slot) -> str:
        """Where the slot's processes bind."""
        ...

    def seen(self, source: Slot, target: Slot) -> str:
        """Where `source` reaches `target`: its own end of the link, or its own address for
        itself."""
        ...

    def outside(self, slot: Slot) -> str:
        """Where the harness and client workers reach the slot's metrics page, without a link."""
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one process: see `Place`. `image` is empty on this host."""

    data_dir: Path
    work_dir: Path
    events_path: Path
    image: str = ""


RunLinks = Links | AttachedLinks
"""The links of a run: Fencepost's own, or proxies of the user's."""


class Limits(Protocol):
    """What faults cannot do to the processes and links of a run. Its methods raise UsageError."""

    @property
    def lacks(self) -> Mapping[Handle, str]:
        """The kinds of handle that nothing of the run has, each with the reason."""
        ...

    def check_signal(self, slot: str, what: Signal) -> None:
        """Refuses a signal that the process in a slot cannot get, or not come back from."""
        ...

    def check_links(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Refuses a fault of links between slots that no link of the run joins."""
        ...


@final
class NoLimits:
    """A run whose processes, disks and links are Fencepost's own: every fault may be injected."""

    lacks: Mapping[Handle, str] = MappingProxyType({})

    def check_signal(self, slot: str, what: Signal) -> None:
        """Every process gets every signal."""

    def check_links(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Where no link is, nothing passes."""


class Backend(Protocol):
    """An open backend of one run; `close` removes all of it."""

    @property
    def addresses(self) -> Addressing: ...
    @property
    def launcher(self) -> Launching: ...
    @property
    def links(self) -> RunLinks: ...
    @property
    def left(self) -> Sequence[str]:
        """Once it is closed: what is not as it was before the run, a sentence each."""
        ...

    def prober(
        self, system: System, living: Callable[[str], Process | None], probe: Probe | None = None
    ) -> Prober:
        """What probes the links; `living` is the process that now runs in a slot, `probe` that of a
        secured cluster (None: the system's own)."""
        ...

    def home(self, slot: Slot, process: str) -> Home:
        """The home of a process of that name."""
        ...

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """Replaces the target's disk by the present content of the source's (None: empties it)."""
        ...

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """See `Runtime.damage_disk`."""
        ...

    def close(self) -> None:
        """Ends everything that runs here and releases it, in bounded time; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A backend that is not open yet.

    `runtime` is its name; `tools` are the versions of what it uses, for run.json; `open` opens it
    for one run, and raises EnvironmentFailed if something is missing. `check` raises UsageError for
    a layout for which it has no room. `restarts`: a node that ends by itself is started again.
    """

    runtime: str
    open: Callable[[Layout, RunFolder], Backend]
    tools: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=NoLimits)
    check: Callable[[Layout], None] = check_layout
    restarts: bool = True
