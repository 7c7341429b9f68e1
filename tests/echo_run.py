"""What tests of the process runtime share: runs of echo nodes, and waiting for what they say."""

from __future__ import annotations

from pathlib import Path

from tests import echo_node

from fencepost import Condition, Event, Shape, Slot, View
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND, now_ns
from fencepost.runtimes.process.backend import BackendKind
from fencepost.runtimes.process.runtime import ProcessRuntime
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
) -> ProcessRuntime:
    """A run of echo nodes, none of them started, with the workload `echo`; on this host, or on
    that backend."""
    return ProcessRuntime(
        system or echo_node.EchoSystem(),
        shape,
        RunFolder.create(path),
        seed=7,
        workloads={"echo": (echo_node.__file__, "client")},
        kinds=echo_node.KINDS,
        backend=backend,
    )


def talking_pair(
    path: Path, system: echo_node.EchoSystem | None = None, backend: BackendKind | None = None
) -> ProcessRuntime:
    """Two brokers that talk to each other."""
    runtime = echo_run(path, system, backend=backend)
    for broker in runtime.layout.of(Role.BROKER):
        runtime.start(broker)
    talk(runtime)
    return runtime


def talk(runtime: ProcessRuntime) -> None:
    """Waits until both brokers hear from each other, from now on."""
    for name in ("broker-1", "broker-2"):
        assert advance(runtime, more("echo.answered", name, runtime.view)), "they do not talk"


def advance(runtime: ProcessRuntime, until: Condition, limit_s: float = 30) -> Event | None:
    return runtime.advance(until, now_ns() + int(limit_s * SECOND))


def more(kind: str, slot: str, view: View) -> Condition:
    """The newest process of a slot records another event of that kind."""
    last = view.latest.get((view.newest[slot], kind))
    return Condition(
        f"{kind} by {slot}", lambda view: view.latest.get((view.newest[slot], kind)) != last
    )


def goes_on(runtime: ProcessRuntime, kind: str, name: str) -> bool:
    """Whether a slot's process still records such events, once what was on its way is past."""
    _let_past(runtime, name)
    return advance(runtime, more(kind, name, runtime.view)) is not None


def is_silent(runtime: ProcessRuntime, kind: str, name: str) -> bool:
    """Whether a slot's process records no such event, once what was on its way is past."""
    _let_past(runtime, name)
    return advance(runtime, more(kind, name, runtime.view), 0.5) is None


def _let_past(runtime: ProcessRuntime, name: str) -> None:
    """A node that answers now has taken in what had reached it, however slow it was until then;
    none is asked that is stopped, or in a container, where nobody is heard past the links."""
    process = runtime.living(slot(runtime, name))
    here = runtime.folder.info().runtime == "process"
    if here and process is not None and state_of(process.pid) != "T":
        assert kafka_probe(runtime.place(process.slot).address, echo_node.PORT, 30)
    advance(runtime, NEVER, 0.2)


def answered(process: str) -> Condition:
    """A process has had an answer from some peer."""
    return Condition(f"{process} to talk", lambda view: (process, "echo.answered") in view.latest)


def slot(runtime: ProcessRuntime, name: str) -> Slot:
    return runtime.layout.slot(name)
