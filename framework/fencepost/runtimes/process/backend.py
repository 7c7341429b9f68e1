"""Where a run's processes live: all that the process and the docker runtime differ in.

`fencepost.runtimes.process.runtime` lives a run's life over one of these: a `BackendKind` says what
it is and settles on it, once a layout is known; `fencepost.runtimes.process.host` and
`fencepost.runtimes.docker.host` are the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fencepost.history.run_folder import RunFolder
from fencepost.injection.probes import Prober
from fencepost.injection.toxiproxies import Toxiproxies
from fencepost.model.probe import Probe
from fencepost.model.topology import Layout, Slot
from fencepost.supervision.launcher import Child, Exit


class Launching(Protocol):
    """Children by name: started, signalled, watched. For one thread, but for `kill_soon`."""

    def fileno(self) -> int:
        """What to select on: readable when there is something for `exits`."""
        ...

    def start(self, child: Child) -> tuple[int, int]:
        """The child's process id, and the moment just before it was made.

        Raises EnvironmentFailed when its program cannot be started.
        """
        ...

    def signal(self, name: str, number: int) -> bool:
        """Whether a living child got the signal; SIGKILL takes what it started, too."""
        ...

    def state(self, name: str) -> str:
        """The letter of a child's state in /proc (`T`: stopped), or nothing when it is gone."""
        ...

    def kill_soon(self, name: str) -> None:
        """SIGKILL without waiting for an answer; the one call that any thread may make."""
        ...

    def wait(self, name: str, limit_s: float) -> Exit | None:
        """How the child ended, or None when it has not within the limit; `exits` has it as well."""
        ...

    def exits(self) -> list[Exit]:
        """The ends seen since the last call, oldest first; never waits.

        All that an ended child wrote is in its files by then.
        """
        ...


class Addressing(Protocol):
    """Where slots are, by IPv4 address."""

    def own(self, slot: Slot) -> str:
        """Where the slot's processes bind."""
        ...

    def seen(self, source: Slot, target: Slot) -> str:
        """Where `source` reaches `target`: its own end of the link, or itself."""
        ...

    def outside(self, slot: Slot) -> str:
        """Where the harness and client workers reach the slot's metrics page, past all links."""
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """What a process finds where it lives: see `Place`. `image` is empty on this host."""

    data_dir: Path
    work_dir: Path
    events_path: Path
    image: str = ""


class Backend(Protocol):
    """The parts of one run's place to live, settled on; all of it is gone after `close`."""

    @property
    def addresses(self) -> Addressing: ...
    @property
    def launcher(self) -> Launching: ...
    @property
    def toxiproxies(self) -> Toxiproxies: ...
    def prober(self, probe: Probe) -> Prober: ...
    def home(self, slot: Slot, process: str) -> Home:
        """Where a process of that name would live."""
        ...

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """Replaces the target's disk by what the source's holds now (None: nothing)."""
        ...

    def close(self) -> None:
        """Ends whatever lives here and gives up the place, in bounded time; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A place to live before anybody does.

    `runtime` is its name; `tools` are the versions of what it uses, for run.json; `open` opens
    it for one run, and raises EnvironmentFailed when something is missing.
    """

    runtime: str
    open: Callable[[Layout, RunFolder], Backend]
    tools: Mapping[str, str] = field(default_factory=dict)
