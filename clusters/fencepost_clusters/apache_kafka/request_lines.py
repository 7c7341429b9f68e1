"""Makes events of the requests that nodes log with their answers (`kafka.request.logger`), and of
the operations that they refuse (`kafka.authorizer.logger`).

The line of a request comes once the answer is sent. It says how long that took, so it also says
when the request came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from re import Match

import msgspec
from kio.schema.errors import ErrorCode

from fencepost import MS
from fencepost_clusters.apache_kafka.log_lines import Bodies, LogPattern, row
from fencepost_clusters.apache_kafka.log_memory import Memory
from fencepost_kafka import (
    BrokerStateName,
    HeartbeatAnswered,
    OperationRefused,
    ProduceAnswered,
)


class _Header(msgspec.Struct, rename="camel"):
    client_id: str = ""


class _HeartbeatRequest(msgspec.Struct, rename="camel"):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool


class _HeartbeatResponse(msgspec.Struct, rename="camel"):
    error_code: int
    is_fenced: bool
    should_shut_down: bool


class _Heartbeat(msgspec.Struct, rename="camel"):
    request: _HeartbeatRequest
    response: _HeartbeatResponse
    total_time_ms: float


class _WrittenPartition(msgspec.Struct, rename="camel"):
    index: int
    error_code: int
    base_offset: int


class _WrittenTopic(msgspec.Struct, rename="camel"):
    partition_responses: Sequence[_WrittenPartition]
    name: str = ""


class _ProduceResponse(msgspec.Struct, rename="camel"):
    responses: Sequence[_WrittenTopic]


class _ProduceRequest(msgspec.Struct, rename="camel"):
    acks: int


class _Produce(msgspec.Struct, rename="camel"):
    request_header: _Header
    request: _ProduceRequest
    response: _ProduceResponse
    total_time_ms: float


def error_name(code: int) -> str:
    """Kafka's name of an error; its number, if this library does not know it."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)


def _heartbeat(now: Memory, said: Match[str]) -> Bodies:
    heard = msgspec.json.decode(said[1], type=_Heartbeat)
    request, response = heard.request, heard.response
    state: BrokerStateName = "FENCED" if response.is_fenced else "ACTIVE"
    received_ns = now.at_ns - int(heard.total_time_ms * MS)
    yield HeartbeatAnswered(
        client="",
        broker_id=request.broker_id,
        incarnation="",
        request_epoch=request.broker_epoch,
        broker_epoch=request.broker_epoch,
        error=error_name(response.error_code),
        next_state="SHUTDOWN" if response.should_shut_down else state,
        lease_start_ms=0,
        lease_end_ms=0,
        lease_period_ms=now.configured.session_ms,
        controller_epoch=now.active_epoch,
        active_controller=-1,
        active=now.active_epoch >= 0,
        balance_ms=now.configured.balance_ms,
        metadata_offset=request.current_metadata_offset,
        target_state=_target(request),
        received_at_ns=received_ns,
    )


def _target(request: _HeartbeatRequest) -> BrokerStateName:
    if request.want_shut_down:
        return "SHUTDOWN"
    return "FENCED" if request.want_fence else "ACTIVE"


def _produced(now: Memory, said: Match[str]) -> Bodies:
    heard = msgspec.json.decode(said[1], type=_Produce)
    for topic in heard.response.responses:
        for one in topic.partition_responses:
            place = topic.name, one.index
            yield ProduceAnswered(
                topic=topic.name,
                partition=one.index,
                client=heard.request_header.client_id,
                acks=heard.request.acks,
                error=error_name(one.error_code),
                base_offset=one.base_offset,
                log_end=-1,
                leader_epoch=now.epoch_led(place),
                high_watermark=now.marks.get(place, -1),
                isr=(),
                ends=(),
                duplicate=False,
                received_at_ns=now.at_ns - int(heard.total_time_ms * MS),
            )


def _operation_refused(now: Memory, said: Match[str]) -> Bodies:
    # The resource is `Topic:LITERAL:orders`. What is asked for always has a name; patterns are in
    # rules only.
    kind, _, name = said["resource"].split(":", 2)
    yield OperationRefused(
        principal=said["principal"],
        operation=said["operation"],
        resource=f"{kind}:{name}",
        api=said["api"],
        host=said["host"],
    )


REQUEST_ROWS: Sequence[LogPattern] = (
    row("logger", r'^Completed request:(\{.{0,200}"BROKER_HEARTBEAT".*\})', _heartbeat),
    row("logger", r'^Completed request:(\{.{0,200}"PRODUCE".*\})', _produced),
    row(
        "logger",
        r"^Principal = (?P<principal>.+) is Denied operation = (?P<operation>\w+) "
        r"from host = (?P<host>\S+) on resource = (?P<resource>\w+:\w+:.*) "
        r"for request = (?P<api>\w+) with resourceRefCount = ",
        _operation_refused,
    ),
)
"""Requests with their answers, and refusals. The logger `logger` is the end of
`kafka.request.logger` and of `kafka.authorizer.logger`."""
