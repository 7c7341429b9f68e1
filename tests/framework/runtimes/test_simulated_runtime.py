"""The simulated runtime: one seed is one history, and errors in it are reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from tests.echo_node import KINDS, EchoSystem

from fencepost import (
    ClientFailed,
    Condition,
    EnvironmentFailed,
    Process,
    ProcessSpawned,
    Shape,
    Signal,
    UsageError,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import one_way
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.runtimes.simulated.machine import Clock
from fencepost.runtimes.simulated.network import NetworkProfile
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost.runtimes.simulated.virtual_time import Agenda
from fencepost_kafka import Role, kafka_shape
from fencepost_plugins.bounce import damage_disk

SECOND = 1_000_000_000
ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("simulated_history.py")
ABLE = "from fencepost.plugins.manager import load; load().system('reference/quorum')"
NEVER = Condition("nothing", lambda view: False)


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture
def run(plugins: Plugins, tmp_path: Path) -> Iterator[Run]:
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=7)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as started:
        yield started


def test_a_history_that_would_fill_the_memory_is_refused(plugins: Plugins, tmp_path: Path) -> None:
    subject = Subject(plugins.system("reference/quorum"), Shape(), 7, plugins.event_kinds)
    with SimulatedRuntime(subject, RunFolder.create(tmp_path / "run"), most_events=50) as runtime:
        for slot in runtime.layout.nodes():
            runtime.start(slot)
        with pytest.raises(UsageError, match=r"keeps its events in memory, at most 50 .* after"):
            runtime.advance(NEVER, runtime.now_ns() + 600 * SECOND)


def history(seed: int, folder: Path, python: str, environment: Mapping[str, str]) -> bytes:
    """The history as another process makes it; the folder's name is part of it."""
    done = subprocess.run(
        [python, os.fspath(SCRIPT), str(seed), os.fspath(folder / "run")],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        timeout=300,
    )
    return done.stdout


@pytest.mark.tool
def test_one_seed_is_one_history_byte_for_byte(tmp_path: Path) -> None:
    first = history(3, tmp_path / "a", sys.executable, {"PYTHONHASHSEED": "1"})
    second = history(3, tmp_path / "b", sys.executable, {"PYTHONHASHSEED": "2"})
    assert len(first.splitlines()) > 1000
    assert first == second
    assert history(4, tmp_path / "c", sys.executable, {}) != first


def test_a_client_that_hangs_is_ended_and_its_run_goes_on(run: Run) -> None:
    runtime = run.runtime
    reads = run.clients.consume("orders")
    writes = run.clients.produce("orders", count=50)
    runtime.advance(reads.polled_at_least(50), runtime.now_ns() + 20 * SECOND)
    slot = next(slot for slot in runtime.layout.slots if slot.role is Role.CLIENT)
    (spawned,) = (
        event.body
        for event in runtime.events()
        if isinstance(event.body, ProcessSpawned) and event.body.started == reads.process
    )
    runtime.signal(Process(reads.process, slot, spawned.pid), Signal.STOP)
    result = run.finish()
    assert result.trouble is None
    assert result.end.complete
    assert len(writes.acked) == 50
    assert result.judgement.verdicts["JEPSEN-lost-write"].verdict is Outcome.HOLDS
    failed = [e.body for e in runtime.events() if isinstance(e.body, ClientFailed)]
    assert failed == [
        ClientFailed(
            error=f"{reads.process} did not end within 20000 ms, and was ended", fatal=True
        )
    ]


def other_pythons() -> list[str]:
    """The oldest and the newest other version of Python: on PATH, and pyenv's own, since a python
    on PATH may be a shim that starts none."""
    me = "python{}.{}".format(*sys.version_info)
    names = [name for name in ("python3.11", "python3.13") if name != me]
    places = [*os.get_exec_path(), *sorted(Path.home().glob(".pyenv/versions/*/bin"))]
    found = (shutil.which(name, path=place) for name in names for place in places)
    return list(dict.fromkeys(path for path in found if path))


def with_this_project(folder: Path) -> Mapping[str, str]:
    """The environment by which a Python that has the packages, but not this project, finds it and
    its plugins."""
    described = metadata.distribution("fencepost")
    installed = folder / f"fencepost-{described.version}.dist-info"
    installed.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (installed / name).write_text(described.read_text(name) or "")
    parts = (ROOT / name for name in ("framework", "plugins", "clusters", "suites", "reports"))
    return {"PYTHONPATH": os.pathsep.join(map(os.fspath, (folder, *parts)))}


