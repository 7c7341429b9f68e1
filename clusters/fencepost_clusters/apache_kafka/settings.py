"""The configuration of a Kafka node, and Kafka's names for the reference cluster's settings.

Tests use the reference's names. A setting with another name in Kafka is renamed; one that Kafka
does not have makes a test not applicable; every other name is Kafka's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fencepost import NotApplicable, Shape, UsageError

SUITE_SETTINGS: Mapping[str, str] = {
    # Leases, the quorum and replication are as quick as the reference's.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.request.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "auto.create.topics.enable": "false",
    # So that each node takes snapshots in a run of a minute.
    "metadata.log.max.record.bytes.between.snapshots": "8192",
    # A cut link neither answers nor closes, so clients must give up before it heals.
    "controller.socket.timeout.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    # A broker that cannot register ends by itself after this time, and an end that no fault caused
    # cuts a run short. Schedules may keep controllers from electing one for over a minute.
    "initial.broker.registration.timeout.ms": "3600000",
    # Small, since many nodes share a machine.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.segment.bytes": "1048576",
    "num.network.threads": "1",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings that suites run with unless a test sets others; Kafka's defaults are slower."""

RENAMED: Mapping[str, str] = {
    "registration.heartbeat.interval.ms": "broker.heartbeat.interval.ms",
    "registration.lease.timeout.ms": "broker.session.timeout.ms",
}
UNKNOWN = frozenset(
    {
        "broker.id",
        "cluster.id",
        "controlled.shutdown.timeout.ms",
        "controller.id",
        "controller.listeners",
        "metadata.format.level",
        "metadata.format.max.level",
        "metadata.max.lag.records",
        "metadata.snapshot.interval.records",
        "metadata.snapshot.slice.records",
        "process.roles",
        "sasl.enabled.mechanisms",
    }
)
"""The reference's own settings. Roles and ids exist in Kafka too, but the layout defines them."""
BOOTSTRAP = "controller.quorum.bootstrap.servers"
"""The addresses of controllers that a node asks first. It reads the voters in the metadata log."""
FIXED = frozenset(
    {
        "node.id",
        "controller.connect",
        BOOTSTRAP,
        "controller.quorum.voters",
        "controller.listener.names",
        "listener.security.protocol.map",
        "listeners",
        "advertised.listeners",
        "inter.broker.listener.name",
        "log.dir",
        "log.dirs",
    }
)
"""What the layout of a cluster sets for each node. A cluster's own value would not be used, though
its run recorded it; that of a single node is."""
_SWITCHES: Mapping[str, str] = {"0": "false", "1": "true", "false": "false", "true": "true"}
_REBALANCES = "auto.leader.rebalance.enable"
_BALANCE_MS = "leader.imbalance.check.interval.ms"
_SEGMENT = "log.segment.bytes"
_LEAST_SEGMENT = 1 << 20
"""Kafka 4 accepts no smaller one."""
_NUMBERS = frozenset(
    {*(name for name, value in SUITE_SETTINGS.items() if value.isdecimal()), _BALANCE_MS}
)
"""The settings that are whole numbers."""
_MAY_BE_NONE = frozenset(
    {
        "controller.quorum.election.backoff.max.ms",
        "group.initial.rebalance.delay.ms",
        "replica.fetch.wait.max.ms",
    }
)
"""Those that may be 0."""
_MOST, _MOST_LONG = (1 << 31) - 1, (1 << 63) - 1
_LONG = frozenset(
    {"log.cleaner.dedupe.buffer.size", "metadata.log.max.record.bytes.between.snapshots"}
)
"""Numbers of 64 bits. Of what counts milliseconds, none needs more than 32."""


def check(shape: Shape) -> None:
    """Raises UsageError for a setting that the layout of a cluster sets itself, or for a value that
    makes no sense, NotApplicable for what Kafka does not have."""
    check_fixed(shape, FIXED)
    for own in shape.own.values():
        given(own)
    read = {**SUITE_SETTINGS, **given(shape.settings)}
    heartbeat, lease = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    if int(read[heartbeat]) >= int(read[lease]):
        raise UsageError(
            f"{heartbeat} is {read[heartbeat]}: it must be below {lease}, {read[lease]}"
        )


def check_fixed(shape: Shape, fixed: Collection[str]) -> None:
    """Raises UsageError for a setting of all nodes that is one of those."""
    for name in shape.settings:
        if name in fixed:
            raise UsageError(f"the layout of a cluster sets {name!r} for each node: leave it out")


def number(name: str, value: str) -> int:
    """A whole number; raises UsageError for any other value, and for one that makes no sense."""
    least, most = 0 if name in _MAY_BE_NONE else 1, _MOST_LONG if name in _LONG else _MOST
    digits = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if not digits or not least <= int(value) <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return int(value)


def given(settings: Mapping[str, str]) -> dict[str, str]:
    """A test's settings under Kafka's names; raises NotApplicable for what Kafka does not have, and
    UsageError for a value that makes no sense."""
    return dict(_translated(name, value) for name, value in settings.items())


def _translated(name: str, value: str) -> tuple[str, str]:
    if name == "clock.offset.ms":
        raise NotApplicable("a JVM uses its machine's clock, which cannot be set wrong here")
    if name in UNKNOWN:
        raise NotApplicable(f"apache/kraft has no setting {name!r}")
    if name == "controller.connect":
        # Kafka starts with no address that it cannot parse; one without an answer is as bad.
        return BOOTSTRAP, ",".join(one for one in value.split(",") if ":" in one)
    if name == _REBALANCES:
        if value not in _SWITCHES:
            raise UsageError(f"{name} must be true or false, not {value!r}")
        return name, _SWITCHES[value]
    renamed = RENAMED.get(name, name)
    if renamed not in _NUMBERS:
        return renamed, value
    counted = number(name, value)
    if name == _BALANCE_MS:
        if counted % 1_000:
            raise NotApplicable(f"Kafka counts {name} in whole seconds, and {value} are none")
        return "leader.imbalance.check.interval.seconds", str(counted // 1_000)
    if name == _SEGMENT and counted < _LEAST_SEGMENT:
        raise NotApplicable(
            f"Kafka has segments of at least {_LEAST_SEGMENT} bytes, and {name} is {value}"
        )
    return renamed, value
