"""Control requests as brokers in ZooKeeper mode print them, read from one line of a log.

A controller prints each that it sends (`NetworkClient`), with the number of the request. A broker
prints each that it has answered (`kafka.request.logger`), with the answer's error. Kafka 2 prints
the fields of the message, `{controller_id=1,..}`. Kafka 3 prints `..Data(controllerId=1, ..)` for
one that it sends, and JSON for one that it answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from re import Match, Pattern
from typing import Any

import msgspec

from fencepost import MS

APIS = {
    "LEADER_AND_ISR": "LeaderAndIsr",
    "STOP_REPLICA": "StopReplica",
    "UPDATE_METADATA": "UpdateMetadata",
    "CONTROLLED_SHUTDOWN": "ControlledShutdown",
}
_ERRORS = {
    0: "NONE",
    8: "BROKER_NOT_AVAILABLE",
    11: "STALE_CONTROLLER_EPOCH",
    41: "NOT_CONTROLLER",
    77: "STALE_BROKER_EPOCH",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """One request. `partitions` are named topic-partition; `brokers` are those that an
    UpdateMetadata names. A broker epoch that the version does not have is -1."""

    api: str
    controller_id: int
    controller_epoch: int
    broker_id: int
    broker_epoch: int
    partitions: tuple[str, ...]
    deletes: bool
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A request that a broker has answered, its number, and the error of the answer. `remaining`
    are the partitions that the sender of a ControlledShutdown leads still. `handled_ns` passed
    from when the broker began to work on it until this line."""

    request: ControlRequest
    correlation: int
    error: str
    remaining: tuple[str, ...]
    handled_ns: int


_NUMBER = r"(-?\d+)"
_EARLY_PLACE = re.compile(r"\{topic=(?P<topic>[\w.-]+),partition=(?P<partition>\d+)[,}]")
_LATE_PLACE = re.compile(r"topicName='(?P<topic>[^']+)'|partitionIndex=(?P<partition>\d+)")
_EARLY_BROKER = re.compile(rf"\{{id={_NUMBER},end_points=")
_LATE_BROKER = re.compile(rf"UpdateMetadataBroker\(id={_NUMBER}")
_EARLY_ANSWER = re.compile(
    r"^Completed request:RequestHeader\(apiKey=(?P<api>\w+), apiVersion=\d+, clientId=[^,]*, "
    r"correlationId=(?P<correlation>\d+)\) -- (?P<body>.*?),response:(?P<answer>.*) from connection"
)
_EARLY_TIMES = re.compile(r",totalTime:(?P<total>[\d.]+),requestQueueTime:(?P<queue>[\d.]+),")
_EARLY_ERROR = re.compile(rf"^\{{(?:throttle_time_ms=\d+,)?error_code={_NUMBER}")


def sent(api: str, body: str) -> ControlRequest:
    """The request that a controller is about to send, in the words of either version."""
    early = body.startswith("{")
    return ControlRequest(
        api=APIS[api],
        controller_id=_field(body, "controller_id", "controllerId"),
        controller_epoch=_field(body, "controller_epoch", "controllerEpoch"),
        broker_id=_field(body, "broker_id", "brokerId"),
        broker_epoch=_field(body, "broker_epoch", "brokerEpoch"),
        partitions=_places((_EARLY_PLACE if early else _LATE_PLACE).finditer(body)),
        deletes=re.search(r"delete_?[pP]artitions?=true", body) is not None,
        brokers=_ids(_EARLY_BROKER if early else _LATE_BROKER, body),
    )


def answered(message: str) -> Answered | None:
    """The request of a line of the request logger; None for a line of another kind."""
    found = _EARLY_ANSWER.match(message)
    if found is None:
        _, _, text = message.partition("Completed request:")
        return _from_json(text) if text.startswith("{") else None
    answer = found["answer"]
    error, times = _EARLY_ERROR.match(answer), _EARLY_TIMES.search(message)
    return Answered(
        request=sent(found["api"], found["body"]),
        correlation=int(found["correlation"]),
        error=_named(int(error[1])) if error is not None else "UNKNOWN",
        remaining=_places(_EARLY_PLACE.finditer(answer)),
        handled_ns=_handled_ns(times["total"], times["queue"]) if times is not None else 0,
    )


def _from_json(text: str) -> Answered:
    read = msgspec.json.decode(text)
    header, body, answer = read["requestHeader"], read["request"], read["response"]
    return Answered(
        request=ControlRequest(
            api=APIS[header["requestApiKeyName"]],
            controller_id=body.get("controllerId", -1),
            controller_epoch=body.get("controllerEpoch", -1),
            broker_id=body.get("brokerId", -1),
            broker_epoch=body.get("brokerEpoch", -1),
            partitions=tuple(_json_places(body)),
            deletes=body.get("deletePartitions", False) or _any_deleted(body),
            brokers=tuple(one["id"] for one in body.get("liveBrokers", ())),
        ),
        correlation=header["correlationId"],
        error=_named(answer.get("errorCode", 0)),
        remaining=tuple(
            f"{one['topicName']}-{one['partitionIndex']}"
            for one in answer.get("remainingPartitions", ())
        ),
        handled_ns=_handled_ns(read.get("totalTimeMs", 0), read.get("requestQueueTimeMs", 0)),
    )


def _handled_ns(total_ms: str | float, queue_ms: str | float) -> int:
    """The time since a request left the queue, from what Kafka prints in milliseconds."""
    return int((float(total_ms) - float(queue_ms)) * MS)


def _json_places(body: dict[str, Any]) -> Iterator[str]:
    for name in ("ungroupedPartitionStates", "ungroupedPartitions"):
        for one in body.get(name, ()):
            yield f"{one['topicName']}-{one['partitionIndex']}"
    for topic in body.get("topicStates", ()):
        for one in topic["partitionStates"]:
            yield f"{topic['topicName']}-{one['partitionIndex']}"
    for topic in body.get("topics", ()):
        for index in topic["partitionIndexes"]:
            yield f"{topic['name']}-{index}"


def _any_deleted(body: dict[str, Any]) -> bool:
    return any(
        one.get("deletePartition", False)
        for topic in body.get("topicStates", ())
        for one in topic["partitionStates"]
    )


def _field(body: str, *names: str) -> int:
    found = re.search(rf"\b(?:{'|'.join(names)})={_NUMBER}", body)
    return int(found[1]) if found is not None else -1


def _places(found: Iterable[Match[str]]) -> tuple[str, ...]:
    """A topic is named before its partitions, once for all or once for each."""
    topic, places = "", []
    for one in found:
        topic = one["topic"] or topic
        if one["partition"] is not None:
            places.append(f"{topic}-{one['partition']}")
    return tuple(places)


def _ids(pattern: Pattern[str], body: str) -> tuple[int, ...]:
    return tuple(int(one) for one in pattern.findall(body))


def _named(code: int) -> str:
    return _ERRORS.get(code, f"error {code}")
