"""The simulated shell: carries a core's effects out on the simulator's host, and decides nothing.

It equals the real shell in everything that a core can observe: answers leave in the order of their
requests, calls of one channel share a connection, and a call that times out breaks it. Each event
of a session with ZooKeeper is handled in a step of its own, after the step that asked for it.
Messages travel as values; only a request that a client has built as bytes, and its answer, go
through the codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, Protocol, assert_never

import msgspec

from fencepost import MS, Host, Signal
from fencepost_clusters.reference.client.node import Commanded
from fencepost_clusters.reference.core.node.deadlines import earlier
from fencepost_clusters.reference.core.node.effects import (
    Address,
    Answered,
    Append,
    Call,
    CallFailed,
    Checkpoint,
    Close,
    CloseSession,
    Delete,
    Effect,
    Exit,
    Instant,
    Note,
    OpenSession,
    Received,
    Recover,
    Reply,
    ShutdownAsked,
    StoreSnapshot,
    StoreVote,
    Sync,
    Tick,
    ToZooKeeper,
    Truncate,
    ZooKeeperAnswer,
    ZooKeeperEffect,
    from_zookeeper,
)
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.wire import codec, guard
from fencepost_clusters.reference.wire.codec import Calls, encode_request
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.filling import filled
from fencepost_clusters.reference.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ProduceRequest,
    RawFrame,
    Request,
    Response,
)
from fencepost_clusters.zookeeper.client.port import Ended, SessionEvent, Unsent
from fencepost_clusters.zookeeper.simulation.session import Server, SimulatedSession
from fencepost_kafka import ClientCommand

MOST_RECOVERY_MS: Final = 100
"""The longest time that a node takes to recover its logs; the actual time is drawn."""
MOST_CLOSING_MS: Final = 1000
"""The longest that a process which exits waits for a closed session's connection to end."""


VERSIONS = ApiVersionsResponse(error_code=Error.NONE, api_keys=())
"""The answer to ApiVersions: messages travel as values, so nothing depends on their versions."""


class Core(Protocol):
    """The decisions of a node, or of a client."""

    def handle(self, what: Any, now: Instant) -> tuple[Effect, ...]: ...
    def deadline_ns(self) -> int | None: ...


class _Request(msgspec.Struct, frozen=True, gc=False):
    client: str
    correlation: int
    message: Request
    principal: str


class _Answer(msgspec.Struct, frozen=True, gc=False):
    correlation: int
    message: Response


def frame(message: object, calls: Calls) -> bytes | None:
    """A request as bytes, without their length, in the versions of `calls`."""
    if not isinstance(message, _Request):
        return None
    if isinstance(message.message, RawFrame):
        return message.message.frame
    return encode_request(message.client, message.correlation, message.message, calls)[4:]


def probe() -> object:
    """ApiVersions, which the shell answers by itself, as the real one does."""
    return _Request("fencepost-probe", 0, ApiVersionsRequest(), "")


@dataclass(slots=True)
class _Incoming:
    """A connection that was accepted: its requests in order, each with its answer once known."""

    listener: str
    order: deque[int] = field(default_factory=deque)
    answers: dict[int, _Answer | None] = field(default_factory=dict)
    headers: dict[int, codec.Header] = field(default_factory=dict)
    """The headers of the requests that came as bytes."""


@dataclass(slots=True)
class _Outgoing:
    """A connection that was dialled, and the calls that wait on it."""

    key: tuple[Address, str]
    calls: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Exit:
    """The exit of the process, and its latest time."""

    code: int
    latest_ns: int


@dataclass(frozen=True, slots=True)
class ShellIdentity:
    """The identity of a process: its name, the listener of each port, its authenticated principal,
    the offset of its wall clock, and the APIs of its listeners."""

    process: str
    listeners: Mapping[int, str] = field(default_factory=dict)
    principal: str = ""
    clock_offset_ms: int = 0
    served: codec.Listeners = field(default_factory=lambda: codec.LISTENERS)


