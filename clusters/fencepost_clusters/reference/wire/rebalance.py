"""This cluster's own administrative request, declared as kio declares its own: rebalance.

Its key is beyond Kafka's, and no listener advertises it. kio builds codecs from real types, so this
module must not postpone the evaluation of annotations.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType

KEY = 10_001


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = KEY
    __header_schema__: ClassVar = RequestHeader
    timeout: timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    brokers: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = KEY
    __header_schema__: ClassVar = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    moved: int = field(metadata={"kafka_type": "int32"})
