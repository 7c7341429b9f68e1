"""A ZooKeeper server in the simulator: the model, served over simulated connections.

It represents a whole ensemble that never loses its majority. Every transaction is synced before its
answer, so a loss of power loses nothing. Watches belong to connections, and end with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import final

from fencepost import MS, Host, NodeStarted, Signal
from fencepost_clusters.zookeeper.client.port import Answered, Unsent
from fencepost_clusters.zookeeper.events import ServerServes, SessionExpired, session_name
from fencepost_clusters.zookeeper.log_parser import ROLE
from fencepost_clusters.zookeeper.simulation.messages import Ask, Close, Open, Opened, Ping, Pong
from fencepost_clusters.zookeeper.simulation.tree import Tree, Watched


@final
class TreeDisk:
    """The tree and its sessions, as a server's disk keeps them."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def copy(self) -> TreeDisk:
        """Another disk with the same content."""
        return TreeDisk(deepcopy(self.tree))

    def lose_power(self, chance: Callable[[int, int], int]) -> None:
        """Loses nothing, since everything was synced."""


@final
class SimulatedServer:
    """One process, of the server with that number; see `fencepost.SimulatedProcess`.

    A session has at most one connection, the newest. After a start every session has its whole
    timeout again, as the server cannot know how long it was away.
    """

    def __init__(self, number: int, disk: TreeDisk, host: Host) -> None:
        self._number, self._tree, self._host = number, disk.tree, host
        self._started = False
        self._sessions: dict[int, int] = {}
        """connection -> its session."""
        for session in self._tree.sessions:
            self._tree.disconnect(session)
            self._tree.hear(session, self._now_ms())

    def wake(self) -> None:
        """At its start, begins to serve; later ends the sessions whose time is over."""
        if not self._started:
            self._started = True
            self._host.record(NodeStarted(role=ROLE, node_id=self._number))
            self._host.record(ServerServes(server=self._number, mode="standalone"))
        before = self._tree.sessions
        self._tell(self._tree.expire(self._now_ms()))
        living = self._tree.sessions
        for session, timeout_ms in before.items():
            if session not in living:
                name = session_name(session)
                self._host.record(SessionExpired(session=name, timeout_ms=timeout_ms))
        for connection, session in [*self._sessions.items()]:
            if session not in living:
                self._drop(connection)

    def deadline_ns(self) -> int | None:
        """When the next session ends."""
        due_ms = self._tree.next_expiry_ms()
        return None if due_ms is None else due_ms * MS

    def accepted(self, connection: int, port: int) -> None:
        """The client speaks first."""

    def received(self, connection: int, message: object) -> None:
        """A client's message; a message in a session that has ended closes the connection."""
        session = self._sessions.get(connection)
        match message:
            case Open():
                self._open(connection, message)
            case Ping():
                if session is None or self._tree.hear(session, self._now_ms()):
                    self._host.send(connection, Pong())
                else:
                    self._drop(connection)
            case Ask(number, request) if session is not None:
                answer, fired = self._tree.request(session, request, self._now_ms())
                self._tell(fired)
                if isinstance(answer, Unsent):
                    self._drop(connection)
                else:
                    self._host.send(connection, Answered(number, answer))
            case Close() if session is not None:
                self._tell(self._tree.end(session))
                self._drop(connection)
            case _:
                self._drop(connection)

    def broken(self, connection: int, reason: str) -> None:
        """The connection's watches end; its session goes on."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._tree.disconnect(session)

    def signalled(self, what: Signal) -> None:
        """Stops; sessions outlive it."""
        self._host.exit(0)

    def command(self, command: Mapping[str, object]) -> None:
        """A server takes no commands."""

    def _open(self, connection: int, asked: Open) -> None:
        session = asked.session
        if not session:
            # The transaction that begins the session; its number is unique.
            session = self._tree.zxid + 1
            self._tree.begin(session, asked.timeout_ms, self._now_ms())
        elif not self._tree.hear(session, self._now_ms()):
            self._host.send(connection, Opened(0))
            return
        for older in [known for known, its in self._sessions.items() if its == session]:
            self._drop(older)
        self._sessions[connection] = session
        self._host.send(connection, Opened(session))

    def _drop(self, connection: int) -> None:
        self.broken(connection, "closed here")
        self._host.hang_up(connection)

    def _tell(self, fired: Iterable[Watched]) -> None:
        connections = {session: connection for connection, session in self._sessions.items()}
        for one in fired:
            if one.session in connections:
                self._host.send(connections[one.session], one.fired)

    def _now_ms(self) -> int:
        return self._host.monotonic_ns() // MS
