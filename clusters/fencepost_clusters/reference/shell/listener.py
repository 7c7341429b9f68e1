"""A listener: reads frames, hands requests to the node, and sends answers in the order of their
requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fencepost_clusters.reference.core.node.rights import PLAIN, Rights
from fencepost_clusters.reference.core.node.settings import kind_of
from fencepost_clusters.reference.wire import codec, guard
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

BACKLOG = 4096
Deliver = Callable[["Connection", str, codec.Header, m.Request], int]
Closed = Callable[[str, str, str], None]


@dataclass(slots=True)
class _Slot:
    """The place of one answer in a connection's order."""

    header: codec.Header
    answer: bytes | None = None


class Connection(asyncio.Protocol):
    """One incoming connection. Malformed bytes close it, and the node records why."""

    def __init__(
        self,
        listener: str,
        deliver: Deliver,
        *,
        closed: Closed,
        rights: Rights,
        listeners: codec.Listeners,
    ) -> None:
        self.principal = ""
        """The user as which the other end is authenticated."""
        self._rights = rights
        self._listener, self._kind = listener, kind_of(listener)
        self._listeners = listeners
        self._deliver = deliver
        self._closed = closed
        self._buffer = bytearray()
        self._order: list[_Slot] = []
        self._slots: dict[int, _Slot] = {}
        self._transport: asyncio.Transport | None = None
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = "{}:{}".format(*transport.get_extra_info("peername")[:2])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._transport is not None and len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 0 < size <= codec.MAX_FRAME_BYTES:
                self.close(f"a frame of {size} bytes")
                return
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._frame(frame)

    def _frame(self, frame: bytes) -> None:
        try:
            header, request = codec.decode_request(self._kind, frame, self._listeners)
        except (guard.Malformed, codec.Unsupported) as error:
            self.close(str(error))
            return
        slot = _Slot(header)
        self._order.append(slot)
        if isinstance(request, m.ApiVersionsRequest):
            versions = codec.api_versions(self._kind, header, self._listeners)
            slot.answer = codec.encode_response(header, versions)
            self._flush()
            return
        if isinstance(request, m.SaslHandshakeRequest | m.SaslAuthenticateRequest):
            answered = self._introduced(request)
            slot.answer = codec.encode_response(header, answered)
            self._flush()
            if answered.error_code != Error.NONE:
                self.close(f"{Error(answered.error_code).name} in {header.api.name}")
            return
        self._slots[self._deliver(self, self._listener, header, request)] = slot

    def _introduced(
        self, request: m.SaslHandshakeRequest | m.SaslAuthenticateRequest
    ) -> m.SaslHandshakeResponse | m.SaslAuthenticateResponse:
        """SASL/PLAIN (RFC 4616): the other end authenticates by a user and a password."""
        if isinstance(request, m.SaslHandshakeRequest):
            good = request.mechanism == PLAIN
            error = Error.NONE if good else Error.UNSUPPORTED_SASL_MECHANISM
            return m.SaslHandshakeResponse(error_code=error, mechanisms=(PLAIN,))
        _, _, credentials = request.auth_bytes.decode(errors="replace").partition("\0")
        username, _, password = credentials.partition("\0")
        if not self._rights.knows(username, password):
            message = "no such user, or not with that password"
            return m.SaslAuthenticateResponse(
                error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=message
            )
        self.principal = username
        return m.SaslAuthenticateResponse(error_code=Error.NONE)

    def answer(self, request_id: int, message: m.Response | None) -> None:
        """Fills the place of an answer; None removes the place (acks=0)."""
        slot = self._slots.pop(request_id, None)
        if slot is None or self._transport is None:
            return
        slot.answer = b"" if message is None else codec.encode_response(slot.header, message)
        self._flush()

    def _flush(self) -> None:
        ready = 0
        for slot in self._order:
            if slot.answer is None:
                break
            ready += 1
        if ready and self._transport is not None:
            self._transport.write(b"".join(slot.answer or b"" for slot in self._order[:ready]))
        del self._order[:ready]

    def close(self, reason: str) -> None:
        """Closes the connection and reports the reason."""
        if self._transport is not None:
            self._closed(self._listener, self._peer, reason)
            self._transport.close()
            self._transport = None
