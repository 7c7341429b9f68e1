"""Reads Kafka's own message schemas, as Kafka ships them, and decodes records by them.

Each version of Kafka ships the JSON of its metadata records in its `kafka-metadata` jar, so each
version's records are decoded by its own schemas. Only flexible versions are supported: metadata
records have no others. Tagged fields that a schema does not name are skipped, as Kafka does.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fencepost import FencepostError

Value = Any
"""An int, bool, float, str, bytes, None, a tuple of values, or a mapping by field names."""

FRAME_VERSION = 1
_NUMBERS: Mapping[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


@final
class Undecodable(FencepostError):
    """The bytes are not a record of a known kind and version."""


@dataclass(frozen=True, slots=True)
class Versions:
    """`2+`, `0-3`, `1` or `none`."""

    least: int
    most: int

    @classmethod
    def of(cls, text: str) -> Versions:
        """Parses the notation of a schema; empty means none."""
        if text in ("", "none"):
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 1 << 15)
        least, _, most = text.partition("-")
        return cls(int(least), int(most or least))

    def __contains__(self, version: int) -> bool:
        return self.least <= version <= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field; `tag` is None for a field that is always present in its versions."""

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Value
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """One kind of record."""

    key: int
    name: str
    versions: Versions
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record: its kind's name, its version, and its fields by name."""

    kind: str
    version: int
    values: Mapping[str, Value]


def read(text: str) -> Schema | None:
    """The schema in a file's text; None if it is not a metadata record's."""
    said = json.loads(_COMMENT.sub("", text))
    if said.get("type") != "metadata":
        return None
    common = {entry["name"]: entry["fields"] for entry in said.get("commonStructs", ())}
    return Schema(
        said["apiKey"], said["name"], Versions.of(said["validVersions"]),
        tuple(_field(entry, common) for entry in said["fields"]),
    )  # fmt: skip


def _field(entry: Mapping[str, Any], common: Mapping[str, Any]) -> Field:
    kind = entry["type"]
    inner = entry.get("fields") or common.get(kind.removeprefix("[]"), ())
    tag = entry.get("tag")
    return Field(
        name=entry["name"], type=kind, versions=Versions.of(entry["versions"]),
        nullable=Versions.of(entry.get("nullableVersions", "")),
        tagged=Versions.of(entry.get("taggedVersions", "")), tag=None if tag is None else int(tag),
        default=_default(kind, entry.get("default")),
        fields=tuple(_field(one, common) for one in inner),
    )  # fmt: skip


def _default(kind: str, given: Any) -> Value:
    if given in ("null", None) and (given == "null" or kind.startswith("[]")):
        return None if given == "null" else ()
    if kind == "bool":
        return str(given).lower() == "true"
    if kind in _NUMBERS:
        return (float if kind == "float64" else lambda text: int(text, 0))(str(given or 0))
    return given if given is not None else {"string": "", "uuid": "A" * 22}.get(kind)


def decode(schemas: Mapping[int, Schema], value: bytes) -> Record:
    """Decodes the record in a value of the metadata log; raises Undecodable for anything else."""
    reader = _Reader(value)
    try:
        frame, key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
        schema = schemas.get(key)
        if frame != FRAME_VERSION or schema is None or version not in schema.versions:
            raise Undecodable(f"a record of frame {frame}, type {key}, version {version}")
        return Record(schema.name, version, reader.struct(schema.fields, version))
    except (struct.error, IndexError, UnicodeDecodeError) as short:
        raise Undecodable(f"a record of {len(value)} bytes is not complete: {short}") from short


@final
class _Reader:
    """Bytes with a read position."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise IndexError(f"{size} bytes are wanted at {self._at}")
        taken, self._at = self._data[self._at : end], end
        return taken

    def struct(self, fields: Sequence[Field], version: int) -> Mapping[str, Value]:
        values: dict[str, Value] = {}
        tags: dict[int, Field] = {}
        for field in fields:
            if version not in field.versions:
                values[field.name] = field.default
            elif field.tag is not None and version in field.tagged:
                tags[field.tag] = field
                values[field.name] = field.default
            else:
                values[field.name] = self._value(field, field.type, version)
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            tagged = tags.get(tag)
            if tagged is None:
                self.take(size)
            else:
                values[tagged.name] = self._value(tagged, tagged.type, version)
        return values

    def _value(self, field: Field, kind: str, version: int) -> Value:
        if kind in _NUMBERS:
            form = f">{_NUMBERS[kind]}"
            return struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if kind == "uuid":
            return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")
        if kind.startswith("[]"):
            count = self.uvarint() - 1
            inner = kind.removeprefix("[]")
            if count < 0:
                return None
            return tuple(self._value(field, inner, version) for _ in range(count))
        if kind in ("string", "bytes"):
            size = self.uvarint() - 1
            if size < 0:
                return None
            return self.take(size).decode() if kind == "string" else self.take(size)
        if version in field.nullable and field.type == kind and self.take(1) != b"\x01":
            return None
        return self.struct(field.fields, version)
