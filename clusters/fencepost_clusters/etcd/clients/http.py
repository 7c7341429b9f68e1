"""The shell of a client: carries a script out over HTTP, one connection a member."""

from __future__ import annotations

import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from threading import Event
from typing import final

import msgspec

from fencepost import Recorder
from fencepost_clusters.etcd.clients.messages import NoReply, NotSent, Replied, Request, Response
from fencepost_clusters.etcd.clients.script import Record, Script, Send, Wait

_HEADERS = {"Content-Type": "application/json"}
_NEEDS_LEADER = {**_HEADERS, "Grpc-Metadata-hasleader": "true"}


@final
class Gateway:
    """The members, by the addresses at which this client reaches them.

    A connection is kept until an error occurs on it; the next request then opens a new one. A
    request is never sent twice.
    """

    def __init__(self, addresses: Mapping[str, str], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._open: dict[str, HTTPConnection] = {}

    def ask(self, slot: str, request: Request, limit_ms: int) -> Response:
        """One request and its answer; returns soon after the limit in any case."""
        deadline = time.monotonic() + limit_ms / 1000
        connection = self._open.pop(slot, None)
        if connection is None:
            connection = HTTPConnection(self._addresses[slot], self._port, timeout=limit_ms / 1000)
            try:
                connection.connect()
            except OSError as refused:
                connection.close()
                return NotSent(_words(refused))
            connection.auto_open = 0
        try:
            answer = self._exchange(connection, request, deadline)
        except (OSError, HTTPException) as broken:
            connection.close()
            return NoReply(_words(broken))
        if connection.sock is not None:
            self._open[slot] = connection
        return answer

    def _exchange(self, connection: HTTPConnection, request: Request, deadline: float) -> Response:
        # Each call may take the remaining time: an answer is small, so there are few calls.
        connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        headers = _NEEDS_LEADER if request.needs_leader else _HEADERS
        connection.request("POST", request.path, msgspec.json.encode(request.body), headers)
        connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        response = connection.getresponse()
        return Replied(response.status, response.read())

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def carry_out(
    script: Script, recorder: Recorder, links: Gateway, own: Gateway, stopping: Event
) -> None:
    """Runs a script to its end, or to the first wait after it was asked to stop."""
    answer: Response | None = None
    try:
        while True:
            step = script.send(answer)
            answer = None
            match step:
                case Send():
                    gateway = own if step.past_links else links
                    answer = gateway.ask(step.slot, step.request, step.limit_ms)
                case Record():
                    recorder.record(step.body)
                case Wait():
                    if stopping.wait(step.ms / 1000):
                        return
    except StopIteration:
        return
    finally:
        script.close()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
