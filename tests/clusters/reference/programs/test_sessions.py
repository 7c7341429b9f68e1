"""The simulated shell and the real one carry out a node's requests to ZooKeeper in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from scripted_nodes import CONNECTED, ENDED, START, Script, ScriptedCore
from simulated_zookeeper import ABSENT, KINDS, NODE, SERVER, Node, OverZooKeeper
from zookeeper_clients import Client
from zookeeper_servers import RunningServer, available, free_port, standalone

from fencepost import Condition, Recorder, Shape, Signal
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.model.system.subject import Subject
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost_clusters.reference.core.node.effects import (
    Address,
    CloseSession,
    Exit,
    OpenSession,
    ToZooKeeper,
    ZooKeeperAnswer,
    ZooKeeperEvent,
)
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.shell.node import NodeIdentity
from fencepost_clusters.reference.shell.node import NodeShell as RealShell
from fencepost_clusters.reference.shell.storage import Disk
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.simulation.shell import Shell, ShellIdentity
from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Connected,
    Create,
    Created,
    Data,
    Delete,
    Deleted,
    Done,
    End,
    Ended,
    Exists,
    Fired,
    Found,
    GetData,
    Multi,
    Reason,
    Refused,
    Request,
    SessionEvent,
    SetData,
    Unsent,
    Watch,
    ZnodeChange,
)
from fencepost_clusters.zookeeper.server import CLIENT_PORT

ID = Create("/id", b"one", ephemeral=True)
DONE = Exit("the script is over")


@dataclass(frozen=True, slots=True)
class Opening:
    """The address of a script's server, an address without a server, and a path that exists."""

    server: Address
    nowhere: Address
    chroot: str

    def session(self) -> OpenSession:
        return OpenSession((self.server,), 30_000, self.chroot)


Written = Callable[[Opening], Script]


class World(Protocol):
    """Runs a node to its exit, then asks the server as another client."""

    def run(self, script: Written, *asked: Request) -> tuple[ScriptedCore, list[Answer]]: ...


@dataclass(frozen=True, slots=True)
class Simulated:
    """In the simulator."""

    folder: Path

    def run(self, script: Written, *asked: Request) -> tuple[ScriptedCore, list[Answer]]:
        opening = Opening((SERVER, CLIENT_PORT), (ABSENT, CLIENT_PORT), "/chroot")
        core = ScriptedCore(script(opening))
        identity = ShellIdentity(f"{NODE}-1#1")
        system = OverZooKeeper(
            {f"{NODE}-2": _make_chroot},
            {f"{NODE}-1": lambda host: Shell(identity, lambda now: core, MemoryDisk(), host)},
        )
        folder = RunFolder.create(self.folder / "run")
        with SimulatedRuntime(Subject(system, Shape(), 1, KINDS), folder) as runtime:
            for name in (SERVER, f"{NODE}-2", f"{NODE}-1"):
                process = runtime.start(runtime.layout.slot(name))
                if name == f"{NODE}-1":
                    runtime.signal(process, Signal.TERM)  # The script ends it, so it may end.
                _run_for(runtime, 5)
            assert process.name not in runtime.view.alive
            other = system.nodes[f"{NODE}-2"]
            known = len(other.answers)
            other.ask(*asked)
            _run_for(runtime, 1)
            return core, other.answers[known:]  # type: ignore[return-value]


def _make_chroot(node: Node, event: SessionEvent) -> None:
    if isinstance(event, Connected):
        node.ask(Create("/chroot"))


def _run_for(runtime: SimulatedRuntime, seconds: int) -> None:
    runtime.advance(Condition("never", lambda view: False), runtime.now_ns() + seconds * SECOND)


@dataclass(frozen=True, slots=True)
class Real:
    """With a real server, by kazoo."""

    folder: Path
    server: RunningServer

    def run(self, script: Written, *asked: Request) -> tuple[ScriptedCore, list[Answer]]:
        return asyncio.run(self._run(script, *asked))

    async def _run(self, script: Written, *asked: Request) -> tuple[ScriptedCore, list[Answer]]:
        chroot = f"/{self.folder.name}"
        there = ("zookeeper", self.server.server.port)
        opening = Opening(there, ("zookeeper", free_port()), chroot)
        core = ScriptedCore(script(opening))
        hosts = {"zookeeper": self.server.server.address}
        shell = RealShell(
            core,
            Disk(self.folder / "disk", 1 << 20),
            Recorder.open(self.folder / "events", "run", "node-1#1"),
            NodeIdentity("node-1#1", hosts, Rights()),
        )
        other = Client(self.server.host)
        await other.connected()
        assert isinstance(await other.ask(Create(chroot)), Created)
        async with asyncio.timeout(60):
            assert await shell.run({}) == 0
        below = [_replaced(one, "/chroot", chroot) for one in asked]
        answers = [await other.ask(one) for one in below]
        await other.close()
        return core, answers


