"""The configuration of a Kafka node, and Kafka's names for the reference cluster's settings.

Tests use the reference's names. A setting with another name in Kafka is renamed; one that Kafka
does not have makes a test not applicable; every other name is Kafka's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import NotApplicable

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
_SWITCHES = frozenset({"auto.leader.rebalance.enable"})
_LEAST_SEGMENT = 1 << 20
"""Kafka 4 accepts no smaller one."""


def given(settings: Mapping[str, str]) -> dict[str, str]:
    """A test's settings under Kafka's names; raises NotApplicable for one that Kafka does not
    have."""
    return dict(_translated(name, value) for name, value in settings.items())


def _translated(name: str, value: str) -> tuple[str, str]:
    if name == "clock.offset.ms":
        raise NotApplicable("a JVM uses its machine's clock, which cannot be set wrong here")
    if name in UNKNOWN:
        raise NotApplicable(f"apache/kraft has no setting {name!r}")
    if name == "leader.imbalance.check.interval.ms":
        return "leader.imbalance.check.interval.seconds", str(max(1, int(value) // 1000))
    if name == "log.segment.bytes":
        return name, str(max(_LEAST_SEGMENT, int(value)))
    if name == "controller.connect":
        # Kafka starts with no address that it cannot parse; one without an answer is as bad.
        return BOOTSTRAP, ",".join(one for one in value.split(",") if ":" in one)
    if name in _SWITCHES:
        return name, {"0": "false", "1": "true"}.get(value, value)
    return RENAMED.get(name, name), value