class Shell:
    """One simulated process; see `fencepost.SimulatedProcess`."""

    def __init__(
        self,
        identity: ShellIdentity,
        make: Callable[[Instant], Core],
        disk: MemoryDisk,
        host: Host,
    ) -> None:
        self._principal = identity.principal
        self._offset_ms = identity.clock_offset_ms
        self._served = identity.served
        self._name = identity.process
        self._disk = disk
        self._host = host
        self._listeners = identity.listeners
        self._incoming: dict[int, _Incoming] = {}
        self._requests: dict[int, tuple[int, int]] = {}
        self._next_request = 0
        self._outgoing: dict[int, _Outgoing] = {}
        self._peers: dict[tuple[Address, str], int] = {}
        self._timeouts: list[tuple[int, int, int]] = []
        self._recovered_ns: int | None = None
        self._session: SimulatedSession | None = None
        self._inputs: deque[Any] = deque()
        self._stepping = False
        self._closing: set[int] = set()
        self._exit: _Exit | None = None
        self.core = make(self._instant())

    # ------------------------------------------------------------------------- what happens to it

    def wake(self) -> None:
        now_ns = self._host.monotonic_ns()
        if self._exit is not None:
            # A process that wants to exit decides nothing more: it only waits for its sessions to
            # close.
            self._leave(now_ns >= self._exit.latest_ns)
            return
        if self._recovered_ns is not None and now_ns >= self._recovered_ns:
            self._recovered_ns = None
            self._step(self._disk.recover())
        while self._timeouts and self._timeouts[0][0] <= now_ns:
            _, call_id, connection = heappop(self._timeouts)
            one = self._outgoing.get(connection)
            if one is not None and call_id in one.calls:
                self._host.hang_up(connection)
                self.broken(connection, "timed out")
        if self._session is not None:
            self._session.wake()
        self._step(Tick())

    def deadline_ns(self) -> int | None:
        if self._exit is not None:
            return self._exit.latest_ns
        first_ns = earlier(self.core.deadline_ns(), self._timeout_ns())
        if self._recovered_ns is not None:
            first_ns = earlier(first_ns, self._recovered_ns)
        if self._session is not None:
            first_ns = earlier(first_ns, self._session.deadline_ns())
        return first_ns

    def _timeout_ns(self) -> int | None:
        """When the first call without an answer has waited long enough."""
        while self._timeouts:
            due_ns, call_id, connection = self._timeouts[0]
            one = self._outgoing.get(connection)
            if one is not None and call_id in one.calls:
                return due_ns
            heappop(self._timeouts)
        return None

    def accepted(self, connection: int, port: int) -> None:
        self._incoming[connection] = _Incoming(self._listeners[port])

    def received(self, connection: int, message: object) -> None:
        if self._session is not None and self._session.owns(connection):
            self._session.received(message)
        elif isinstance(message, _Request):
            incoming = self._incoming.get(connection)
            if incoming is None:
                return
            self._requested(connection, incoming, message)
        elif isinstance(message, _Answer):
            outgoing = self._outgoing.get(connection)
            if outgoing is not None and message.correlation in outgoing.calls:
                outgoing.calls.discard(message.correlation)
                self._step(Answered(message.correlation, message.message))

    def _requested(self, connection: int, incoming: _Incoming, asked: _Request) -> None:
        """A request came: as a value, or as bytes that its listener must decode."""
        message, client, correlation = asked.message, asked.client, asked.correlation
        header = None
        if isinstance(message, RawFrame):
            try:
                header, message = codec.decode_request(
                    incoming.listener, message.frame, self._served
                )
            except (guard.Malformed, codec.Unsupported):
                del self._incoming[connection]
                self._host.hang_up(connection)
                return
            client, correlation = header.client, header.correlation
        self._next_request += 1
        request_id = self._next_request
        incoming.order.append(request_id)
        if header is not None:
            incoming.headers[request_id] = header
        self._requests[request_id] = (connection, asked.correlation)
        if isinstance(message, ApiVersionsRequest):
            self._reply(Reply(request_id, VERSIONS))
            return
        self._step(
            Received(
                request_id=request_id,
                listener=incoming.listener,
                client=client,
                correlation=correlation,
                message=message,
                principal=asked.principal,
            )
        )

    def broken(self, connection: int, reason: str) -> None:
        if connection in self._closing:
            self._closing.discard(connection)
            self._leave()
            return
        if self._session is not None and self._session.owns(connection):
            self._session.broken()
            return
        if self._incoming.pop(connection, None) is not None:
            return
        outgoing = self._outgoing.pop(connection, None)
        if outgoing is None:
            return
        # Another connection to the same peer may have been dialled since.
        if self._peers.get(outgoing.key) == connection:
            del self._peers[outgoing.key]
        # In a fixed order, so that a seed always gives the same run.
        for call_id in sorted(outgoing.calls):
            self._step(CallFailed(call_id, reason))

    def signalled(self, what: Signal) -> None:
        self._step(ShutdownAsked())

    def command(self, command: Mapping[str, object]) -> None:
        self._step(Commanded(msgspec.convert(command, ClientCommand)))

    # ------------------------------------------------------------------------------------ stepping

    def _instant(self) -> Instant:
        return Instant(self._host.monotonic_ns(), self._host.wall_ms() + self._offset_ms)

    def _step(self, what: Any) -> None:
        """One step, and further steps for the answers to its effects that came within it."""
        # A core handles one input at a time: what an effect brings about within the step waits for
        # its end.
        if self._stepping:
            self._inputs.append(what)
            return
        self._stepping = True
        while self._exit is None:
            for effect in self.core.handle(what, self._instant()):
                self._carry_out(effect)
            if not self._inputs:
                break
            what = self._inputs.popleft()
        self._stepping = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Note():
                self._host.record(effect.body, effect.cause)
            case Call():
                self._call(effect)
            case Reply():
                self._reply(effect)
            case Recover():
                took_ns = self._host.chance(MS, MOST_RECOVERY_MS * MS)
                self._recovered_ns = self._host.monotonic_ns() + took_ns
            case (
                Append()
                | Truncate()
                | Sync()
                | Delete()
                | StoreVote()
                | StoreSnapshot()
                | Checkpoint()
            ):
                self._disk.carry_out(effect)
            case Close():
                connection, _ = self._requests.pop(effect.request_id, (-1, -1))
                if self._incoming.pop(connection, None) is not None:
                    self._host.hang_up(connection)
            case OpenSession() | CloseSession() | ToZooKeeper():
                self._to_zookeeper(effect)
            case Exit():
                latest_ns = self._host.monotonic_ns() + MOST_CLOSING_MS * MS
                self._exit = _Exit(effect.code, latest_ns)
                self._leave()
            case _:
                assert_never(effect)

    def _leave(self, due: bool = False) -> None:
        """Ends the process that wants to exit, once its sessions are closed or its latest time has
        come."""
        if self._exit is not None and (due or not self._closing):
            self._host.exit(self._exit.code)

    # ----------------------------------------------------------------------------------- ZooKeeper

    def _to_zookeeper(self, effect: ZooKeeperEffect) -> None:
        match effect:
            case OpenSession():
                assert self._session is None, "a node has one session at a time"
                # A simulated server represents a whole ensemble.
                (server,) = effect.servers
                self._session = SimulatedSession(
                    Server(*server, effect.chroot),
                    effect.timeout_ms,
                    self._deliver,
                    self._host,
                    effect.limit_ms,
                )
            case CloseSession():
                if self._session is not None:
                    self._session.close()
            case ToZooKeeper(request_id, request):
                if self._session is not None:
                    self._session.ask(request_id, request)
                else:
                    self._step(ZooKeeperAnswer(request_id, Unsent()))

    def _deliver(self, event: SessionEvent) -> None:
        if isinstance(event, Ended) and self._session is not None:
            if self._session.closing is not None:
                self._closing.add(self._session.closing)
            self._session = None
        self._step(from_zookeeper(event))

    # ------------------------------------------------------------------------------------- network

    def _call(self, call: Call) -> None:
        key = (call.address, call.channel)
        connection = self._peers.get(key)
        if connection is None:
            connection = self._peers[key] = self._host.dial(*call.address)
            self._outgoing[connection] = _Outgoing(key)
        self._host.send(
            connection, _Request(self._name, call.call_id, call.message, self._principal)
        )
        # A produce with acks=0 has no answer, so nothing waits for it.
        if not (isinstance(call.message, ProduceRequest) and call.message.acks == 0):
            self._outgoing[connection].calls.add(call.call_id)
            due_ns = self._host.monotonic_ns() + call.timeout_ms * MS
            heappush(self._timeouts, (due_ns, call.call_id, connection))

    def _reply(self, reply: Reply) -> None:
        connection, correlation = self._requests.pop(reply.request_id, (-1, -1))
        incoming = self._incoming.get(connection)
        if incoming is None:
            return
        message = filled(reply.message, self._disk.read)
        header = incoming.headers.pop(reply.request_id, None) if incoming.headers else None
        if header is not None and message is not None:
            message = RawFrame(codec.encode_response(header, message)[4:])
        answer = None if message is None else _Answer(correlation, message)
        # Kafka answers the requests of a connection in their order: a later answer waits for the
        # earlier ones.
        if incoming.order[0] != reply.request_id:
            incoming.answers[reply.request_id] = answer
            return
        incoming.order.popleft()
        if answer is not None:
            self._host.send(connection, answer)
        while incoming.answers and incoming.order[0] in incoming.answers:
            ready = incoming.answers.pop(incoming.order.popleft())
            if ready is not None:
                self._host.send(connection, ready)
