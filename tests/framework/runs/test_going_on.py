"""A node that ends by itself is an event of the run, and not its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost import (
    Condition,
    EnvironmentFailed,
    Event,
    Host,
    Place,
    ProcessExited,
    ProcessSpawned,
    Shape,
    Signal,
    SimulatedDisk,
    SimulatedProcess,
    System,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.model.clock import SECOND
from fencepost.model.runtime import let_pass_until
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.testing import Outcome

CRASHES = "broker-2"


@dataclass
class Crashing:
    """A node's process that fails by an exception a few seconds after its start."""

    node: SimulatedProcess
    host: Host
    at_ns: int

    def wake(self) -> None:
        if self.host.monotonic_ns() >= self.at_ns:
            raise RuntimeError("out of ideas")
        self.node.wake()

    def deadline_ns(self) -> int | None:
        return min(self.at_ns, self.node.deadline_ns() or self.at_ns)

    def accepted(self, connection: int, port: int) -> None:
        self.node.accepted(connection, port)

    def received(self, connection: int, message: object) -> None:
        self.node.received(connection, message)

    def broken(self, connection: int, reason: str) -> None:
        self.node.broken(connection, reason)

    def signalled(self, what: Signal) -> None:
        self.node.signalled(what)

    def command(self, command: Mapping[str, object]) -> None:
        self.node.command(command)


def crashing(plugins: Plugins, times: int) -> System:
    """A cluster of which one broker crashes so many times, ten seconds after each start."""
    known = type(plugins.system("reference/quorum"))

    def simulated_node(
        self: object, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        node: SimulatedProcess = known.simulated_node(self, place, shape, disk, host)  # type: ignore[attr-defined]
        slot, _, number = place.process.partition("#")
        if slot != CRASHES or int(number) > times:
            return node
        return Crashing(node, host, host.monotonic_ns() + 10 * SECOND)

    made: System = type("Crashing", (known,), {"simulated_node": simulated_node})()
    return made


def finished(plugins: Plugins, system: System, path: Path) -> tuple[RunResult, Sequence[Event]]:
    """A run of half a minute under load."""
    spec = RunSpec(system, Shape(), runtime="simulated", seed=5)
    with Run.start(spec, plugins, RunFolder.create(path)) as run:
        writes = run.clients.produce("orders", rate=20)  # type: ignore[attr-defined]
        let_pass_until(run.runtime, run.runtime.now_ns() + 35 * SECOND)
        run.base.eventually(writes.acked_at_least(100))
        return run.finish(), run.runtime.events()


def test_a_crash_is_violated_and_the_run_goes_on_to_its_planned_end(tmp_path: Path) -> None:
    plugins = load()
    result, events = finished(plugins, crashing(plugins, 1), tmp_path / "run")
    assert result.trouble is None
    assert result.end.complete
    assert result.judgement.broken == ("AVAIL-running",)
    (broken,) = result.judgement.verdicts["AVAIL-running"].violations
    assert "out of ideas" in str(broken.facts["said"])
    ended = next(one for one in events if isinstance(one.body, ProcessExited))
    again = next(
        one
        for one in events
        if isinstance(one.body, ProcessSpawned) and one.body.started == f"{CRASHES}#2"
    )
    assert again.at_ns - ended.at_ns == SECOND


def test_a_run_gives_up_at_the_third_crash_and_its_end_says_so(tmp_path: Path) -> None:
    plugins = load()
    with pytest.raises(EnvironmentFailed, match="3 times within a minute"):
        finished(plugins, crashing(plugins, 3), tmp_path / "run")
    judgement, end = judge_folder(RunFolder(tmp_path / "run"), plugins.promises)
    assert f"{CRASHES}#3 exited" in end.cut_short_by
    assert end.cut_short_by in end.lacks
    assert judgement.broken == ("AVAIL-running",)
    assert judgement.verdicts["QC-14"].verdict is not Outcome.VIOLATED


@pytest.mark.usefixtures("real")
def test_a_process_that_crashes_is_started_again(tmp_path: Path) -> None:
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), Shape(), seed=5)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        victim = run.runtime.living(run.runtime.layout.slot(CRASHES))
        assert victim is not None
        os.kill(victim.pid, signal.SIGABRT)
        again = Condition("its next process", lambda view: f"{CRASHES}#2" in view.alive)
        run.base.eventually(again)
        result = run.finish()
    assert result.trouble is None
    assert result.judgement.broken == ("AVAIL-running",)
