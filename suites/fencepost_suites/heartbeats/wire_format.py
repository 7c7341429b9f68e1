"""KIP-343's two messages as bytes, encoded and decoded by the document alone.

The document gives no numbers: the API keys, and the error code of INVALID_INCARNATION_ID, are above
Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import final

from msgspec import Struct

from fencepost_suites.quorum.wire_format import CLIENT, header

METADATA_HEARTBEAT, ISR_CHANGE = 10_343, 10_344
NONE, UNKNOWN_PARTITION, NOT_LEADER, NOT_CONTROLLER, INVALID_REQUEST = 0, 3, 6, 41, 42
INVALID_INCARNATION_ID = 10_343
INITIAL, INACTIVE, ACTIVE, STOPPING = range(4)
NAME = CLIENT.decode()


def metadata_heartbeat(broker: int, incarnation: int, target: int) -> bytes:
    """MetadataHeartbeatRequest => broker_id incarnation_id target_state."""
    fields = struct.pack(">iqb", broker, incarnation, target)
    return header(METADATA_HEARTBEAT, 0, flexible=False) + fields


@final
class HeartbeatAnswer(Struct, frozen=True):
    """The answer to a MetadataHeartbeat; `left` is the number of bytes after it."""

    error: int
    text: str | None
    state: int
    left: int


def read_heartbeat_answer(frame: bytes) -> HeartbeatAnswer:
    """MetadataHeartbeatResponse => error_code error_string current_state; raises struct.error if
    the bytes are too short."""
    _, error = struct.unpack_from(">ih", frame)
    text, at = _nullable_string(frame, 6)
    (state,) = struct.unpack_from(">b", frame, at)
    return HeartbeatAnswer(error, text, state, len(frame) - at - 1)


@final
class WantedIsr(Struct, frozen=True):
    """A partition in an IsrChangeRequest."""

    leader_epoch: int
    partition: int
    isr: Sequence[int]


def isr_change(broker: int, incarnation: int, topics: Mapping[str, Sequence[WantedIsr]]) -> bytes:
    """IsrChangeRequest => broker_id incarnation_id [topic_name [leader_epoch partition_index
    [isr_node]]]."""
    out = bytearray(header(ISR_CHANGE, 0, flexible=False))
    out += struct.pack(">iqi", broker, incarnation, len(topics))
    for name, partitions in topics.items():
        text = name.encode()
        out += struct.pack(">h", len(text)) + text + struct.pack(">i", len(partitions))
        for one in partitions:
            out += struct.pack(">iii", one.leader_epoch, one.partition, len(one.isr))
            out += struct.pack(f">{len(one.isr)}i", *one.isr)
    return bytes(out)


@final
class IsrChangeAnswer(Struct, frozen=True):
    """The answer to an IsrChange; `left` is the number of bytes after it."""

    error: int
    results: tuple[int, ...]
    left: int


def read_isr_change_answer(frame: bytes) -> IsrChangeAnswer:
    """IsrChangeResponse => top_level_error_code top_level_error_message [error_code error_message];
    raises struct.error if the bytes are too short."""
    _, error = struct.unpack_from(">ih", frame)
    _, at = _nullable_string(frame, 6)
    (count,) = struct.unpack_from(">i", frame, at)
    at += 4
    results: list[int] = []
    for _ in range(count):
        (result,) = struct.unpack_from(">h", frame, at)
        results.append(result)
        _, at = _nullable_string(frame, at + 2)
    return IsrChangeAnswer(error, tuple(results), len(frame) - at)


def _nullable_string(frame: bytes, at: int) -> tuple[str | None, int]:
    """A string, and the offset after it; the length -1 means None."""
    (size,) = struct.unpack_from(">h", frame, at)
    if size < 0:
        return None, at + 2
    return frame[at + 2 : at + 2 + size].decode(), at + 2 + size