@pytest.mark.tool
def test_another_python_makes_the_same_history(tmp_path: Path) -> None:
    environment = with_this_project(tmp_path)
    tried: list[str] = []
    for other in other_pythons():
        done = subprocess.run(
            [other, "-c", ABLE],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode == 0:
            break
        *_, why = done.stderr.strip().split("\n")
        tried.append(f"{other} ({why.strip()})")
    else:
        pytest.skip(f"no other Python has this project's packages; tried: {', '.join(tried)}")
    here = history(3, tmp_path / "a", sys.executable, {})
    assert history(3, tmp_path / "b", other, environment) == here


def test_time_passes_only_in_advance(run: Run) -> None:
    runtime = run.runtime
    before_ns = runtime.now_ns()
    run.cluster.leader  # noqa: B018 nothing is asked
    assert runtime.now_ns() == before_ns
    assert runtime.advance(NEVER, before_ns + 3 * SECOND) is None
    assert runtime.now_ns() == before_ns + 3 * SECOND


def test_a_cut_swallows_and_breaks_what_it_crossed_when_it_is_lifted(run: Run) -> None:
    runtime = run.runtime
    cut = one_way(["broker-1"], ["controller-1", "controller-2", "controller-3"])
    assert runtime.apply_cut(cut).true
    run.cluster.eventually(run.cluster.node("broker-1").fenced)
    assert runtime.lift_cut(cut).true
    run.cluster.eventually(run.cluster.recovered)


def test_a_cut_between_dead_processes_has_no_receipt(run: Run) -> None:
    runtime = run.runtime
    victim = runtime.living(runtime.layout.slot("broker-1"))
    assert victim is not None
    assert runtime.signal(victim, Signal.KILL).true
    assert not runtime.signal(victim, Signal.KILL).true
    assert not runtime.apply_cut(one_way(["broker-1"], ["broker-2"])).true


def test_a_slot_holds_one_process_and_a_living_disk_is_not_replaced(run: Run) -> None:
    broker, duplicate = (run.runtime.layout.slot(n) for n in ("broker-1", "broker-1-duplicate"))
    with pytest.raises(UsageError, match="broker-1#1 is alive in broker-1"):
        run.runtime.start(broker)
    with pytest.raises(UsageError, match="its disk is in use"):
        run.runtime.copy_disk(duplicate, broker)


def test_a_node_whose_disk_cannot_be_damaged_has_a_process_again(tmp_path: Path) -> None:
    subject = Subject(EchoSystem(), kafka_shape(0, 1), kinds=KINDS)
    with SimulatedRuntime(subject, RunFolder.create(tmp_path / "run")) as runtime:
        broker = runtime.layout.slot("broker-1")
        runtime.start(broker)
        with pytest.raises(UsageError, match=r"the simulated disk of broker-1 cannot be damaged"):
            damage_disk("broker-1", "*.log", 1).inject(runtime)
        assert runtime.living(broker) is not None


def test_a_process_that_breaks_is_named_with_what_broke_it(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = plugins.system("reference/quorum")
    with SimulatedRuntime(Subject(system, Shape()), RunFolder.create(tmp_path / "run")) as runtime:
        for slot in (*runtime.layout.of(Role.CONTROLLER), *runtime.layout.of(Role.BROKER)):
            runtime.start(slot)
        runtime.advance(NEVER, runtime.now_ns() + SECOND)
        machine = runtime._machines["broker-2"]
        monkeypatch.setattr(machine._program, "wake", lambda: 1 // 0)
        with pytest.raises(EnvironmentFailed, match=r"broker-2#1 exited.*ZeroDivisionError"):
            runtime.advance(NEVER, runtime.now_ns() + 5 * SECOND)


def test_a_system_without_cores_cannot_be_simulated(tmp_path: Path) -> None:
    class Program:
        name = "some/program"

    with pytest.raises(UsageError, match="some/program cannot be simulated"):
        SimulatedRuntime(Subject(Program(), Shape()), RunFolder.create(tmp_path / "run"))  # type: ignore[arg-type]


def test_connections_that_break_by_themselves_lose_nothing(
    plugins: Plugins, tmp_path: Path
) -> None:
    """One message in two hundred breaks its connection: clients and nodes dial again."""
    system = plugins.system("reference/quorum")
    profile = NetworkProfile(reset_one_in=200)
    folder = RunFolder.create(tmp_path / "run")
    runtime = SimulatedRuntime(Subject(system, Shape(), 1), folder, profile=profile)
    spec = RunSpec(system, runtime="simulated", seed=1)
    with Run(runtime, spec, plugins, folder) as run:
        run._start_nodes()
        writes = run.clients.produce("orders", count=300)
        run.cluster.eventually(writes.settled, within_ms=60_000)
        assert len(writes.acked) == 300
        run.finish().check()


@pytest.mark.parametrize("drift_ppb", [-20_000, 0, 1, 20_000])
def test_a_clock_shows_a_time_no_sooner_than_it_is_woken_for_it(drift_ppb: int) -> None:
    clock = Clock(SECOND, drift_ppb, 0)
    for shown_ns in (SECOND, SECOND + 1, 5 * SECOND + 333, 900 * SECOND):
        woken_ns = clock.true_ns(shown_ns)
        assert clock.monotonic_ns(woken_ns) >= shown_ns
        assert clock.monotonic_ns(woken_ns - 2) <= shown_ns


def test_an_agenda_whose_time_does_not_advance_raises() -> None:
    agenda = Agenda()

    def again() -> None:
        agenda.at(agenda.now_ns, again)

    again()
    with pytest.raises(RuntimeError, match="it spins"):
        deque(iter(agenda.step, 1), maxlen=0)  # for ever, were it not for that
