"""A seeded stream of malformed frames, and a driver that sends them to nodes.

Each begins as a whole request of an API and version that the listener serves, with contents made up
field by field. Some stay valid. Most are damaged: bits are flipped, the end is cut off, a length is
wrong, a part is doubled, bytes are inserted or replaced. Some are random bytes only.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded: always the same frames
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from direct_nodes import PORTS, Nodes, owner, request
from kio.schema.errors import ErrorCode
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from fencepost_clusters.reference.wire import codec, guard
from fencepost_clusters.reference.wire.record_batch import build

TOPIC = "mangled"
AT_ONCE = 8
"""How many connections are under way together."""
A_CONNECTION = 8
"""How many frames go over one connection, unless one of them closes it."""
LIMIT_S = 10.0
NAMES = (TOPIC, TOPIC, "", "audit", "CONTROLLER", "x" * 300, "é")
NUMBERS = (0, 0, 0, 0, 1, 1, 2, 3, 7, 101, -1, -2, 100)
EDGES = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff", b"\x80\0\0\0", b"\0\0\0\0")
NOT_SENT = ("AddRaftVoter", "RemoveRaftVoter")
GOOD = request(18, 0, b"")


# ------------------------------------------------------------------------------------- the frames


@dataclass(slots=True)
class Frames:
    """The frames for one listener; one seed is one stream."""

    listener: str
    seed: int
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(f"{self.seed}/{self.listener}")

    def next(self) -> bytes:
        """The next frame's contents, without its length."""
        draw = self._draw
        kind = draw.random()
        if kind < 0.02:
            return draw.randbytes(draw.randrange(1, 200))
        whole = self.whole()
        if kind < 0.15:
            return whole
        spoilt = bytearray(whole)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            self._spoil(spoilt)
        return bytes(spoilt) or b"\0"

    def whole(self) -> bytes:
        """A whole request of any API and version of this listener."""
        draw = self._draw
        api = draw.choice(tuple(codec.LISTENERS[self.listener].values()))
        version = draw.randint(api.min_version, api.max_version)
        schema = codec._request_schema(api.key, version)
        names = {
            "request_api_key": api.key,
            "request_api_version": version,
            "correlation_id": draw.randrange(2**31),
            "client_id": draw.choice(("stranger", "broker-1#1", None)),
        }
        return codec._frame(schema, names, self._entity(schema))[4:]

    def _spoil(self, frame: bytearray) -> None:
        """Spoils a frame in one way; most often beyond its key and version, since a frame with a
        bad key is not decoded."""
        draw = self._draw
        least = 0 if draw.random() < 0.1 or len(frame) < 9 else 8
        at = draw.randrange(least, len(frame)) if len(frame) > least else 0
        match draw.randrange(6):
            case 0:
                for _ in range(draw.randint(1, 4)):
                    frame[draw.randrange(at, len(frame))] ^= 1 << draw.randrange(8)
            case 1:
                del frame[max(1, at) :]
            case 2:
                edge = draw.choice(EDGES)
                frame[at : at + len(edge)] = edge
            case 3:
                part = frame[at : at + draw.randint(1, 40)]
                frame[at:at] = part
            case 4:
                frame[at:at] = draw.randbytes(draw.randint(1, 8))
            case _:
                size = draw.randint(1, 8)
                frame[at : at + size] = draw.randbytes(size)

    def _entity(self, schema: Any) -> Any:
        return schema(**{one.name: self._field(one) for one in fields(schema)})

    def _field(self, one: Any) -> Any:
        draw = self._draw
        if one.name == "records":
            return self._records()
        kind = classify_field(one)
        if is_optional(one) and draw.random() < 0.1:
            return None
        count = draw.choice((0, 1, 1, 1, 2))
        if isinstance(kind, PrimitiveField):
            return self._primitive(get_schema_field_type(one))
        if isinstance(kind, PrimitiveTupleField):
            return tuple(self._primitive(get_schema_field_type(one)) for _ in range(count))
        if isinstance(kind, EntityTupleField):
            return tuple(self._entity(kind.type_) for _ in range(count))
        assert isinstance(kind, EntityField)
        return self._entity(kind.type_)

    def _primitive(self, kafka_type: str) -> Any:
        draw = self._draw
        number = draw.choice(NUMBERS)
        match kafka_type:
            case "string":
                return draw.choice(NAMES)
            case "bytes":
                return draw.randbytes(draw.randrange(20))
            case "bool":
                return draw.random() < 0.5
            case "uuid":
                return UUID(int=draw.choice((0, 1, draw.getrandbits(128))))
            case "float64":
                return float(number)
            case "error_code":
                return ErrorCode.none
            case "uint8" | "uint16" | "uint32" | "uint64":
                return abs(number)
        if kafka_type.startswith("timedelta"):
            return timedelta(milliseconds=draw.choice((0, 1, 5, 20)))
        if kafka_type.startswith("datetime"):
            return datetime.fromtimestamp(abs(number), UTC)
        return number

    def _records(self) -> bytes:
        draw = self._draw
        producer = draw.choice(((-1, -1, -1), (1, 0, 0), (1, 0, draw.randrange(10))))
        values = [b"v"] * draw.randint(1, 3)
        batch = bytearray(build(values, draw.choice(NUMBERS), 0, 0, producer=producer))
        if draw.random() < 0.5:
            batch[draw.randrange(len(batch))] ^= 1 << draw.randrange(8)
        return bytes(batch)


