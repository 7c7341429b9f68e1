"""A session with a simulated ZooKeeper, as a part of a simulated process.

It promises the same as `KazooSession`. Its process passes on the events of its connections, and
wakes it at its deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from fencepost import MS, Host
from fencepost_clusters.zookeeper.client.chroot import answer_within, below, within
from fencepost_clusters.zookeeper.client.port import (
    Answered,
    Connected,
    Deliver,
    End,
    Ended,
    Fired,
    Reason,
    Refused,
    Request,
    Suspended,
    Unknown,
    Unsent,
    paths_are_good,
)
from fencepost_clusters.zookeeper.simulation.messages import Ask, Close, Open, Opened, Ping

_RETRY_MS = (50, 250)
"""How long it waits before it dials again."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server's slot, its port for clients, and the path below which all requests are (empty:
    none)."""

    slot: str
    port: int
    chroot: str = ""


@final
class SimulatedSession:
    """One session with a timeout, which begins at the first `wake`; see `port.Session`.

    Like kazoo, it pings after a third of its timeout, and gives up the connection after two thirds
    without a message.
    """

    def __init__(
        self, server: Server, timeout_ms: int, deliver: Deliver, host: Host, limit_ms: int = 10_000
    ) -> None:
        self._server, self._timeout_ns, self._host = server, timeout_ms * MS, host
        self._deliver = deliver
        self._session = 0
        self._connection: int | None = None
        self._connected = self._ended = False
        self.closing: int | None = None
        """The connection on which the session was closed; the server closes it once it has the
        message."""
        self._sent: set[int] = set()
        now_ns = host.monotonic_ns()
        self._dial_ns = self._heard_ns = self._spoke_ns = now_ns
        self._give_up_ns = now_ns + limit_ms * MS

    def ask(self, number: int, request: Request) -> None:
        """See `port.Session`."""
        if not paths_are_good(request):
            self._deliver(Answered(number, Refused(Reason.BAD_ARGUMENTS)))
        elif self._connected:
            self._sent.add(number)
            self._speak(Ask(number, below(self._server.chroot, request)))
        else:
            self._deliver(Answered(number, Unsent()))

    def close(self) -> None:
        """See `port.Session`."""
        if self._connected:
            self._speak(Close())
            self.closing, self._connection = self._connection, None
        self._end(End.CLOSED)

    def wake(self) -> None:
        """Does what is due: dials, pings, gives up the connection, or gives up the session."""
        now_ns = self._host.monotonic_ns()
        if self._ended:
            return
        if not self._connected and now_ns >= self._give_up_ns:
            self._end(End.GIVEN_UP if self._session else End.NEVER_MADE)
        elif self._connection is None:
            if now_ns >= self._dial_ns:
                self._connection = self._host.dial(self._server.slot, self._server.port)
                self._heard_ns = now_ns
                self._speak(Open(self._session, self._timeout_ns // MS))
        elif now_ns >= self._silence_ns():
            self._host.hang_up(self._connection)
            self._lose()
        elif self._connected and now_ns >= self._ping_ns():
            self._speak(Ping())

    def deadline_ns(self) -> int | None:
        """When it must be woken, by its host's monotonic clock; None: it has ended."""
        if self._ended:
            return None
        if self._connection is None:
            return min(self._dial_ns, self._give_up_ns)
        if self._connected:
            return min(self._silence_ns(), self._ping_ns())
        return min(self._silence_ns(), self._give_up_ns)

    def owns(self, connection: int) -> bool:
        """Whether the process must pass on the events of this connection."""
        return connection == self._connection

    def received(self, message: object) -> None:
        """A message came on its connection."""
        self._heard_ns = self._host.monotonic_ns()
        match message:
            case Opened(0):
                self._end(End.EXPIRED)
            case Opened(session):
                self._session = session
                self._connected = True
                self._deliver(Connected(session))
            case Answered(number, answer):
                self._sent.discard(number)
                self._deliver(Answered(number, answer_within(self._server.chroot, answer)))
            case Fired(path):
                self._deliver(replace(message, path=within(self._server.chroot, path)))
            case _:
                pass

    def broken(self) -> None:
        """Its connection is gone."""
        self._lose()

    def _lose(self) -> None:
        now_ns = self._host.monotonic_ns()
        self._connection = None
        self._dial_ns = now_ns + self._host.chance(*_RETRY_MS) * MS
        if self._connected:
            self._connected = False
            self._give_up_ns = now_ns + self._timeout_ns
            self._forget_sent()
            self._deliver(Suspended())

    def _end(self, how: End) -> None:
        if self._ended:
            return
        self._ended, self._connected = True, False
        if self._connection is not None:
            self._host.hang_up(self._connection)
            self._connection = None
        self._forget_sent()
        self._deliver(Ended(how))

    def _forget_sent(self) -> None:
        sent, self._sent = sorted(self._sent), set()
        for number in sent:
            self._deliver(Answered(number, Unknown()))

    def _speak(self, message: object) -> None:
        assert self._connection is not None
        self._spoke_ns = self._host.monotonic_ns()
        self._host.send(self._connection, message)

    def _silence_ns(self) -> int:
        return self._heard_ns + self._timeout_ns * 2 // 3

    def _ping_ns(self) -> int:
        return self._spoke_ns + self._timeout_ns // 3
