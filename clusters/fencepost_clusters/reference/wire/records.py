"""KIP-631's metadata records: type, version, payload, and additions to its eight types.

A record has a null key; its value is an unsigned varint for the type, one for the version, and the
payload in Kafka's flexible encoding. Tagged fields hold data for which the seed has no fields: the
fenced state and the incarnation (a fence must survive a failover), and in snapshots a
registration's past. Topic settings are in ConfigRecord. An unknown tagged field is skipped. From
level 2 of the feature metadata.format on, BrokerRecord is written in version 1, in which the data
that every broker has are plain fields. kio builds codecs from real types, so this module must not
postpone the evaluation of annotations.
"""

import io
import uuid
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from kio.serial import entity_reader, entity_writer
from kio.serial.writers import write_unsigned_varint
from kio.static.constants import EntityType

from fencepost_clusters.reference.wire import guard


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPoint:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    port: int = field(metadata={"kafka_type": "uint16"})
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    broker_id: int = field(metadata={"kafka_type": "int32"})
    broker_epoch: int = field(metadata={"kafka_type": "int64"})
    end_points: tuple[EndPoint, ...]
    rack: str | None = field(metadata={"kafka_type": "string"}, default=None)
    fenced: bool = field(metadata={"kafka_type": "bool", "tag": 0}, default=False)
    incarnation_id: uuid.UUID | None = field(
        metadata={"kafka_type": "uuid", "tag": 1}, default=None
    )
    registered_at: int = field(metadata={"kafka_type": "int64", "tag": 2}, default=-1)
    superseded: tuple[uuid.UUID | None, ...] = field(
        metadata={"kafka_type": "uuid", "tag": 3}, default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecordV1:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 1
    __flexible__: ClassVar[bool] = True
    broker_id: int = field(metadata={"kafka_type": "int32"})
    broker_epoch: int = field(metadata={"kafka_type": "int64"})
    end_points: tuple[EndPoint, ...]
    rack: str | None = field(metadata={"kafka_type": "string"}, default=None)
    fenced: bool = field(metadata={"kafka_type": "bool"})
    incarnation_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    registered_at: int = field(metadata={"kafka_type": "int64", "tag": 2}, default=-1)
    superseded: tuple[uuid.UUID | None, ...] = field(
        metadata={"kafka_type": "uuid", "tag": 3}, default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    deleting: bool = field(metadata={"kafka_type": "bool"}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"})
    isr: tuple[int, ...] = field(metadata={"kafka_type": "int32"})
    removing_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    adding_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    leader: int = field(metadata={"kafka_type": "int32"}, default=-1)
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    resource_type: int = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    name: str = field(metadata={"kafka_type": "string"})
    value: str = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChangeRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    isr: tuple[int, ...] = field(metadata={"kafka_type": "int32"})
    leader: int = field(metadata={"kafka_type": "int32"}, default=-1)
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    resource_type: int = field(metadata={"kafka_type": "int8"})
    resource_name: str | None = field(metadata={"kafka_type": "string"})
    pattern_type: int = field(metadata={"kafka_type": "int8"})
    principal: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    operation: int = field(metadata={"kafka_type": "int8"})
    permission_type: int = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBrokerRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    id: int = field(metadata={"kafka_type": "int32"})
    incarnation_id: uuid.UUID | None = field(
        metadata={"kafka_type": "uuid", "tag": 0}, default=None
    )
    superseded: tuple[uuid.UUID | None, ...] = field(
        metadata={"kafka_type": "uuid", "tag": 1}, default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRecord:
    """The seed calls the field Name and types it uuid: it is the topic's id."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    name: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})


Record = (
    BrokerRecord | TopicRecord | PartitionRecord | ConfigRecord | IsrChangeRecord
    | AccessControlRecord | DeleteBrokerRecord | DeleteTopicRecord
)  # fmt: skip

TYPES: tuple[type[Record], ...] = (
    BrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    IsrChangeRecord,
    AccessControlRecord,
    DeleteBrokerRecord,
    DeleteTopicRecord,
)
"""By KIP-631's type number."""

TYPE_OF = {cls: number for number, cls in enumerate(TYPES)}


MAX_LEVEL = 2
"""The highest level of metadata.format that this software writes and reads."""


class UnknownRecord(ValueError):
    """A metadata record of a type or version this software does not know (QC-10)."""


def version_at(kind: type[Record], level: int) -> int:
    """The version in which a kind of record is written at a level of metadata.format."""
    return 1 if kind is BrokerRecord and level >= 2 else 0


def with_past(record: BrokerRecord, registered_at: int, superseded: Any) -> BrokerRecord:
    """A broker's record for a snapshot, with the relevant content of its earlier records."""
    return replace(record, registered_at=registered_at, superseded=superseded)


def encode(record: Record, level: int = 1) -> bytes:
    """The value of a metadata record, in the version of that level of metadata.format."""
    buffer = io.BytesIO()
    kind: Any = type(record)
    version = version_at(kind, level)
    write_unsigned_varint(buffer, TYPE_OF[kind])  # type: ignore[arg-type]
    write_unsigned_varint(buffer, version)  # type: ignore[arg-type]
    schema = _schema(kind, version)
    entity_writer(schema)(buffer, record if schema is kind else _fields(record, schema))
    return buffer.getvalue()


def decode(value: bytes) -> Record:
    """The record of a value; raises UnknownRecord for a type or version that is not known, or for
    bytes that are no such record."""
    number, at = _varint(value, 0)
    version, at = _varint(value, at)
    if number >= len(TYPES):
        raise UnknownRecord(f"metadata record type {number} is not known")
    kind: Any = TYPES[number]
    if version > version_at(kind, MAX_LEVEL):
        raise UnknownRecord(f"version {version} of {kind.__name__} is not known")
    schema = _schema(kind, version)
    try:
        entity = entity_reader(schema)(guard.known_part(schema, value[at:]), 0)[0]
    except Exception as error:  # kio raises four exceptions of its own, and ValueError and KeyError
        raise UnknownRecord(f"{kind.__name__} cannot be read: {error!r}") from error
    record: Record = entity if schema is kind else _fields(entity, kind)
    return record


def version_of(value: bytes) -> int:
    """The version in which a record's value is written."""
    return _varint(value, _varint(value, 0)[1])[0]


def _schema(kind: Any, version: int) -> Any:
    return BrokerRecordV1 if kind is BrokerRecord and version == 1 else kind


def _fields(source: Any, target: Any) -> Any:
    return target(**{one.name: getattr(source, one.name) for one in fields(target)})


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(at, min(at + 5, len(data))):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value, index + 1
        shift += 7
    raise UnknownRecord("the value does not begin with two varints")
