"""The docker runtime, with real echo nodes in real containers; skipped where there is no engine."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import docker_bench, echo_node
from tests.echo_node import EchoSystem
from tests.echo_run import (
    PAIR,
    advance,
    answered,
    echo_run,
    is_silent,
    more,
    slot,
    talk,
    talking_pair,
)

from fencepost import (
    ClientSpec,
    Condition,
    EnvironmentFailed,
    ProcessExited,
    Ready,
    Shape,
    Signal,
    UsageError,
    two_way,
)
from fencepost.history import merge as history
from fencepost.history.run_folder import RunFolder
from fencepost.model.system.topology import Layout, Slot
from fencepost.runs.apps import Apps
from fencepost.runtimes.docker import host as module
from fencepost.runtimes.docker.engine import Engine, Leftover, owner
from fencepost.runtimes.docker.host import DockerHost
from fencepost.runtimes.docker.pods import DATA, IMAGE
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka import kafka_shape
from fencepost_plugins.bounce import kill
from fencepost_plugins.pause import pause

pytestmark = pytest.mark.real

Make = Callable[..., ProcessRuntime]
LIVING = "broker-1#1"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Runtimes of echo nodes that are not started; closed at the end."""
    made: list[ProcessRuntime] = []

    def build(system: EchoSystem | None = None, shape: Shape = PAIR) -> ProcessRuntime:
        path = tmp_path / f"run-{len(made) + 1}"
        made.append(echo_run(path, system, shape, docker_bench.usable_backend()))
        return made[-1]

    yield build
    for runtime in made:
        runtime.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ProcessRuntime]:
    """Two brokers that talk to each other."""
    runtime = talking_pair(tmp_path / "pair", backend=docker_bench.usable_backend())
    yield runtime
    runtime.close()


def backend(runtime: ProcessRuntime) -> DockerHost:
    inside = runtime._backend
    assert isinstance(inside, DockerHost)
    return inside


def disk(runtime: ProcessRuntime, name: str) -> set[str]:
    """The files on a slot's disk, as a run that ends keeps them."""
    folder = runtime.folder.data_of(name)
    return {path.name for path in folder.rglob("*") if path.is_file()}


def left_of(runtime: ProcessRuntime, beside: Engine) -> list[Leftover]:
    """The run's objects in the engine; another process's run may have the same name."""
    run = runtime.folder.run
    return [left for left in beside.leftovers() if (left.run, left.owner) == (run, owner())]


def write(runtime: ProcessRuntime, name: str, file: str) -> None:
    """Puts a file on a slot's disk."""
    pod = backend(runtime).toxiproxies.of(slot(runtime, name))
    pod.ask("write", folder=DATA, files={file: "kept"})


# ------------------------------------------------------------------------------ starting, ending


def test_a_killed_process_is_gone_and_the_next_one_takes_its_place_and_disk(
    pair: ProcessRuntime,
) -> None:
    broker = slot(pair, "broker-1")
    first = pair.living(broker)
    assert first is not None
    write(pair, "broker-1", "kept")
    pod = backend(pair).toxiproxies.of(broker)
    receipt = pair.signal(first, Signal.KILL)
    assert receipt.true
    assert "was ended by SIGKILL" in receipt.evidence
    assert pair.view.latest["harness", "process.exited"].body == ProcessExited(
        ended=LIVING, exit_code=0, signal=signal.SIGKILL, expected=True
    )
    second = pair.start(broker)
    assert advance(pair, Condition("up", lambda view: second.name in view.node_of))
    # A pod of its own would cost the next process seconds.
    assert backend(pair).toxiproxies.of(broker) is pod
    talk(pair)
    pair.close()
    assert disk(pair, "broker-1") == {"kept"}
    reading = history.read(pair.folder, pair.codec)
    assert LIVING in {event.process for event in reading}
    assert reading.end.complete, reading.end.damage


def test_no_event_is_lost_over_a_kill(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "bursts"),)), kafka_shape(0, 1))
    runtime.start(slot(runtime, "broker-1"))
    with pytest.raises(
        EnvironmentFailed, match=r"broker-1#1.*was ended by SIGKILL.*should be running"
    ):
        advance(runtime, Condition("nothing", lambda view: False), 20)
    assert runtime.view.kinds["echo.frame_received"] == echo_node.BURST
    runtime.close()
    found = list(reading := history.read(runtime.folder, runtime.codec))
    assert sum(event.kind == "echo.frame_received" for event in found) == echo_node.BURST
    assert reading.end.damage == ()


