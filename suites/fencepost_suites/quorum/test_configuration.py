"""The configuration of nodes: KIP-631's settings, node ids and modes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fencepost import Evidence, NodeStarted, Shape, Spare, UsageError
from fencepost.testing import EventLog, Faults
from fencepost_kafka import Role, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster

clause = pytest.mark.clause
physical = pytest.mark.physical

BROKER = {"process.roles": "broker", "broker.id": "1", "controller.connect": "controller-1:9093"}
CONTROLLER = {
    "process.roles": "controller",
    "controller.id": "101",
    "controller.listeners": "CONTROLLER",
    "controller.connect": "101@controller-1:9093,102@controller-2:9093",
}
REFUSED: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "a broker without an id": (BROKER, {"broker.id": ""}),
    "a negative broker.id": (BROKER, {"broker.id": "-1"}),
    "a controller without an id": (CONTROLLER, {"controller.id": ""}),
    "a negative controller.id": (CONTROLLER, {"controller.id": "-1"}),
    "a controller.id of more than 32 bits": (CONTROLLER, {"controller.id": "2147483648"}),
    "a controller without controller.listeners": (CONTROLLER, {"controller.listeners": ""}),
    "a broker without controller.connect": (BROKER, {"controller.connect": ""}),
    "no good address in controller.connect": (BROKER, {"controller.connect": "nowhere"}),
    "a controller.id that is the broker.id": (
        {**CONTROLLER, **BROKER, "process.roles": "broker,controller"},
        {"broker.id": "101"},
    ),
}


def refusal(cluster: KafkaCluster, properties: Mapping[str, str]) -> str:
    """The sentence with which a node refuses a configuration; empty if it accepts it."""
    try:
        cluster.effective(properties)
    except UsageError as refused:
        return str(refused)
    return ""


@pytest.mark.only("reference/quorum", reason="the plane over ZooKeeper has its own test")
@clause("QC-01")
def test_an_unset_process_roles_is_legacy_mode_which_no_node_here_is_in(
    cluster: KafkaCluster, history: EventLog
) -> None:
    unset = {name: value for name, value in BROKER.items() if name != "process.roles"}
    sentence = refusal(cluster, unset)
    history.record_evidence(
        "QC-01", "legacy mode" in sentence, f"process.roles unset: {sentence}", Evidence.SELF
    )
    both = {**CONTROLLER, **BROKER, "controller.id": "101"}
    both |= {"controller.connect": CONTROLLER["controller.connect"]}
    for roles, properties in (
        ("broker", BROKER),
        ("controller", CONTROLLER),
        ("broker,controller", both),
    ):
        sentence = refusal(cluster, {**properties, "process.roles": roles})
        history.record_evidence(
            "QC-01", not sentence, f"process.roles={roles}: {sentence}", Evidence.SELF
        )
    assert "zookeeper" in refusal(cluster, {**BROKER, "process.roles": "zookeeper"})
    # The mode is the whole cluster's: every node shows by its role that it is in quorum mode.
    began = {body.role for body in history.of(NodeStarted)}
    history.record_evidence(
        "QC-01", began == {"broker", "controller"}, f"nodes began as {sorted(began)}"
    )


@pytest.mark.only("reference/legacy", reason="the mode is the whole cluster's")
@clause("QC-01")
def test_a_node_over_zookeeper_has_no_process_roles(
    cluster: KafkaCluster, history: EventLog
) -> None:
    properties = {"broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"}
    sentence = refusal(cluster, properties)
    history.record_evidence("QC-01", not sentence, f"unset: {sentence}", Evidence.SELF)
    sentence = refusal(cluster, {**properties, "process.roles": "broker"})
    history.record_evidence("QC-01", "quorum" in sentence, f"broker: {sentence}", Evidence.SELF)
    began = {body.role for body in history.of(NodeStarted)}
    evidence = f"nodes of these roles have started: {', '.join(sorted(began))}"
    history.record_evidence("QC-01", "controller" not in began, evidence, Evidence.SELF)


@clause("QC-24")
def test_settings_have_kip_631s_defaults_and_checks(
    cluster: KafkaCluster, history: EventLog
) -> None:
    for properties in (BROKER, CONTROLLER):
        read = cluster.effective(properties)
        for name, default in (
            ("registration.heartbeat.interval.ms", "2000"),
            ("registration.lease.timeout.ms", "20000"),
        ):
            history.record_evidence(
                "QC-24", read[name] == default, f"{name} is {read[name]}", Evidence.SELF
            )
    given = {"registration.lease.timeout.ms": "9000"}
    read = cluster.effective({**BROKER, **given})
    assert read["registration.lease.timeout.ms"] == "9000"
    for what, (good, change) in REFUSED.items():
        assert not refusal(cluster, good) or "broker,controller" in good["process.roles"]
        properties = {name: value for name, value in {**good, **change}.items() if value}
        sentence = refusal(cluster, properties)
        history.record_evidence(
            "QC-24", bool(sentence), f"{what}: {sentence or 'taken'}", Evidence.SELF
        )


@pytest.mark.parametrize(
    "fencepost_shape", [kafka_shape(spares=(Spare(Role.BROKER, 101),))], ids=["impostor"]
)
@clause("QC-03")
def test_a_broker_with_a_controllers_id_is_refused(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    impostor = cluster.node("broker-101")
    assert impostor.id in {controller.id for controller in cluster.controllers}
    cluster.start(impostor)
    cluster.eventually(impostor.refused)
    assert not cluster.holds(impostor.active)
    # A later controller, which has no event of it yet, does not accept it either.
    with faults.kill(cluster.active_controller):
        cluster.eventually(cluster.led_by_controllers)
    cluster.eventually(cluster.recovered)


ONE_GOOD = pytest.mark.parametrize(
    "fencepost_shape",
    [
        kafka_shape(
            spares=(Spare(Role.CONTROLLER, 104),),
            own={"broker-1": {"controller.connect": "?,controller-4:9093,controller-2:9093"}},
        )
    ],
    ids=["one-good"],
)
"""Of the addresses that broker 1 is given, one is valid."""


@ONE_GOOD
@physical("sockets")
@clause("QC-05")
def test_a_broker_learns_the_quorum_from_its_only_valid_address(
    cluster: KafkaCluster, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    broker = cluster.node("broker-1")
    cluster.eventually(broker.active)


@ONE_GOOD
@physical("sockets")
@pytest.mark.only(
    "reference/quorum",
    reason="a broker of Kafka asks only its bootstrap servers once its leader is dead",
)
@clause("QC-05")
def test_a_broker_no_longer_needs_the_address_that_it_was_given(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    broker = cluster.node("broker-1")
    cluster.eventually(broker.active)
    # Brokers follow any active controller, and no longer need the one address they were given.
    with faults.kill(cluster.node("controller-2")):
        cluster.eventually(cluster.led_by_controllers)
        cluster.eventually(broker.renewed)
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize("fencepost_shape", [kafka_shape(combined=2)], ids=["combined"])
@physical("signals")
@clause("QC-02")
def test_a_controller_and_a_broker_share_a_process_and_not_an_id(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders")
    shared = [node for node in cluster.controllers if node.name.startswith("broker")]
    assert len(shared) == 2
    for node in shared:
        ids = {body.role: body.node_id for body in history.of(NodeStarted, f"{node.name}#1")}
        assert set(ids) == {"broker", "controller"}
        assert len(set(ids.values())) == 2
    # Killed together and restarted together, then ended in order: the broker first.
    both = cluster.node("broker-1")
    with faults.kill(both):
        cluster.eventually(both.fenced_by_controller)
        cluster.eventually(cluster.led_by_controllers)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)
    with faults.terminate(both) as stopped:
        assert stopped.receipt.true
        cluster.eventually(cluster.another_leader("orders", 0, both))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape", [kafka_shape(spares=(Spare(Role.CONTROLLER, 104),))], ids=["spare"]
)
@physical("sockets")
@clause("QC-29")
def test_brokers_follow_a_controller_that_was_replaced_at_a_new_address(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    spare = cluster.node("controller-4")
    cluster.start(spare)
    clients.quorum.add(spare)
    # The old controllers are removed one by one, the active one too, until none is left that the
    # brokers were configured with.
    for old in cluster.controllers:
        clients.quorum.remove(old)
    cluster.eventually(spare.elected)
    for broker in cluster.brokers:
        cluster.eventually(broker.renewed)
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape", [Shape(settings={"sasl.enabled.mechanisms": "PLAIN"})], ids=["sasl"]
)
@physical("sockets")
@clause("QC-04")
def test_controllers_refuse_a_client_without_rights(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")  # through a broker, which has the rights
    # All controllers are asked before anything is asserted: an inactive one refuses as well.
    answers = [clients.command_controller(node, "smuggled") for node in cluster.controllers]
    assert all(one.refused for one in answers)
    assert {one.error for one in answers} == {"CLUSTER_AUTHORIZATION_FAILED"}
    with faults.kill(cluster.active_controller):
        cluster.eventually(cluster.led_by_controllers)
        clients.create_topic("payments")
    cluster.eventually(cluster.recovered)
