"""A node's settings, read from Kafka's dotted names; times are milliseconds unless noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from fencepost import UsageError, no_such
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.core.node.rights import read as read_rights
from fencepost_clusters.reference.wire import records as r

Address = tuple[str, int]

NodeRole = Literal["broker", "controller"]
ROLES: tuple[NodeRole, ...] = get_args(NodeRole)
MAX_ID: Final = (1 << 31) - 1
CLIENT_LISTENER = "CLIENT"
"""For clients. Further ones of this kind, for programs of a user's, have names such as
`CLIENT/billing-1`."""
REPLICATION_LISTENER = "REPLICATION"
CONTROLLER_LISTENER = "CONTROLLER"

COMMON: Mapping[str, int] = {
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
    "leader.imbalance.check.interval.ms": 5000,
    "auto.leader.rebalance.enable": 1,
    "clock.offset.ms": 0,
}
"""The settings of every plane, with their defaults."""
_DEFAULTS: Mapping[str, int] = {
    **COMMON,
    "registration.heartbeat.interval.ms": 2000,
    "registration.lease.timeout.ms": 20000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "metadata.max.lag.records": 1000,
    "metadata.snapshot.interval.records": 10000,
    "metadata.snapshot.slice.records": 500,
    "metadata.format.level": 1,
    "metadata.format.max.level": r.MAX_LEVEL,
}
_SIGNED = ("clock.offset.ms",)
"""The offset of a node's wall clock, for tests; it may be negative."""


def kind_of(listener: str) -> str:
    """The kind of a listener, by which requests are served: `CLIENT` for `CLIENT/billing-1`."""
    return listener.partition("/")[0]