def test_a_process_that_dies_at_start_is_named_with_its_last_lines(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "dies"),)), kafka_shape(0, 1))
    runtime.start(slot(runtime, "broker-1"))
    with pytest.raises(EnvironmentFailed, match=r"broker-1#1.*ended with exit code 3") as failed:
        advance(runtime, Condition("up", lambda view: False), 20)
    assert "line 29 of my last words" in failed.value.detail


def test_a_duplicate_has_a_pod_of_its_own_and_may_have_a_copy_of_the_disk(make: Make) -> None:
    runtime = make(EchoSystem(duplicates=True), kafka_shape(0, 2))
    for name in ("broker-1", "broker-2"):
        runtime.start(slot(runtime, name))
    write(runtime, "broker-1", "original")
    write(runtime, "broker-2", "other")
    duplicate = slot(runtime, "broker-1-duplicate")
    runtime.copy_disk(slot(runtime, "broker-2"), duplicate)
    runtime.copy_disk(slot(runtime, "broker-1"), duplicate)
    process = runtime.start(duplicate)
    assert advance(runtime, answered(process.name)), "the duplicate does not talk"
    assert runtime.place(duplicate).address != runtime.place(slot(runtime, "broker-1")).address
    with pytest.raises(UsageError, match="its disk is in use"):
        runtime.copy_disk(None, duplicate)
    runtime.close()
    assert disk(runtime, "broker-1-duplicate") == {"original"}


def test_the_disk_of_a_pod_is_damaged_file_by_file(pair: ProcessRuntime) -> None:
    broker = slot(pair, "broker-1")
    with pytest.raises(UsageError, match="its disk is in use"):
        pair.damage_disk(broker, "*.log", 1)
    write(pair, "broker-1", "orders-0/00.log")
    write(pair, "broker-1", "kept")
    first = pair.living(broker)
    assert first is not None
    assert pair.signal(first, Signal.KILL).true
    assert pair.damage_disk(broker, "orders-*/*.log", 2) == ["orders-0/00.log"]
    pair.start(broker)
    pair.close()
    folder = pair.folder.data_of("broker-1")
    assert (folder / "orders-0" / "00.log").read_bytes() == b"ke\0\0"
    assert (folder / "kept").read_bytes() == b"kept"


# ------------------------------------------------------------------------------------------ links


