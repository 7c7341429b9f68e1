"""A program that owns a run in containers: it starts one, says so, and waits to die.

`docker_owner.py FOLDER`. It makes the file `ready`, with the run's name in it, in FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fencepost import Condition
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.model.system.subject import Subject
from fencepost.runtimes.docker.host import docker_backend
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka import Role, kafka_shape

sys.path.insert(0, os.fspath(Path(__file__).parents[1]))
import echo_node


def main(folder: Path) -> None:
    name = f"run-{os.getpid()}"
    with ProcessRuntime(
        Subject(
            echo_node.EchoSystem(), kafka_shape(controllers=1, brokers=1), kinds=echo_node.KINDS
        ),
        RunFolder.create(folder / name),
        backend=docker_backend(lambda slot: "fencepost/pod"),
    ) as runtime:
        for slot in runtime.layout.of(Role.CONTROLLER) + runtime.layout.of(Role.BROKER):
            runtime.start(slot)
        up = Condition("all to be up", lambda view: view.kinds["echo.answered"] > 10)
        if runtime.advance(up, runtime.now_ns() + 20 * SECOND) is None:
            raise AssertionError("the nodes did not come up")
        (folder / "ready.new").write_text(name)
        (folder / "ready.new").rename(folder / "ready")
        runtime.advance(Condition("a death", lambda v: False), runtime.now_ns() + 120 * SECOND)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
