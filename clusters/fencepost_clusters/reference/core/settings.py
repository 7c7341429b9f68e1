"""A node's settings, read from Kafka's dotted names; times are milliseconds unless they say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost import UsageError

Address = tuple[str, int]

CLIENT_LISTENER = "CLIENT"
REPLICATION_LISTENER = "REPLICATION"
CONTROLLER_LISTENER = "CONTROLLER"

_DEFAULTS: Mapping[str, int] = {
    "registration.heartbeat.interval.ms": 2000,
    "registration.lease.timeout.ms": 20000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "replica.lag.time.max.ms": 30000,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.max.bytes": 1048576,
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "request.timeout.ms": 2000,
    "min.insync.replicas": 1,
    "log.segment.bytes": 1073741824,
    "message.max.bytes": 1048588,
    "num.partitions": 1,
    "default.replication.factor": 1,
    "controlled.shutdown.timeout.ms": 30000,
    "metadata.max.lag.records": 1000,
}
TOPIC_SETTINGS = ("min.insync.replicas",)
"""What a topic may set for itself; anything else is refused with INVALID_CONFIG."""


@dataclass(frozen=True, slots=True)
class Settings:
    """See the module. `voters` maps each controller's id to its address by name."""

    node_id: int
    roles: frozenset[str]
    voters: Mapping[int, Address]
    cluster_id: str
    numbers: Mapping[str, int]

    def ms(self, name: str) -> int:
        """A whole-number setting by its dotted name."""
        return self.numbers[name]

    def ns(self, name: str) -> int:
        """A time in nanoseconds."""
        return self.numbers[name] * 1_000_000

    @property
    def listeners(self) -> frozenset[str]:
        """The listeners that a process of these roles serves."""
        served = {CONTROLLER_LISTENER} if "controller" in self.roles else set()
        if "broker" in self.roles:
            served |= {CLIENT_LISTENER, REPLICATION_LISTENER}
        return frozenset(served)

    @property
    def lease_ms(self) -> int:
        return self.numbers["registration.lease.timeout.ms"]

    @property
    def heartbeat_ms(self) -> int:
        return self.numbers["registration.heartbeat.interval.ms"]


def names() -> tuple[str, ...]:
    """Every whole-number setting that exists."""
    return tuple(_DEFAULTS)


def read(properties: Mapping[str, str]) -> Settings:
    """Settings from properties as in a server's configuration file; raises UsageError.

    `process.roles` must be there (QC-24): this is the quorum plane.
    """
    roles = frozenset(r.strip() for r in properties.get("process.roles", "").split(",") if r)
    if not roles or not roles <= {"broker", "controller"}:
        raise UsageError("process.roles must be broker, controller, or broker,controller")
    if len(roles) > 1:
        raise UsageError("a broker and a controller in one process are not supported yet")
    id_name = "controller.id" if roles == {"controller"} else "broker.id"
    numbers = dict(_DEFAULTS)
    for name, value in properties.items():
        if name in numbers:
            numbers[name] = _number(name, value)
    node_id = _number(id_name, properties.get(id_name, ""))
    voters = _voters(properties.get("controller.connect", ""))
    if "controller" in roles and node_id not in voters:
        raise UsageError(f"controller.id {node_id} is not among controller.connect")
    if "broker" in roles and node_id in voters:
        raise UsageError(f"broker.id {node_id} is a controller's id")
    if numbers["registration.heartbeat.interval.ms"] >= numbers["registration.lease.timeout.ms"]:
        raise UsageError("registration.heartbeat.interval.ms must be below the lease")
    return Settings(node_id, roles, voters, properties.get("cluster.id", "fencepost"), numbers)


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise UsageError(f"{name} must be a non-negative whole number, not {value!r}")
    return int(value)


def _voters(text: str) -> dict[int, Address]:
    voters: dict[int, Address] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        node, at, address = entry.partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host):
            raise UsageError(f"controller.connect wants id@host:port, not {entry!r}")
        voters[_number("controller.connect", node)] = (host, _number("controller.connect", port))
    if not voters:
        raise UsageError("controller.connect names no controller")
    return voters
