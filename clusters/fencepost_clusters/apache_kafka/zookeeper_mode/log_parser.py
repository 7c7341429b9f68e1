"""Rows for lines that a broker logs in ZooKeeper mode only.

Here a session with ZooKeeper stands for a lease: a broker is FENCED while it has no registration,
and ACTIVE once it serves clients with one. Versions before KIP-380 name no broker epoch (-1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import Match

from msgspec import Struct

from fencepost import NodeStarted, NodeStopped
from fencepost_clusters.apache_kafka.log_lines import LogPattern, row
from fencepost_clusters.apache_kafka.log_memory import Memory
from fencepost_clusters.apache_kafka.log_parser import (
    BROKER_ROWS,
    becomes,
    recovery_began,
    stopping,
)
from fencepost_clusters.apache_kafka.zookeeper_mode import control_requests
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerRegistered,
    ControlledShutdownAnswered,
    ControllerElected,
    ControllerResigned,
    ControlRequestAnswered,
    ControlRequestSent,
    FollowingStarted,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    RecoveryEnded,
    RequestRefused,
    ResignReason,
)

Bodies = Iterator[Struct]


def _starting(now: Memory, said: Match[str]) -> Bodies:
    yield NodeStarted(role="broker", node_id=now.node_id)
    yield NodeStarted(role="controller", node_id=now.node_id)


def _registered(now: Memory, said: Match[str]) -> Bodies:
    now.broker_epoch = int(said["epoch"] or -1)
    yield BrokerRegistered(
        broker_id=now.node_id,
        broker_epoch=now.broker_epoch,
        session=0,
        version=4 if now.broker_epoch < 0 else 5,
        overwrote=False,
    )
    if now.state == "INITIAL":
        yield becomes(now, "FENCED", "registered")
    else:  # after its session expired; its listeners are open
        yield becomes(now, "ACTIVE", "unfenced")


def _started(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "ACTIVE", "unfenced")
    yield from now.led.values()


def _session_expired(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "FENCED", "lease_expired")


def _shuts_down(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "SHUTDOWN", "shutdown_granted")


def _elected(now: Memory, said: Match[str]) -> Bodies:
    now.active_epoch = int(said[1])
    yield ControllerElected(epoch=now.active_epoch, log_end=-1, last_epoch=-1)


def _resigned(now: Memory, said: Match[str]) -> Bodies:
    if now.active_epoch >= 0:  # every broker that stops, or loses its session, logs this
        reasons: dict[str, ResignReason] = {"SHUTDOWN": "shutdown", "FENCED": "session_lost"}
        reason = reasons.get(now.state, "higher_epoch")
        yield ControllerResigned(epoch=now.active_epoch, reason=reason)
    now.active_epoch = -1


def _found(now: Memory, said: Match[str]) -> Bodies:
    """A controller that was elected knew no broker before."""
    live = _ids(said["live"])
    yield BrokerChangeHandled(
        controller_epoch=now.active_epoch, added=live, deleted=(), bounced=(), live=live
    )


def _compared(now: Memory, said: Match[str]) -> Bodies:
    yield BrokerChangeHandled(
        controller_epoch=now.active_epoch,
        added=_ids(said["added"]),
        deleted=_ids(said["deleted"]),
        bounced=_ids(said["bounced"] or ""),
        live=_ids(said["live"]),
    )


def _sends(now: Memory, said: Match[str]) -> Bodies:
    request = control_requests.sent(said["api"], said["body"])
    yield ControlRequestSent(
        api=request.api,
        broker_id=int(said["broker"]),
        broker_epoch=request.broker_epoch,
        controller_epoch=request.controller_epoch,
        correlation=int(said["early"] or said["late"]),
        partitions=request.partitions,
        attempt=0,
        deletes=request.deletes,
        brokers=request.brokers,
    )


def _answers(now: Memory, said: Match[str]) -> Bodies:
    found = control_requests.answered(said.string)
    if found is None:
        return
    request, error = found.request, found.error
    if request.api == "ControlledShutdown":
        yield ControlledShutdownAnswered(
            client="",
            broker_id=request.broker_id,
            request_epoch=request.broker_epoch,
            known_epoch=-1,
            error=error,
            remaining=found.remaining,
            controller_epoch=now.active_epoch,
        )
        return
    is_first = request.api == "LeaderAndIsr" and error == "NONE" and not now.has_roles
    yield ControlRequestAnswered(
        api=request.api,
        client="",
        broker_id=now.node_id,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        seen_epoch=now.seen_epoch,
        request_epoch=request.broker_epoch,
        broker_epoch=now.broker_epoch,
        error=error,
        partitions=request.partitions,
        first=is_first,
        deletes=request.deletes,
        brokers=request.brokers,
        correlation=found.correlation,
        handled_ns=found.handled_ns,
    )
    if error == "NONE":
        now.has_roles = now.has_roles or is_first
        now.seen_epoch = max(now.seen_epoch, request.controller_epoch)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _stale(now: Memory, said: Match[str]) -> Bodies:
    yield RequestRefused(
        api=said["api"],
        topic="",
        partition=-1,
        client="",
        requester=int(said["requester"]),
        error="STALE_BROKER_EPOCH",
        reason="stale_broker_epoch",
        state="",
    )


def _recovered(now: Memory, said: Match[str]) -> Bodies:
    yield RecoveryEnded(node_id=now.node_id, logs=-1, batches=-1)


def _stopped(now: Memory, said: Match[str]) -> Bodies:
    if not now.stopped:
        now.stopped = True
        yield NodeStopped(reason="shutdown")


def _leads(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    began = LeadershipStarted(
        topic=place[0],
        partition=place[1],
        leader_epoch=int(said["epoch"]),
        isr=(),
        log_start=-1,
        log_end=int(said["end"]),
        high_watermark=-1,
    )
    now.led[place] = began
    now.followed.pop(place, None)
    yield began


def _follows(now: Memory, said: Match[str]) -> Bodies:
    """One line has all partitions that are fetched from one leader."""
    for found in _FETCHED.finditer(said["partitions"]):
        place = found["topic"], int(found["partition"])
        led = now.led.pop(place, None)
        if led is not None:
            yield LeadershipEnded(
                topic=place[0], partition=place[1], leader_epoch=led.leader_epoch, reason="metadata"
            )
        began = FollowingStarted(
            topic=place[0],
            partition=place[1],
            leader=int(said["leader"]),
            leader_epoch=int(found["epoch"]),
            log_end=int(found["end"]),
            high_watermark=-1,
        )
        now.followed[place] = began
        yield began


def _asks(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    old, new = (tuple(map(int, said[name].split(","))) for name in ("old", "new"))
    yield IsrChangeAsked(
        topic=place[0],
        partition=place[1],
        leader_epoch=now.epoch_led(place),
        broker_epoch=now.broker_epoch,
        old_isr=old,
        new_isr=new,
        ends=(-1,) * len(new),
        high_watermark=-1,
        epoch_start=-1,
        lag_ns=0,
    )


_FETCHED = re.compile(
    r"(?P<topic>[\w.-]+)-(?P<partition>\d+) -> \(offset=(?P<end>\d+), leaderEpoch=(?P<epoch>\d+)\)"
)
_PREFIXED = r"\[Partition (?P<topic>\S+)-(?P<partition>\d+) broker=\d+\] "

OWN_ROWS: Sequence[LogPattern] = (
    row("KafkaServer", r"^starting$", _starting),
    row("KafkaZkClient",
        r"Registered broker \d+ at path /brokers/ids/\d+"
        r"(?:.* czxid \(broker epoch\): (?P<epoch>\d+))?", _registered),
    row("KafkaServer", r"^\[KafkaServer id=\d+\] started$", _started),
    row("ZooKeeperClient", r"\[ZooKeeperClient[^]]*\] Session expired\.$", _session_expired),
    row("KafkaServer", r"Controlled shutdown (?:request returned successfully|succeeded)",
        _shuts_down),
    row("KafkaController",
        r"\d+ successfully elected as the controller\. Epoch incremented to (\d+)", _elected),
    row("KafkaController", r"^\[Controller id=\d+\] Resigned$", _resigned),
    row("KafkaController", r"Currently active brokers in the cluster: \w*\((?P<live>.*)\)$",
        _found),
    row("KafkaController",
        r"Newly added brokers: (?P<added>[\d,]*), deleted brokers: (?P<deleted>[\d,]*), "
        r"(?:bounced brokers: (?P<bounced>[\d,]*), )?all live brokers: (?P<live>[\d,]*)$",
        _compared),
    row("KafkaServer", r"Starting controlled shutdown$", stopping),
    row("NetworkClient",
        r"^\[Controller id=\d+, targetBrokerId=(?P<broker>\d+)\] "
        r"(?:Sending|Using older server API v\d+ to send) "
        r"(?P<api>LEADER_AND_ISR|STOP_REPLICA|UPDATE_METADATA) "
        r"(?:request with header .*?correlationId=(?P<late>\d+).*? to node \d+: )?"
        r"(?P<body>.*?)(?: with correlation id (?P<early>\d+) to node \d+)?$", _sends),
    row("logger", r"^Completed request:", _answers),
    row("KafkaApis",
        r"Received (?P<api>\w+) request with broker epoch \d+ smaller than the current broker "
        r"epoch \d+ from controller (?P<requester>\d+)", _stale),
)  # fmt: skip
"""Lines of these brokers that brokers in KRaft mode do not print."""

EARLY_ROWS: Sequence[LogPattern] = (
    row("LogManager", r"Loading logs\.$", recovery_began),
    row("LogManager", r"Logs loading complete in", _recovered),
    row("KafkaServer", r"^\[KafkaServer id=\d+\] shut down completed$", _stopped),
    row("Partition",
        rf"{_PREFIXED}\S+ starts at Leader Epoch (?P<epoch>\d+) from offset (?P<end>\d+)\.",
        _leads),
    row("ReplicaFetcherManager",
        r"Added fetcher to broker BrokerEndPoint\(id=(?P<leader>\d+), .*?\) for partitions "
        r"Map\((?P<partitions>.*)\)$", _follows),
    row("Partition", rf"{_PREFIXED}(?:Expanding|Shrinking) ISR from (?P<old>[\d,]+) to "
        r"(?P<new>[\d,]+)$", _asks),
)  # fmt: skip
"""Lines that Kafka 2 prints instead of some of those."""

TABLE: Sequence[LogPattern] = (*OWN_ROWS, *BROKER_ROWS)
EARLY_TABLE: Sequence[LogPattern] = (
    *OWN_ROWS,
    *EARLY_ROWS,
    *(one for one in BROKER_ROWS if one.logger == "LoggingSignalHandler"),
)


def table(version: str) -> Sequence[LogPattern]:
    """The rows of a version of Kafka."""
    return EARLY_TABLE if version.startswith("2.") else TABLE
