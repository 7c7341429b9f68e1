"""A plain Python program that owns a run: it starts one, writes `ready`, and waits for its end.

`python_owner.py FOLDER [fork]`. FOLDER/ready exists once every node is up and the program waits for
an interrupt. FOLDER/closing exists once it was interrupted and its teardown, which takes time, has
begun. With `fork`, a fork of it keeps running and holds every descriptor that it had.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fencepost import ClientSpec, Command, Condition
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.model.system.subject import Subject
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka import Role, kafka_shape

sys.path.insert(0, os.fspath(Path(__file__).parents[1]))
import echo_node

NEVER = Condition("a death", lambda view: False)


def start(folder: Path) -> ProcessRuntime:
    """A controller, a broker and a client, up and talking."""
    runtime = ProcessRuntime(
        Subject(
            echo_node.EchoSystem(), kafka_shape(controllers=1, brokers=1), kinds=echo_node.KINDS
        ),
        RunFolder.create(folder / f"run-{os.getpid()}"),
        workloads={"echo": Command((sys.executable, echo_node.__file__, "client"))},
    )
    for slot in runtime.layout.of(Role.CONTROLLER) + runtime.layout.of(Role.BROKER):
        runtime.start(slot)
    runtime.client(ClientSpec("one", "echo"))
    up = Condition(  # each by its own events: nodes may write long before their client does
        "all to be up",
        lambda view: all((process, "echo.answered") in view.latest for process in view.alive),
    )
    if runtime.advance(up, runtime.now_ns() + 20 * SECOND) is None:
        raise AssertionError("the nodes did not come up")
    return runtime


def linger(runtime: ProcessRuntime) -> None:
    """Lets time pass, far longer than any test waits."""
    runtime.advance(NEVER, runtime.now_ns() + 120 * SECOND)


def main(folder: Path, fork: bool) -> None:
    with start(folder) as runtime:
        if fork and os.fork() == 0:
            signal.pause()
        try:
            (folder / "ready").touch()
            linger(runtime)
        finally:
            (folder / "closing").touch()
            linger(runtime)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "fork" in sys.argv[2:])