def understood(listener: str, frame: bytes) -> str:
    """The name of the API as which a node reads a frame; "" if it closes the connection."""
    try:
        header, _ = codec.decode_request(listener, frame)
    except (guard.Malformed, codec.Unsupported):
        return ""
    return header.api.name


def connections(listener: str, seed: int, count: int) -> Iterator[tuple[bytes, int]]:
    """The bytes of one connection after another, and the number of frames in each; `count` frames
    in all.

    Whatever closes a connection comes last over it, so that the node reads every frame. Some of the
    last ones lie about their own length. Valid requests to change the quorum's voters are left out:
    a controller must obey one, then waits for a voter that does not exist, and no further request
    can be tested.
    """
    frames = Frames(listener, seed)
    chance = random.Random(f"{seed}/{listener}/lengths")
    parts: list[bytes] = []
    for number in range(count):
        while (name := understood(listener, frame := frames.next())) in NOT_SENT:
            pass
        lie = chance.choice((1, -1, 1000, 2**31 - 1)) if chance.random() < 0.05 else 0
        size = min(2**31 - 1, len(frame) + lie)
        parts.append(struct.pack(">i", size) + frame)
        ends = lie or len(parts) == A_CONNECTION or number + 1 == count
        if ends or not name:
            yield b"".join(parts), len(parts)
            parts = []


# --------------------------------------------------------------------------------------- the nodes


@dataclass(slots=True)
class Bombardment:
    """Sends frames to the listeners of a controller and a broker, and checks that both still
    work."""

    cluster: Nodes
    sent: int = 0
    slowest_s: float = 0.0
    """The longest that a good request had to wait for its answer."""
    _sources: int = 0

    def send(self, seed: int, frames: int) -> None:
        """Sends so many frames to each listener. The node must read every connection to its end
        within the limit, and answer a good request at intervals, or this raises TimeoutError."""
        streams = {listener: connections(listener, seed, frames) for listener in PORTS}
        while streams:
            for listener, stream in tuple(streams.items()):
                batch = [one for _, one in zip(range(AT_ONCE), stream, strict=False)]
                if not batch:
                    del streams[listener]
                    continue
                self._send(listener, batch)
                self.ask(listener)

    def ask(self, listener: str) -> None:
        """A good request is answered on a new connection; raises TimeoutError if it is not."""
        began = time.perf_counter()
        with self._dial(listener) as connection:
            connection.sendall(GOOD)
            assert len(connection.recv(8, socket.MSG_WAITALL)) == 8, f"{listener} hung up"
        self.slowest_s = max(self.slowest_s, time.perf_counter() - began)

    def memory_bytes(self) -> dict[str, int]:
        """The resident memory of each node; raises AssertionError for one that died."""
        found = {}
        for node, process in self.cluster.processes.items():
            assert self.cluster.alive(node), self.cluster.log(f"{node}#1")
            pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
            found[node] = int(pages) * 4096
        return found

    def _send(self, listener: str, batch: list[tuple[bytes, int]]) -> None:
        under_way: list[socket.socket] = []
        try:
            for data, frames in batch:
                connection = self._dial(listener)
                under_way.append(connection)
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:  # closed already
                    pass
                self.sent += frames
            for connection in under_way:
                try:
                    while connection.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
        finally:
            for connection in under_way:
                connection.close()

    def _dial(self, listener: str) -> socket.socket:
        """Dials from changing addresses, since one address has not enough ports for all
        connections."""
        self._sources = (self._sources + 1) % 25_000
        source = f"127.{self.cluster.run}.{100 + self._sources // 250}.{1 + self._sources % 250}"
        address = (self.cluster.address(owner(listener)), PORTS[listener])
        return socket.create_connection(address, timeout=LIMIT_S, source_address=(source, 0))
