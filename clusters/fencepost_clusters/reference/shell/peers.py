"""Calls to other nodes: one connection per address and channel, answers matched by correlation
id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fencepost_clusters.reference.core.node.effects import Address, Answered, Call, CallFailed
from fencepost_clusters.reference.core.node.rights import PLAIN, Rights
from fencepost_clusters.reference.wire import codec, guard
from fencepost_clusters.reference.wire import messages as m

Deliver = Callable[[Answered | CallFailed], None]


@dataclass(slots=True)
class _Waiting:
    request: type[m.Request]
    timer: asyncio.TimerHandle


class Peer(asyncio.Protocol):
    """One outgoing connection, made on first use; when it breaks, every call on it has failed."""

    def __init__(self, deliver: Deliver, calls: codec.Calls, introduction: bytes = b"") -> None:
        """`introduction` are the two SASL frames that prove this node's user, or none."""
        self.open = True
        self._introduction = introduction
        self._unanswered = [m.SaslHandshakeRequest, m.SaslAuthenticateRequest]
        self._deliver = deliver
        self._calls = calls
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._unsent: list[bytes] = []
        self._waiting: dict[int, _Waiting] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self.open:
            transport.abort()
            return
        if self._introduction:
            transport.write(self._introduction)
        else:
            self._introduced()

    def _introduced(self) -> None:
        """Sends the calls that waited for the connection, or for the authentication on it."""
        assert self._transport is not None
        self._introduction = b""
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail("connection lost")

    def send(self, call: Call, frame: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Sends a call's frame, now or once connected."""
        if not (isinstance(call.message, m.ProduceRequest) and call.message.acks == 0):
            self._await(call, loop)
        # Before the authentication is answered, a request would be refused.
        if self._transport is None or self._introduction:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def _await(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        timer = loop.call_later(call.timeout_ms / 1000, self.fail, "timed out")
        self._waiting[call.call_id] = _Waiting(type(call.message), timer)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self.open and len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 4 <= size <= codec.MAX_FRAME_BYTES:
                self.fail(f"a frame of {size} bytes")
                return
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._frame(frame)

    def _frame(self, frame: bytes) -> None:
        if self._introduction:
            self._welcome(frame)
            return
        call_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(call_id, None)
        # The answers on this connection no longer match its calls, so none of them can be trusted.
        if waiting is None:
            self.fail(f"an answer to no call ({call_id})")
            return
        waiting.timer.cancel()
        try:
            _, message = codec.decode_response(waiting.request, frame, self._calls)
        except guard.Malformed as error:
            self._deliver(CallFailed(call_id, str(error)))
            self.fail(str(error))
            return
        self._deliver(Answered(call_id, message))

    def _welcome(self, frame: bytes) -> None:
        """Handles the answer to one of the two frames of the introduction."""
        try:
            _, message = codec.decode_response(self._unanswered.pop(0), frame)
        except guard.Malformed as error:
            self.fail(str(error))
            return
        if getattr(message, "error_code", 0):
            self.fail("it does not know this node")
        elif not self._unanswered:
            self._introduced()

    def fail(self, reason: str) -> None:
        """Gives up the connection: the calls that wait on it have failed, later calls dial
        again."""
        if not self.open:
            return
        # This is set before the calls fail: a call that is made upon such a failure then dials a
        # new connection.
        self.open = False
        if self._transport is not None:
            self._transport.abort()
        # The calls are taken out first, since delivering a failure may bring about further calls.
        waiting, self._waiting = self._waiting, {}
        for call_id, one in waiting.items():
            one.timer.cancel()
            self._deliver(CallFailed(call_id, reason))


@dataclass(slots=True)
class Peers:
    """All outgoing connections of a node. `hosts` resolves the cluster's names."""

    client: str
    hosts: Mapping[str, str]
    rights: Rights
    deliver: Deliver
    calls: codec.Calls = field(default_factory=lambda: codec.NODE_CALLS)
    _peers: dict[tuple[Address, str], Peer] = field(default_factory=dict)
    _dialling: set[asyncio.Task[None]] = field(default_factory=set)

    def call(self, call: Call) -> None:
        """Carries out one call; it ends in one Answered or CallFailed, never within this step."""
        loop = asyncio.get_running_loop()
        key = (call.address, call.channel)
        peer = self._peers.get(key)
        if peer is None or not peer.open:
            introduction = self._introduction(call.channel)
            peer = self._peers[key] = Peer(self.deliver, self.calls, introduction)
            task = loop.create_task(self._dial(call.address, peer))
            self._dialling.add(task)
            task.add_done_callback(self._dialling.discard)
        frame = codec.encode_request(self.client, call.call_id, call.message, self.calls)
        peer.send(call, frame, loop)

    def _introduction(self, channel: str) -> bytes:
        """The frames that authenticate this node to controllers, if they require rights; none for
        brokers."""
        if not self.rights.wanted or channel == "replication":
            return b""
        proof = f"\0{self.rights.username}\0{self.rights.password}".encode()
        return codec.encode_request(
            self.client, -1, m.SaslHandshakeRequest(mechanism=PLAIN)
        ) + codec.encode_request(self.client, -2, m.SaslAuthenticateRequest(auth_bytes=proof))

    async def _dial(self, address: Address, peer: Peer) -> None:
        name, port = address
        host = self.hosts.get(name, name)
        try:
            await asyncio.get_running_loop().create_connection(lambda: peer, host, port)
        except OSError as error:
            peer.fail(f"cannot connect to {name}:{port}: {error.strerror or error}")

    def close(self) -> None:
        """Drops every connection without a notice to the node."""
        for task in self._dialling:
            task.cancel()
        for peer in self._peers.values():
            peer.open = False
