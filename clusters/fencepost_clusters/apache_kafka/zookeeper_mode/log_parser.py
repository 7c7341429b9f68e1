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
from fencepost_clusters.apache_kafka.log_parser import (
    BROKER_ROWS,
    LogPattern,
    Memory,
    becomes,
    recovery_began,
    row,
)
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
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
