"""Bytes as the documents define them, encoded and decoded by the documents only.

The cluster's own codec is no evidence for its own correctness, so this one is independent of it.
"""

from __future__ import annotations

import struct
from typing import final

from msgspec import Struct

CLIENT = b"clients/by-the-letter"
BROKER_HEARTBEAT, CONTROLLER_HEARTBEAT, FETCH = 50, 51, 1
METADATA_TOPIC_ID = b"\0" * 15 + b"\1"


def header(key: int, version: int, correlation: int = 7, flexible: bool = True) -> bytes:
    """A request's header; version 2 if it is flexible."""
    head = struct.pack(">hhih", key, version, correlation, len(CLIENT)) + CLIENT
    return head + (b"\0" if flexible else b"")


def text(value: str) -> bytes:
    """A compact string."""
    data = value.encode()
    return unsigned(len(data) + 1) + data


def unsigned(number: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes((*out, number))


def broker_heartbeat(
    broker: int, target: int = 3, epoch: int = -1, offset: int = -1, tagged: bytes = b"\0"
) -> bytes:
    """KIP-631's BrokerHeartbeat, version 0, with one listener; `tagged` are its tagged fields."""
    listener = text("CLIENT") + text("nowhere") + struct.pack(">Hh", 40_000, 0) + b"\0"
    fields = struct.pack(">biqqq", target, broker, epoch, 1_000, offset)
    return header(BROKER_HEARTBEAT, 0) + fields + unsigned(2) + listener + tagged


def controller_heartbeat(controller: int, offset: int) -> bytes:
    """KIP-631's ControllerHeartbeat, version 0."""
    return header(CONTROLLER_HEARTBEAT, 0) + struct.pack(">iq", controller, offset) + b"\0"


@final
class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a BrokerHeartbeat; `left` is the number of bytes after it."""

    error: int
    active_controller: int
    next_state: int
    broker_epoch: int
    lease_end_ms: int
    left: int


def read_heartbeat_answer(frame: bytes) -> HeartbeatAnswer:
    """Decodes an answer to a BrokerHeartbeat; raises struct.error if the bytes are too short."""
    _, _, _, error, active, state, epoch, ends = struct.unpack_from(">ibihibqq", frame)
    at = _after_tags(frame, struct.calcsize(">ibihibqq"))
    return HeartbeatAnswer(
        error=error,
        active_controller=active,
        next_state=state,
        broker_epoch=epoch,
        lease_end_ms=ends,
        left=len(frame) - at,
    )


def read_controller_answer(frame: bytes) -> tuple[int, bool, int]:
    """The error of a ControllerHeartbeat's answer, its StartSnapshot, and the number of bytes
    left."""
    _, _, _, error, start = struct.unpack_from(">ibih?", frame)
    return error, start, len(frame) - _after_tags(frame, struct.calcsize(">ibih?"))


def leading_error(frame: bytes) -> int:
    """The error at the beginning of an answer without flexible fields, after its correlation id; 0
    for none."""
    return int.from_bytes(frame[4:6], "big", signed=True)


def _after_tags(frame: bytes, at: int) -> int:
    count, at = varint(frame, at)
    for _ in range(count):
        _, at = varint(frame, at)
        size, at = varint(frame, at)
        at += size
    return at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fetch_metadata(offset: int) -> bytes:
    """A Fetch, version 16, of the metadata log by a client that is no replica."""
    partition = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, 1 << 20) + b"\0"
    topic = METADATA_TOPIC_ID + unsigned(2) + partition + b"\0"
    fields = struct.pack(">iiibii", 0, 1, 1 << 20, 0, 0, -1)
    return header(FETCH, 16) + fields + unsigned(2) + topic + unsigned(1) + text("") + b"\0"


def record_values(frame: bytes) -> list[tuple[bool, bytes]]:
    """Every record in the batches of a fetch's answer: whether its key is null, and its value.

    Control batches, which hold no metadata, are left out.
    """
    found: list[tuple[bool, bytes]] = []
    start = _first_batch(frame)
    while start is not None:
        head = frame[start : start + 61]
        if len(head) < 61 or head[16] != 2:
            break
        end = start + 12 + struct.unpack_from(">i", head, 8)[0]
        if end > len(frame):
            break
        if not struct.unpack_from(">h", head, 21)[0] & 0x20:
            found += _records(frame, start + 61, struct.unpack_from(">i", head, 57)[0])
        start = end
    return found


def _first_batch(frame: bytes) -> int | None:
    """The offset of the first batch: base offset 0, magic 2."""
    for at in range(len(frame) - 61):
        base, size = struct.unpack_from(">qi", frame, at)
        if base == 0 and 49 <= size <= len(frame) - at - 12 and frame[at + 16] == 2:
            return at
    return None


def _records(frame: bytes, at: int, count: int) -> list[tuple[bool, bytes]]:
    found: list[tuple[bool, bytes]] = []
    for _ in range(count):
        length, at = _zigzag(frame, at)
        end = at + length
        _, at = _zigzag(frame, at + 1)
        _, at = _zigzag(frame, at)
        key, at = _zigzag(frame, at)
        at += max(0, key)
        size, at = _zigzag(frame, at)
        found.append((key == -1, frame[at : at + size]))
        at = end
    return found


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at
