"""Shared by tests of the runtimes: runs of echo nodes, and waiting for their events."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct
from tests import echo_node

from fencepost import Command, Condition, Event, Runtime, Shape, Slot, View
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.model.system.subject import Subject
from fencepost.runtimes.process.backend import BackendKind
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost.supervision.launcher import state_of
from fencepost_kafka import Role, kafka_shape
from fencepost_kafka.probe import kafka_probe

PAIR = kafka_shape(controllers=0, brokers=2)
NEVER = Condition("never", lambda view: False)


def echo_run(
    path: Path,
    system: echo_node.EchoSystem | None = None,
    shape: Shape = PAIR,
    backend: BackendKind | None = None,
    kinds: tuple[type[Struct], ...] = (),
) -> ProcessRuntime:
    """A run of echo nodes, none of them started, with the workload `echo`; on this host, or on
    that backend. `kinds` are further kinds of events."""
    return ProcessRuntime(
        Subject(system or echo_node.EchoSystem(), shape, 7, (*echo_node.KINDS, *kinds)),
        RunFolder.create(path),
        workloads={"echo": Command((sys.executable, echo_node.__file__, "client"))},
        backend=backend,
    )


def simulated_run(
    path: Path, system: echo_node.EchoSystem | None = None, shape: Shape = PAIR
) -> SimulatedRuntime:
    """As `echo_run`, in virtual time."""
    subject = Subject(system or echo_node.EchoSystem(), shape, 7, echo_node.KINDS)
    return SimulatedRuntime(subject, RunFolder.create(path))


def talking_pair(
    path: Path, system: echo_node.EchoSystem | None = None, backend: BackendKind | None = None
) -> ProcessRuntime:
    """Two brokers that talk to each other."""
    runtime = echo_run(path, system, backend=backend)
    start_brokers(runtime)
    return runtime


def start_brokers(runtime: Runtime) -> None:
    """Starts both brokers, and waits until they talk to each other."""
    for broker in runtime.layout.of(Role.BROKER):
        runtime.start(broker)
    talk(runtime)


def talk(runtime: Runtime) -> None:
    """Waits until both brokers receive frames from each other, from now on."""
    for name in ("broker-1", "broker-2"):
        assert advance(runtime, more("echo.answered", name, runtime.view)), "they do not talk"


def advance(runtime: Runtime, until: Condition, limit_s: float = 30) -> Event | None:
    return runtime.advance(until, runtime.now_ns() + int(limit_s * SECOND))


def more(kind: str, slot: str, view: View) -> Condition:
    """The newest process of a slot records another event of that kind."""
    last = view.latest.get((view.newest[slot], kind))
    return Condition(
        f"{kind} by {slot}", lambda view: view.latest.get((view.newest[slot], kind)) != last
    )


def goes_on(runtime: Runtime, kind: str, name: str) -> bool:
    """Whether a slot's process still records such events, after those that were on their way."""
    _let_past(runtime, name)
    return advance(runtime, more(kind, name, runtime.view)) is not None


def is_silent(runtime: Runtime, kind: str, name: str) -> bool:
    """Whether a slot's process records no such event, after those that were on their way."""
    _let_past(runtime, name)
    return advance(runtime, more(kind, name, runtime.view), 0.5) is None


def _let_past(runtime: Runtime, name: str) -> None:
    """A node that answers now has handled all earlier frames, even if it was slow before. A stopped
    node is not asked, nor one in a container, which can be reached by its links only."""
    if isinstance(runtime, ProcessRuntime) and runtime.folder.info().runtime == "process":
        process = runtime.living(slot(runtime, name))
        if process is not None and state_of(process.pid) != "T":
            assert kafka_probe(runtime.place(process.slot).address, echo_node.PORT, 30)
    advance(runtime, NEVER, 0.2)


def answered(process: str) -> Condition:
    """A process has had an answer from some peer."""
    return Condition(f"{process} to talk", lambda view: (process, "echo.answered") in view.latest)


def slot(runtime: Runtime, name: str) -> Slot:
    return runtime.layout.slot(name)
