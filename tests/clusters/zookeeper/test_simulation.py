"""Sessions with a simulated server keep the same promises as with a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulated_zookeeper import KINDS, SERVER, Node, OverZooKeeper

from fencepost import Condition, LinkState, Shape, Signal
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.model.system.subject import Subject
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost_clusters.zookeeper.client.port import (
    Connected,
    Create,
    Created,
    End,
    Ended,
    Exists,
    Fired,
    Found,
    GetData,
    Reason,
    Refused,
    SessionEvent,
    SetData,
    Suspended,
    Unknown,
    Unsent,
    Watch,
    ZnodeChange,
)

NEVER = Condition("never", lambda view: False)
REGISTRATION = Create("/id", ephemeral=True)
DELETED = Fired("/id", Watch.NODE, ZnodeChange.DELETED)


def register(node: Node, event: SessionEvent) -> None:
    if isinstance(event, Connected):
        node.ask(REGISTRATION)


def observe(node: Node, event: SessionEvent) -> None:
    """Watches the registration, from before it exists."""
    if isinstance(event, Connected | Fired):
        node.ask(Exists("/id", watch=True))


def idle(node: Node, event: SessionEvent) -> None:
    """Does nothing."""


@contextmanager
def world(
    folder: Path,
    one: Callable[[Node, SessionEvent], None] = idle,
    two: Callable[[Node, SessionEvent], None] = idle,
    seed: int = 1,
) -> Iterator[tuple[SimulatedRuntime, dict[str, Node]]]:
    """All are started, and their sessions made."""
    system = OverZooKeeper({"node-1": one, "node-2": two})
    made = SimulatedRuntime(Subject(system, Shape(), seed, KINDS), RunFolder.create(folder))
    with made as runtime:
        for slot in runtime.layout.nodes():
            runtime.start(slot)
        run_for(runtime, 1.0)
        assert all(node.delivered for node in system.nodes.values())
        yield runtime, system.nodes


def run_for(runtime: SimulatedRuntime, seconds: float) -> None:
    runtime.advance(NEVER, runtime.now_ns() + int(seconds * SECOND))


def cut(runtime: SimulatedRuntime, node: str, state: LinkState) -> None:
    (link,) = (
        link for link in runtime.layout.links if (link.source, link.target) == (node, SERVER)
    )
    runtime.set_links([link], state)


def test_a_cut_session_is_given_up_and_its_ephemeral_deleted(tmp_path: Path) -> None:
    with world(tmp_path / "run", register, observe) as (runtime, nodes):
        cut(runtime, "node-1", LinkState(cut_upstream=True, cut_downstream=True))
        run_for(runtime, 0.2)
        nodes["node-1"].ask(Create("/late"))
        run_for(runtime, 2.6)
        assert nodes["node-1"].answers[1:] == [Unknown()]
        assert Suspended() in nodes["node-1"].delivered
        assert DELETED in nodes["node-2"].fired
        run_for(runtime, 3.0)
        assert nodes["node-1"].delivered[-1] == Ended(End.GIVEN_UP)
        cut(runtime, "node-1", LinkState())
        nodes["node-1"].ask(Create("/later"))
        nodes["node-2"].ask(Exists("/late"), Exists("/later"))
        run_for(runtime, 1.0)
        assert nodes["node-1"].answers[-1] == Unsent()
        assert nodes["node-2"].answers[-2:] == [Found(None), Found(None)]


def test_a_session_that_the_server_expired_is_notified_when_it_returns(tmp_path: Path) -> None:
    """Its own timer begins when it notices the silence, which is after the server's."""
    with world(tmp_path / "run", register, observe) as (runtime, nodes):
        cut(runtime, "node-1", LinkState(cut_upstream=True))
        run_for(runtime, 2.6)
        assert DELETED in nodes["node-2"].fired
        cut(runtime, "node-1", LinkState())
        run_for(runtime, 2.0)
        assert nodes["node-1"].delivered[-1] == Ended(End.EXPIRED)


def test_a_restarted_server_resumes_sessions_without_their_watches(tmp_path: Path) -> None:
    with world(tmp_path / "run", register) as (runtime, nodes):
        one, two = nodes["node-1"], nodes["node-2"]
        two.ask(GetData("/id", watch=True))
        run_for(runtime, 0.5)
        server = runtime.living(runtime.layout.slot(SERVER))
        assert server is not None
        runtime.signal(server, Signal.KILL)
        run_for(runtime, 0.5)
        runtime.start(runtime.layout.slot(SERVER))
        run_for(runtime, 1.0)
        states = [
            event for event in one.delivered if isinstance(event, Connected | Suspended | Ended)
        ]
        assert states == [states[0], Suspended(), states[0]]
        # It registers once more, in the session that made the node.
        assert isinstance(one.answers[0], Created)
        assert one.answers[1] == Refused(Reason.NODE_EXISTS)
        one.ask(SetData("/id", b"1"))
        run_for(runtime, 0.5)
        assert two.fired == []


def test_a_closed_session_takes_its_ephemeral_along_at_once(tmp_path: Path) -> None:
    with world(tmp_path / "run", register, observe) as (runtime, nodes):
        nodes["node-1"].session.close()
        run_for(runtime, 0.5)
        assert nodes["node-1"].delivered[-1] == Ended(End.CLOSED)
        assert nodes["node-2"].fired[-1] == DELETED


def test_a_session_without_a_server_is_never_made(tmp_path: Path) -> None:
    with world(tmp_path / "run") as (runtime, nodes):
        cut(runtime, "node-1", LinkState(cut_upstream=True, cut_downstream=True))
        nodes["node-1"].session.close()
        nodes["node-1"].begin()
        run_for(runtime, 12.0)
        assert nodes["node-1"].delivered[-1] == Ended(End.NEVER_MADE)


def test_an_idle_session_is_kept_by_its_pings(tmp_path: Path) -> None:
    with world(tmp_path / "run") as (runtime, nodes):
        run_for(runtime, 30.0)
        assert [type(event) for event in nodes["node-1"].delivered] == [Connected]


def test_one_seed_is_one_history(tmp_path: Path) -> None:
    histories: list[list[SessionEvent]] = []
    for name in ("first", "second"):
        with world(tmp_path / name, register, observe, seed=7) as (runtime, nodes):
            cut(runtime, "node-1", LinkState(cut_upstream=True))
            run_for(runtime, 5.0)
            histories.append([event for node in nodes.values() for event in node.delivered])
    assert histories[0] == histories[1]