SWITCHES = ("auto.leader.rebalance.enable", "replication.listener.advertised")
"""The numbers that are 1 for true and 0 for false. Either may be written."""
_SWITCHED = {"true": 1, "false": 0, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See the module. `node_id` is the id in the role that these settings are for (`for_role`).

    `voters` maps each controller's id to its address by name, as configured; a broker may be given
    addresses without ids. `bootstrap` are all addresses of controller.connect.
    """

    node_id: int
    roles: frozenset[str]
    ids: Mapping[str, int]
    voters: Mapping[int, Address]
    bootstrap: tuple[Address, ...]
    cluster_id: str
    numbers: Mapping[str, int]
    rights: Rights = field(default_factory=Rights)
    zookeeper: tuple[Address, ...] = ()
    """The servers of ZooKeeper, in the plane over it; every path is below `chroot`."""
    chroot: str = ""
    plane: str = ""
    """`classic` for a node of the plane without a controller."""

    def for_role(self, role: NodeRole) -> Settings:
        """The settings of one of the nodes of a process."""
        return replace(self, node_id=self.ids[role], roles=frozenset({role}))

    def effective(self) -> dict[str, str]:
        """Every setting by its dotted name, as text."""
        numbers = {name: str(number) for name, number in self.numbers.items()}
        if self.zookeeper:
            servers = ",".join(f"{host}:{port}" for host, port in self.zookeeper)
            connect = f"{servers}{self.chroot}"
            plane = {"control.plane": self.plane} if self.plane else {}
            one = {"zookeeper.connect": connect, "broker.id": str(self.node_id)}
            return {**plane, **one, **numbers}
        return {
            "process.roles": ",".join(sorted(self.roles)),
            **{f"{role}.id": str(node) for role, node in self.ids.items()},
            "controller.connect": ",".join(f"{host}:{port}" for host, port in self.bootstrap),
            "cluster.id": self.cluster_id,
            **numbers,
        }

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

    This is the quorum plane: it refuses legacy mode, which is an unset `process.roles` (QC-01).
    Properties of other software, such as a client's, are not refused.
    """
    roles = _roles(properties.get("process.roles"))
    numbers = read_numbers(properties, _DEFAULTS)
    _check_metadata(numbers)
    ids = {role: node_id(f"{role}.id", properties.get(f"{role}.id")) for role in sorted(roles)}
    voters, bootstrap = _connect(properties.get("controller.connect", ""), ids.get("controller"))
    if "controller" in roles:
        _check_controller(ids["controller"], properties.get("controller.listeners"), voters)
    if "broker" in roles and ids["broker"] in {*voters, ids.get("controller")}:
        raise UsageError(
            f"broker.id {ids['broker']} is a controller's id: brokers and controllers share one "
            f"space of ids"
        )
    if numbers["registration.heartbeat.interval.ms"] >= numbers["registration.lease.timeout.ms"]:
        raise UsageError("registration.heartbeat.interval.ms must be below the lease")
    first_id = ids["broker"] if "broker" in roles else ids["controller"]
    cluster_id = properties.get("cluster.id", "fencepost")
    rights = read_rights(properties)
    return Settings(
        node_id=first_id,
        roles=roles,
        ids=ids,
        voters=voters,
        bootstrap=bootstrap,
        cluster_id=cluster_id,
        numbers=numbers,
        rights=rights,
    )


def read_numbers(properties: Mapping[str, str], defaults: Mapping[str, int]) -> dict[str, int]:
    """The whole-number settings of a plane; raises UsageError for one that is none, and for a
    time of 0, with which a node would do nothing else."""
    numbers = dict(defaults)
    for name, value in properties.items():
        if name in numbers:
            if name in SWITCHES:
                numbers[name] = _switch(name, value)
            else:
                numbers[name] = number(name, value, name in _SIGNED)
            if name.endswith(".ms") and name not in _SIGNED and not numbers[name]:
                raise UsageError(f"{name} must be at least 1")
    return numbers


def _switch(name: str, value: str) -> int:
    if value not in _SWITCHED:
        raise UsageError(f"{name} must be true or false, not {value!r}")
    return _SWITCHED[value]


def _check_metadata(numbers: Mapping[str, int]) -> None:
    if not 1 <= numbers["metadata.format.level"] <= r.MAX_LEVEL:
        raise UsageError(f"metadata.format.level must be 1 to {r.MAX_LEVEL}")
    if numbers["metadata.snapshot.slice.records"] < 1:
        raise UsageError("metadata.snapshot.slice.records must be at least 1")


def _roles(text: str | None) -> frozenset[str]:
    if text is None:
        raise UsageError(
            "process.roles is not set, which means legacy mode; in this plane it must be broker, "
            "controller, or broker,controller"
        )
    named = [part.strip() for part in text.split(",")]
    for name in named:
        if name not in ROLES:
            raise no_such("role in process.roles", name, ROLES)
    if len(set(named)) != len(named):
        raise UsageError(f"process.roles names a role twice: {text}")
    return frozenset(named)


def node_id(name: str, value: str | None) -> int:
    """A node id; ids are never assigned automatically (QC-03)."""
    if value is None:
        raise UsageError(f"{name} must be set: ids are not assigned automatically")
    found = number(name, value)
    if found > MAX_ID:
        raise UsageError(f"{name} is a 32-bit id: {value} is more than {MAX_ID}")
    return found


def _check_controller(node_id: int, listeners: str | None, voters: Mapping[int, Address]) -> None:
    if not listeners:
        raise UsageError("controller.listeners must name the controller's listener")
    for name in (part.strip() for part in listeners.split(",")):
        if name != CONTROLLER_LISTENER:
            raise no_such("controller listener", name, (CONTROLLER_LISTENER,))
    if not voters:
        raise UsageError("a controller's controller.connect wants id@host:port, not host:port")


def number(name: str, value: str, signed: bool = False) -> int:
    """A whole number; raises UsageError."""
    if not (value.removeprefix("-") if signed else value).isdecimal():
        raise UsageError(f"{name} must be a non-negative whole number, not {value!r}")
    return int(value)


def _connect(text: str, controller: int | None) -> tuple[dict[int, Address], tuple[Address, ...]]:
    """The voters by id, if ids are given, and every address; one valid address is enough (QC-05).

    A controller must know all the others, so for it every address must be valid.
    """
    voters: dict[int, Address] = {}
    addresses: list[Address] = []
    wrong: UsageError | None = None
    for entry in filter(None, (part.strip() for part in text.split(","))):
        try:
            node, address = _controller_uri(entry)
        except UsageError as error:
            wrong = wrong or error
            continue
        # The same entry twice does no harm, but one id cannot have two addresses.
        if node is not None and voters.setdefault(node, address) != address:
            raise UsageError(f"controller.connect has id {node} twice")
        addresses.append(address)
    if wrong is not None and (controller is not None or not addresses):
        raise wrong
    if not addresses:
        raise UsageError("controller.connect names no controller")
    return voters, tuple(addresses)


def _controller_uri(entry: str) -> tuple[int | None, Address]:
    node, at, address = entry.rpartition("@")
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"controller.connect wants id@host:port or host:port, not {entry!r}")
    return (node_id("controller.connect", node) if at else None), (host, int(port))
