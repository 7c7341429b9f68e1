"""Administrative requests that librdkafka does not have, sent directly to one broker.

Kafka's own (reassignment, the removal of a broker) come from kio. Rebalance is the reference
cluster's and is declared here as kio declares requests, so annotations must not be postponed. If a
broker cannot be reached, the next one is asked; a request that was sent is not repeated, since its
effect is unknown.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from kio.schema.alter_partition_reassignments.v0 import request as alter
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0 import request as listing
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.serial import entity_reader
from kio.static.constants import EntityType

from fencepost_kafka.clients.commands import (
    AddBrokers,
    DeleteBroker,
    ListReassignments,
    Reassign,
    Rebalance,
)
from fencepost_kafka.confluent.probe import ExchangeResult, exchange, frame_request
from fencepost_kafka.events.values import CallOutcome
from fencepost_kafka.security import Access

RawCommand = Reassign | ListReassignments | DeleteBroker | AddBrokers | Rebalance
RAW = (Reassign, ListReassignments, DeleteBroker, AddBrokers, Rebalance)

# kio's annotations give every number a type of its own, which its own coercion undoes: plain ints
# work.
_ALTER: Any = alter
_LISTING: Any = listing
_UNREGISTER: Any = UnregisterBrokerRequest
_IN_DOUBT = ("REQUEST_TIMED_OUT", "NOT_CONTROLLER", "UNKNOWN_SERVER_ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRequest:
    """To the reference cluster: move replicas to these brokers, or place all again."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 10_001
    __header_schema__: ClassVar = RequestHeader
    timeout: timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    brokers: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceResponse:
    """The number of partitions that are being moved, or why none."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar = 10_001
    __header_schema__: ClassVar = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    moved: int = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a call, in the terms of `AdminCompleted`."""

    api: str
    subject: str
    outcome: CallOutcome
    error: str = ""
    details: tuple[str, ...] = ()
    reason: str = ""


def carry_out(
    command: RawCommand,
    brokers: Sequence[tuple[str, int]],
    client: str,
    limit_s: float,
    access: Access | None = None,
) -> Ended:
    """Sends a command's request to the first broker that accepts it, within the time."""
    api, subject, request, response, details = _build(command, limit_s)
    deadline = time.monotonic() + limit_s
    frame = frame_request(client, 1, request)
    found: list[tuple[str, ...]] = []
    reasons: list[str] = []

    def read(body: bytes) -> ExchangeResult:
        _, at = entity_reader(response.__header_schema__)(body, 0)
        answer, _ = entity_reader(response)(body, at)
        found.append(details(answer))
        refused = next((e for e in _errors(answer) if e[0] is not ErrorCode.none), None)
        if refused is None:
            return ExchangeResult("answered")
        reasons.append(refused[1])
        return ExchangeResult("refused", refused[0].name.upper())

    result = ExchangeResult("timeout")
    for address in brokers:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        result = exchange(address, frame, left_s, read, access)
        if result.outcome != "closed":
            break
    if result.outcome == "answered":
        return Ended(api, subject, "ok", details=found[-1])
    if result.outcome == "refused" and result.error not in _IN_DOUBT:
        return Ended(api, subject, "failed", result.error, reason=reasons[-1])
    why = reasons[-1] if result.outcome == "refused" else ""
    return Ended(api, subject, "unknown", result.error or "_TIMED_OUT", reason=why)


def _errors(answer: Any) -> list[tuple[ErrorCode, str]]:
    """Every error code in an answer, with the message beside it, outermost first."""
    found: list[tuple[ErrorCode, str]] = []
    for name in answer.__dataclass_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append((value, getattr(answer, "error_message", None) or ""))
        elif isinstance(value, tuple):
            found += [e for one in value if hasattr(one, "__flexible__") for e in _errors(one)]
    return found


def _build(
    command: RawCommand, limit_s: float
) -> tuple[str, str, Any, Any, Callable[[Any], tuple[str, ...]]]:
    """The command's name, its subject, its request, its answer's class, and its details."""
    limit = timedelta(seconds=limit_s)

    def nothing(answer: Any) -> tuple[str, ...]:
        return ()

    match command:
        case Reassign():
            topics = tuple(
                _ALTER.ReassignableTopic(
                    name=topic,
                    partitions=(
                        _ALTER.ReassignablePartition(
                            partition_index=partition, replicas=replicas or None
                        ),
                    ),
                )
                for topic, partition, replicas in command.moves
            )
            request = _ALTER.AlterPartitionReassignmentsRequest(timeout=limit, topics=topics)
            subject = ",".join(f"{topic}-{partition}" for topic, partition, _ in command.moves)
            return "reassign", subject, request, AlterPartitionReassignmentsResponse, nothing
        case ListReassignments():
            request = _LISTING.ListPartitionReassignmentsRequest(timeout=limit, topics=None)
            answer = ListPartitionReassignmentsResponse
            return "list_reassignments", "", request, answer, _under_way
        case DeleteBroker():
            request = _UNREGISTER(broker_id=command.broker)
            subject = str(command.broker)
            return "delete_broker", subject, request, UnregisterBrokerResponse, nothing
        case AddBrokers():
            request = RebalanceRequest(timeout=limit, brokers=command.brokers)
            subject = ",".join(map(str, command.brokers))
            return "add_brokers", subject, request, RebalanceResponse, nothing
        case Rebalance():
            request = RebalanceRequest(timeout=limit, brokers=())
            return "rebalance", "", request, RebalanceResponse, nothing


def _under_way(answer: Any) -> tuple[str, ...]:
    return tuple(
        f"{topic.name}-{one.partition_index}" for topic in answer.topics for one in topic.partitions
    )