def _replaced(request: Request, old: str, new: str) -> Request:
    assert isinstance(request, Exists)
    return Exists(request.path.replace(old, new))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = standalone(tmp_path_factory.mktemp("zookeeper"))
    yield running
    running.end()


@pytest.fixture(
    params=["simulated", pytest.param("real", marks=[pytest.mark.real, available])],
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "simulated":
        return Simulated(tmp_path)
    return Real(tmp_path, request.getfixturevalue("server"))


def asks(*requests: Request) -> list[ToZooKeeper]:
    """Asks them all, numbered from 1."""
    return [ToZooKeeper(number, one) for number, one in enumerate(requests, 1)]


def test_answers_come_by_number_and_a_watch_event_before_the_answer_that_follows(
    world: World,
) -> None:
    asked = asks(
        Exists("/id", watch=True),
        ID,
        GetData("/id"),
        SetData("/id", b"two", version=7),
        Multi((SetData("/id", b"two"), Delete("/id"), Create("/other"))),
        Delete("/other"),
    )

    def script(opening: Opening) -> Script:
        return {
            START: [[opening.session()]],
            CONNECTED: [asked],
            6: [[CloseSession()]],
            ENDED: [[DONE]],
        }

    core, _ = world.run(script)
    created = core.answers[2]
    assert isinstance(created, Created)
    assert created.path == "/id"
    assert created.stat is not None
    assert core.answers[1] == Found(None)
    assert core.answers[3] == Data(b"one", created.stat)
    assert core.answers[4] == Refused(Reason.BAD_VERSION)
    assert isinstance(core.answers[5], Done)
    assert core.answers[5].results[1:] == (Deleted(), Created("/other", None))
    assert core.answers[6] == Deleted()
    fired = ZooKeeperEvent(Fired("/id", Watch.NODE, ZnodeChange.CREATED))
    assert core.heard.index(fired) == core.heard.index(ZooKeeperAnswer(2, created)) - 1
    assert core.events[-1] == Ended(End.CLOSED)


def test_a_closed_session_takes_its_ephemeral_nodes_along(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {START: [[opening.session()]], CONNECTED: [asks(ID)], 1: [[CloseSession(), DONE]]}

    core, found = world.run(script, Exists("/chroot/id"))
    assert isinstance(core.answers[1], Created)
    assert found == [Found(None)]


def test_a_process_that_exits_leaves_its_session_to_its_timeout(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {START: [[opening.session()]], CONNECTED: [asks(ID)], 1: [[DONE]]}

    core, (found,) = world.run(script, Exists("/chroot/id"))
    created = core.answers[1]
    assert isinstance(created, Created)
    assert found == Found(created.stat)


def test_a_session_that_is_closed_makes_room_for_the_next(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {
            START: [[opening.session()]],
            CONNECTED: [[CloseSession()], [CloseSession(), DONE]],
            ENDED: [[opening.session()]],
        }

    core, _ = world.run(script)
    first, ended, second = core.events[:3]
    assert isinstance(first, Connected)
    assert isinstance(second, Connected)
    assert first.session != second.session
    assert ended == Ended(End.CLOSED)


def test_a_request_without_a_session_is_answered_after_the_step(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {START: [asks(ID, ID)], 1: [[ToZooKeeper(3, ID)]], 3: [[DONE]]}

    core, found = world.run(script, Exists("/chroot/id"))
    assert core.answers == {1: Unsent(), 2: Unsent(), 3: Unsent()}
    assert [*core.answers] == [1, 2, 3]
    assert found == [Found(None)]


def test_a_request_while_a_session_closes_is_unsent_and_the_end_comes_last(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {
            START: [[opening.session(), *asks(ID)]],
            CONNECTED: [[CloseSession(), ToZooKeeper(2, ID)]],
            2: [[DONE]],
        }

    core, _ = world.run(script)
    assert core.answers == {1: Unsent(), 2: Unsent()}
    assert core.heard[-2:] == [ZooKeeperEvent(Ended(End.CLOSED)), ZooKeeperAnswer(2, Unsent())]


def test_a_session_without_a_server_ends_unmade(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {START: [[OpenSession((opening.nowhere,), 2000, limit_ms=500)]], ENDED: [[DONE]]}

    core, _ = world.run(script)
    assert core.events == [Ended(End.NEVER_MADE)]


def test_below_a_chroot_that_is_missing_there_is_not_even_a_root(world: World) -> None:
    def script(opening: Opening) -> Script:
        return {
            START: [[OpenSession((opening.server,), 30_000, "/missing")]],
            CONNECTED: [asks(Exists("/"), ID)],
            2: [[CloseSession(), DONE]],
        }

    core, _ = world.run(script)
    assert core.answers == {1: Found(None), 2: Refused(Reason.NO_NODE)}
