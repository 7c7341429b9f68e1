"""The settings of a node over ZooKeeper: one for which `process.roles` is not set (QC-01).

`inter.broker.protocol` is 1 for the protocol before KIP-380, 2 with broker epochs, 3 with KIP-343's
heartbeats and IsrChange. With `replication.listener.advertised` set to 0, a registration has no
address for other brokers, as by an error of configuration (HB-15).
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import UsageError
from fencepost_clusters.reference.core.node.settings import COMMON, Settings, read_numbers
from fencepost_clusters.reference.legacy.core.policies import HEARTBEATS
from fencepost_clusters.reference.over_zookeeper.core.connect import settings_of

ADVERTISED = "replication.listener.advertised"
DEFAULTS: Mapping[str, int] = {
    **COMMON,
    "broker.heartbeat.interval.ms": 2000,
    "broker.heartbeat.timeout.ms": 20000,
    "controller.heartbeat.timeout.ms": 12000,
    "zookeeper.session.timeout.ms": 18000,
    "inter.broker.protocol": HEARTBEATS,
    ADVERTISED: 1,
}


def names() -> tuple[str, ...]:
    """The names of this plane's integer settings."""
    return tuple(DEFAULTS)


def read(properties: Mapping[str, str]) -> Settings:
    """Settings from properties as in a server's configuration file; raises UsageError."""
    if "process.roles" in properties:
        raise UsageError(
            "process.roles is set, which selects the quorum plane; a node over ZooKeeper must not "
            "set it (QC-01)"
        )
    numbers = read_numbers(properties, DEFAULTS)
    own, controllers = (
        numbers["broker.heartbeat.timeout.ms"],
        numbers["controller.heartbeat.timeout.ms"],
    )
    if own <= controllers:
        raise UsageError(
            f"broker.heartbeat.timeout.ms is {own}: it must be longer than "
            f"controller.heartbeat.timeout.ms, {controllers}, so that the controller declares a "
            f"broker inactive before the broker fences itself (HB-11)"
        )
    if numbers["broker.heartbeat.interval.ms"] >= controllers:
        raise UsageError(
            "broker.heartbeat.interval.ms must be below controller.heartbeat.timeout.ms"
        )
    if not 1 <= numbers["inter.broker.protocol"] <= HEARTBEATS:
        raise UsageError(f"inter.broker.protocol must be 1 to {HEARTBEATS}")
    return settings_of(properties, numbers)
