"""What nodes of a Kafka cluster owe the history, once others have seen that they did it.

One row a kind of event: rules that read its absence name the row (see `fencepost.Owed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from fencepost import NodeStarted, Owed
from fencepost_kafka.events import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    FollowingStarted,
    HeartbeatAnswered,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    MetadataApplied,
    PartitionCommitted,
    ProduceCompleted,
)

_By = Mapping[type[Struct], Callable[[Any], bool]]


# With acks=0 the client has no answer: it counts the write as done once it is sent, so no leader
# needs to have appended anything.
def _acknowledged(body: ProduceCompleted) -> bool:
    return body.outcome == "ok" and body.acks != 0


def _by_all(body: ProduceCompleted) -> bool:
    return body.outcome == "ok" and body.acks == -1


def _unfenced(body: BrokerCommitted) -> bool:
    return not body.fenced


# Without a leader there is no one to follow, and an ISR of one may have no followers that run.
def _replicated(body: PartitionCommitted) -> bool:
    return body.leader >= 0 and len(body.isr) > 1


_PRODUCE: _By = {ProduceCompleted: _acknowledged}
_COMMIT: _By = {ProduceCompleted: _by_all}
_BROKER: _By = {BrokerCommitted: _unfenced}

_IN_ZOOKEEPER_MODE = ("zookeeper",)
"""Its brokers log neither appends nor high watermarks: their disks are read instead."""

APPENDS = Owed(LogAppended, "a produce was acknowledged", _PRODUCE, _IN_ZOOKEEPER_MODE)
LEADERSHIPS = Owed(LeadershipStarted, "a produce was acknowledged", _PRODUCE)
HIGH_WATERMARKS = Owed(
    HighWatermarkAdvanced, "a produce with acks=all was acknowledged", _COMMIT, _IN_ZOOKEEPER_MODE
)
FOLLOWINGS = Owed(
    FollowingStarted, "a partition has an ISR of several", {PartitionCommitted: _replicated}
)
IMAGES = Owed(MetadataApplied, "a broker was unfenced", _BROKER)
HEARTBEATS = Owed(HeartbeatAnswered, "a broker was unfenced", _BROKER)
STATES = Owed(BrokerStateChanged, "a broker was unfenced", _BROKER)
TERMS = Owed(ControllerElected, "a broker was unfenced", _BROKER)
STARTS = Owed(NodeStarted, "a broker was unfenced", _BROKER)

EVERY = (
    *(APPENDS, LEADERSHIPS, HIGH_WATERMARKS, FOLLOWINGS),
    *(IMAGES, HEARTBEATS, STATES, TERMS, STARTS),
)
"""All rows."""
