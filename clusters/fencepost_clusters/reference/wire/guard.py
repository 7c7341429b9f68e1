"""Checks the lengths in foreign bytes before kio's native decoder sees them.

That decoder reserves memory for an array before it reads it, and aborts the whole process if a
corrupt length asks for too much memory. So every message is first checked by its schema: no string
or array may claim more bytes than follow it. The decoder also cannot skip tagged fields that it
does not know (KIP-482), so these are removed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

Edit = tuple[int, int, bytes]
"""A replacement of bytes: begin, end, and the new bytes."""
Walker = Callable[[bytes, int, list[Edit]], int]

_FIXED = {
    "int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4,
    "uint32": 4, "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8,
    "datetime_i64": 8, "uuid": 16,
}  # fmt: skip


class Malformed(ValueError):
    """Bytes that cannot be the message they claim to be."""


def check(schema: type, data: bytes, at: int) -> None:
    """Raises Malformed unless a `schema` entity fits into `data` from `at` on."""
    _walk(schema, data, at)


def known_part(schema: type, data: bytes) -> bytes:
    """The bytes of a `schema` entity without undeclared tagged fields.

    Raises Malformed as `check` does.
    """
    return _edited(data, _walk(schema, data, 0))


def _walk(schema: type, data: bytes, at: int) -> list[Edit]:
    edits: list[Edit] = []
    try:
        _walker(schema)(data, at, edits)
    except IndexError:
        raise Malformed(f"{schema.__name__} is cut short") from None
    return edits


def _edited(data: bytes, edits: list[Edit]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for start, end, instead in edits:
        parts += [data[done:start], instead]
        done = end
    return b"".join((*parts, data[done:])) if edits else data


def _fixed(size: int) -> Walker:
    def walk(data: bytes, at: int, edits: list[Edit]) -> int:
        if at + size > len(data):
            raise Malformed("cut short")
        return at + size

    return walk


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    # Five bytes of seven bits hold 32 bits; without the bound, foreign bytes could make a length of
    # any size.
    for index in range(at, at + 5):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise Malformed("a length of more than five bytes")


def _length(width: int) -> Callable[[bytes, int], tuple[int, int]]:
    """Reads a length: compact (width 0; null is -1) or a signed integer of that many bytes."""

    def compact(data: bytes, at: int) -> tuple[int, int]:
        value, at = _varint(data, at)
        return value - 1, at

    def legacy(data: bytes, at: int) -> tuple[int, int]:
        if at + width > len(data):
            raise Malformed("cut short")
        return int.from_bytes(data[at : at + width], "big", signed=True), at + width

    return legacy if width else compact


def _blob(width: int) -> Walker:
    read = _length(width)

    def walk(data: bytes, at: int, edits: list[Edit]) -> int:
        size, at = read(data, at)
        # -1 stands for null. Whether null is allowed here is for the decoder to say.
        if size < -1 or at + size > len(data):
            raise Malformed(f"a string or blob of {size} bytes with {len(data) - at} left")
        return at + max(0, size)

    return walk


def _array(width: int, item: Walker) -> Walker:
    read = _length(width)

    def walk(data: bytes, at: int, edits: list[Edit]) -> int:
        count, at = read(data, at)
        # Each element has at least one byte, so an array cannot have more elements than there are
        # bytes left.
        if count < -1 or count > len(data) - at:
            raise Malformed(f"an array of {count} with {len(data) - at} bytes left")
        for _ in range(count):
            at = item(data, at, edits)
        return at

    return walk


def _primitive(kafka_type: str, flexible: bool) -> Walker:
    if kafka_type in _FIXED:
        return _fixed(_FIXED[kafka_type])
    if kafka_type == "string":
        return _blob(0 if flexible else 2)
    assert kafka_type in ("bytes", "records"), kafka_type
    return _blob(0 if flexible else 4)


def _nullable(item: Walker) -> Walker:
    """An entity that may be null is preceded by a byte, -1 for null."""

    def walk(data: bytes, at: int, edits: list[Edit]) -> int:
        return at + 1 if data[at] == 0xFF else item(data, at + 1, edits)

    return walk


@cache
def _walker(schema: type) -> Walker:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    width = 0 if flexible else 4
    header_client_id = schema.__name__ == "RequestHeader"
    steps: list[Walker] = []
    tagged: dict[int, Walker] = {}
    for one in fields(schema):
        tag = get_field_tag(one)
        walker = _field(one, flexible, width, header_client_id, tag is not None)
        if tag is None:
            steps.append(walker)
        else:
            tagged[tag] = walker

    def walk(data: bytes, at: int, edits: list[Edit]) -> int:
        for step in steps:
            at = step(data, at, edits)
        return _tags(data, at, tagged, edits) if flexible else at

    return walk


def _field(one: Any, flexible: bool, width: int, in_header: bool, tagged: bool) -> Walker:
    if in_header and one.name == "client_id":
        return _blob(2)  # always in the legacy format
    kind = classify_field(one)
    if isinstance(kind, PrimitiveField):
        return _primitive(get_schema_field_type(one), flexible)
    if isinstance(kind, PrimitiveTupleField):
        return _array(width, _primitive(get_schema_field_type(one), flexible))
    if isinstance(kind, EntityTupleField):
        return _array(width, _walker(kind.type_))
    assert isinstance(kind, EntityField)
    inner = _walker(kind.type_)
    return _nullable(inner) if is_optional(one) and not tagged else inner


def _tags(data: bytes, at: int, known: dict[int, Walker], edits: list[Edit]) -> int:
    """Tagged fields, each with its size: known fields are checked, unknown fields removed."""
    start = at
    count, at = _varint(data, at)
    if count > len(data) - at:
        raise Malformed(f"{count} tagged fields with {len(data) - at} bytes left")
    kept: list[bytes] = []
    changed = False
    for _ in range(count):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        if size > len(data) - at:
            raise Malformed(f"a tagged field of {size} bytes with {len(data) - at} left")
        value = data[at : at + size]
        at += size
        if tag not in known:
            changed = True
            continue
        inner: list[Edit] = []
        # The field is checked within its own bytes: what it claims beyond them belongs to the next
        # field.
        if known[tag](value, 0, inner) > size:
            raise Malformed(f"tagged field {tag} is longer than its size")
        changed = changed or bool(inner)
        # A known field may contain unknown ones. Its size changes with them, so it is written
        # again.
        value = _edited(value, inner)
        kept += [_unsigned(tag), _unsigned(len(value)), value]
    if changed:
        edits.append((start, at, _unsigned(len(kept) // 3) + b"".join(kept)))
    return at


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
