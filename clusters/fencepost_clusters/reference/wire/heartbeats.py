"""KIP-631's BrokerHeartbeat (50) and ControllerHeartbeat (51), declared as kio declares its own.

The fields before the tagged ones are the seed's, in its order. kio builds codecs from real types,
so this module must not postpone the evaluation of annotations.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 50
    __header_schema__: ClassVar = RequestHeader
    name: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    port: int = field(metadata={"kafka_type": "uint16"})
    security_protocol: int = field(metadata={"kafka_type": "int16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 50
    __header_schema__: ClassVar = RequestHeader
    name: str = field(metadata={"kafka_type": "string"})
    min_level: int = field(metadata={"kafka_type": "int16"})
    max_level: int = field(metadata={"kafka_type": "int16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 50
    __header_schema__: ClassVar = RequestHeader
    target_state: int = field(metadata={"kafka_type": "int8"})
    broker_id: int = field(metadata={"kafka_type": "int32"})
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=-1)
    lease_start_time_ms: int = field(metadata={"kafka_type": "int64"})
    cur_metadata_offset: int = field(metadata={"kafka_type": "int64"})
    listeners: tuple[Listener, ...]
    incarnation_id: uuid.UUID | None = field(
        metadata={"kafka_type": "uuid", "tag": 0}, default=None
    )
    current_state: int = field(metadata={"kafka_type": "int8", "tag": 1}, default=0)
    features: tuple[Feature, ...] = field(metadata={"tag": 2}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 50
    __header_schema__: ClassVar = ResponseHeader
    throttle_time_ms: int = field(metadata={"kafka_type": "int32"}, default=0)
    error_code: int = field(metadata={"kafka_type": "int16"})
    active_controller_id: int = field(metadata={"kafka_type": "int32"})
    next_state: int = field(metadata={"kafka_type": "int8"})
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=-1)
    lease_end_time_ms: int = field(metadata={"kafka_type": "int64"})
    controller_epoch: int = field(metadata={"kafka_type": "int32", "tag": 0}, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeartbeatRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 51
    __header_schema__: ClassVar = RequestHeader
    controller_id: int = field(metadata={"kafka_type": "int32"})
    last_snapshot_offset: int = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeartbeatResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 51
    __header_schema__: ClassVar = ResponseHeader
    throttle_time_ms: int = field(metadata={"kafka_type": "int32"}, default=0)
    error_code: int = field(metadata={"kafka_type": "int16"})
    start_snapshot: bool = field(metadata={"kafka_type": "bool"})