def test_a_clients_link_is_published_and_can_be_cut(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo"))
    assert advance(pair, answered(session.process)), "the client does not talk"
    assert all(address.startswith("127.") for address in pair.bootstrap)
    cut = two_way(["clients"], ["broker-1"])
    assert pair.apply_cut(cut).true
    assert is_silent(pair, "echo.answered", "clients")
    assert pair.lift_cut(cut).true
    assert advance(pair, more("echo.answered", "clients", pair.view))


def test_a_toxiproxy_that_hangs_is_built_anew_in_its_pod(pair: ProcessRuntime) -> None:
    pods = backend(pair).toxiproxies
    pod = pods.of(slot(pair, "broker-1"))
    with docker_bench.engine() as beside:
        toxiproxy = pod.ask("proxy")["pid"]  # a new one, whose id is known; it has no links yet
        shell = beside._client.exec_create(pod.container, ["sh", "-c", f"kill -STOP {toxiproxy}"])
        beside._client.exec_start(shell["Id"])
    receipt = pair.apply_cut(two_way(["broker-1"], ["broker-2"]))
    assert "the toxiproxy of broker-1 hung and was replaced" in receipt.evidence
    assert pair.heal_links().true
    talk(pair)


def test_a_pod_that_ends_is_named(pair: ProcessRuntime) -> None:
    pod = backend(pair).toxiproxies.of(slot(pair, "broker-1"))
    with docker_bench.engine() as beside:
        assert beside.kill(pod.container, signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match=r"broker-1.*should be running"):
        advance(pair, Condition("nothing", lambda view: False), 20)


# ------------------------------------------------------------------------- what may reach what


def test_a_pods_toxiproxy_takes_orders_from_its_agent_only(pair: ProcessRuntime) -> None:
    """No port is open but those of links and nodes: its API is on a Unix socket of the agent's."""
    engines_resolver = "0B00007F"  # 127.0.0.11
    for name in ("broker-1", "broker-2"):
        shown = backend(pair).toxiproxies.of(slot(pair, name)).ask("sockets")["text"]
        listening = [
            fields[1].split(":") for fields in map(str.split, shown.splitlines()) if "0A" in fields
        ]
        ports = {int(port, 16) for address, port in listening if address != engines_resolver}
        assert ports == {echo_node.PORT}


def test_nothing_is_privileged_or_root_or_published_beyond_loopback(pair: ProcessRuntime) -> None:
    with docker_bench.engine() as beside:
        client = beside._client
        ours = left_of(pair, beside)
        containers = [left.id for left in ours if left.kind in ("container", "pod")]
        shown = [client.inspect_container(one) for one in containers]
        status = []
        for one in containers:
            asked = client.exec_create(one, ["cat", "/proc/self/status"])
            status.append(client.exec_start(asked["Id"]).decode())
    assert len(shown) == 5  # three pods, two nodes
    published = set()
    for container, said in zip(shown, status, strict=True):
        assert not container["HostConfig"]["Privileged"]
        assert container["Config"]["User"] == "65532:65532"
        assert re.search(r"^CapBnd:\s+0+$", said, re.MULTILINE), "it could have capabilities"
        assert re.search(r"^NoNewPrivs:\s+1$", said, re.MULTILINE)
        for ends in (container["NetworkSettings"]["Ports"] or {}).values():
            published |= {end["HostIp"] for end in ends or ()}
    assert published
    assert all(address.startswith("127.") for address in published)


def test_a_stale_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    docker_bench.usable_backend()
    monkeypatch.setattr(module, "digest", lambda: "other sources")
    with pytest.raises(EnvironmentFailed, match=r"built from other sources.*\./dev images"):
        module.docker_backend(lambda slot: "fencepost/pod")


def test_an_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    docker_bench.usable_backend()
    says = r"there is no image 'acme/none': build it by \./dev images"
    layout, folder = Layout((Slot("node-1", "node", 1, 1),), ()), RunFolder.create(tmp_path / "run")
    with pytest.raises(EnvironmentFailed, match=says):
        module.docker_backend(lambda slot: "acme/none").open(layout, folder)


def test_nothing_is_left_when_a_run_is_over(pair: ProcessRuntime) -> None:
    pair.client(ClientSpec("one", "echo"))
    with docker_bench.engine() as beside:
        kinds = {left.kind for left in left_of(pair, beside)}
        assert kinds == {"container", "pod", "volume", "network"}
        pair.close()
        assert left_of(pair, beside) == []


def test_the_owner_in_labels_is_this_process(pair: ProcessRuntime) -> None:
    with docker_bench.engine() as beside:
        ours = left_of(pair, beside)
        assert ours
        assert not any(left.abandoned for left in ours)
        beside.clear(lambda left: left.abandoned)
        still = left_of(pair, beside)
    assert set(still) == set(ours)


WAITS = (
    "import os, socket, sys, time\n"
    "host, port = sys.argv[1].split(',')[0].split(':')\n"
    "print(os.environ['MINE'], 'OF_THE_HOST' in os.environ, os.getcwd(), flush=True)\n"
    "while True:\n"
    "    try:\n"
    "        with socket.create_connection((host, int(port)), 10) as one:\n"
    "            one.settimeout(1)\n"
    "            while True:\n"
    "                one.sendall(bytes.fromhex('00000010001200000000000700066563686f2d31'))\n"
    "                if not one.recv(1024): break\n"
    "                print('answered', flush=True)\n"
    "                time.sleep(0.1)\n"
    "    except OSError: print('silence', flush=True)\n"
    "    time.sleep(0.1)\n"
)


def test_a_program_of_the_user_s_runs_in_its_own_image_and_behind_its_own_links(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "1")
    runtime = make(shape=Shape(counts=PAIR.counts, apps={"app": 2}))
    runtime.supervise()
    for broker in runtime.layout.of("broker"):
        runtime.start(broker)
    apps = Apps(runtime, lambda said: (), runtime.folder.log_of)
    with pytest.raises(UsageError, match="needs an `image`"):
        apps.start("app", ("true",))
    with pytest.raises(EnvironmentFailed, match="no image 'no/such': pull it"):
        apps.start("app", image="no/such")
    argv = ("python3", "-c", WAITS, "{bootstrap}")
    ready = Ready(line="answered")
    first, second = apps.start(
        "app", argv, image=IMAGE, ready=ready, environment={"MINE": "{slot}"}
    )
    process = runtime.view.newest["app-1"]
    log = runtime.folder.log_of(process)
    assert log.read_text().splitlines()[0] == "app-1 False /"
    receipt = runtime.apply_cut(two_way([first.name], ["broker-1"]))
    assert receipt.true, receipt.evidence
    before = log.read_text().count("silence")
    silent = Condition("silence", lambda view: log.read_text().count("silence") > before)
    never = Condition("never", lambda view: False)
    while not silent.holds(runtime.view):
        advance(runtime, never, 0.2)
    struck = kill(second.name).inject(runtime)
    assert struck.receipt.true, struck.receipt.evidence
    struck.heal()
    living = runtime.living(second.slot)
    assert living is not None
    assert living.name == "app-2#2"
    paused = pause(first.name).inject(runtime)
    assert paused.receipt.true, paused.receipt.evidence
    paused.heal()
    apps.stop()
