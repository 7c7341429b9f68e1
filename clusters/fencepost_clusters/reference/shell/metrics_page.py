"""A node's metrics over HTTP, in Prometheus's text format, on a port of their own.

Each metric has KIP-631's full name as its label `name`, and the id of its node; ZooKeeper's metrics
do not exist in quorum mode. Any other request is answered with an error, and bytes that are not
HTTP close that connection only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

from fencepost_kafka import MetricsReported

PATH = "/metrics"
MOST_BYTES = 8192
"""A request with longer headers than this is refused."""
PATIENCE_S = 5.0

Ask = Callable[[], tuple[MetricsReported, ...]]

_LAG = "Records between the last one replayed and the last stable one that this node knows."
_CONTROLLER = (
    ("metadata_lag", "MetadataLag", _LAG),
    ("commit_latency_ms", "MetadataCommitLatencyMs", "Mean time from append to commit."),
    ("commit_rate", "MetadataCommitRate", "Metadata records committed per second."),
    ("snapshot_lag", "MetadataSnapshotLag", "Records since the last snapshot; 0 without one."),
    ("requests_rate", "ControllerRequestsRate", "Requests processed per second."),
)
_BROKER = (("metadata_lag", "MetadataLag", _LAG),)
_KINDS = {"controller": ("KafkaController", _CONTROLLER), "broker": ("KafkaServer", _BROKER)}
_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]")


def page(reported: Iterable[MetricsReported]) -> str:
    """The metrics of a process's nodes, as `text/plain; version=0.0.4`."""
    lines: list[str] = []
    for node in reported:
        kind, metrics = _KINDS[node.role]
        for field, name, description in metrics:
            legal = f"kafka_controller_{kind}_{name}"
            full = f"kafka.controller:type={kind},name={name}"
            lines += (
                f"# HELP {legal} {description}",
                f"# TYPE {legal} gauge",
                f'{legal}{{name="{full}",node="{node.node_id}"}} {getattr(node, field)}',
            )
    return "".join(f"{line}\n" for line in lines)


def answer(request: bytes, ask: Ask) -> bytes:
    """The answer to a request, of which only the first line matters."""
    asked = _REQUEST.fullmatch(request.partition(b"\r\n")[0])
    if asked is None:
        return _response("400 Bad Request", "this is not HTTP\n")
    if asked[2].partition(b"?")[0] != PATH.encode():
        return _response("404 Not Found", f"the metrics are at {PATH}\n")
    if asked[1] != b"GET":
        return _response("405 Method Not Allowed", "metrics can only be read\n")
    return _response("200 OK", page(ask()))


def _response(status: str, body: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()


class MetricsConnection(asyncio.Protocol):
    """One connection: one request, one answer, and its end; or its end when no request comes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._limit = asyncio.get_running_loop().call_later(PATIENCE_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._limit is not None:
            self._limit.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._buffer += data
        if b"\r\n\r\n" in self._buffer:
            self._transport.write(answer(self._buffer, self._ask))
            self._transport.close()
        elif len(self._buffer) > MOST_BYTES:
            self._transport.write(answer(b"", self._ask))
            self._transport.close()
