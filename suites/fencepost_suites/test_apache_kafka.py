"""What Apache Kafka promises otherwise than the seed documents, each promise broken into."""

from __future__ import annotations

import pytest

from fencepost import Condition, Event, Shape, View
from fencepost.testing import EventLog, Faults
from fencepost_clusters.apache_kafka.metrics import MetricsTold, figures
from fencepost_clusters.apache_kafka.rules_metrics import SETTLED_NS
from fencepost_clusters.apache_kafka.rules_serving import APPLIED_WITHIN_NS
from fencepost_kafka import kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode

clause = pytest.mark.clause
pytestmark = pytest.mark.only("apache/kraft", reason="what is tested is Kafka's own promise")
LONG_SESSION = pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(settings={"registration.lease.timeout.ms": "12000"})],
    ids=["long-session"],
)
"""A session that outlives the start of a JVM, on a busy machine too."""


def goes_on_saying(node: KafkaNode, **said: int) -> Condition:
    """The node's metrics page has said so for as long as it takes to be judged."""

    def holds(view: View) -> bool:
        event = view.latest.get(("clients/metrics#1", "apache_kafka.metrics"))
        if event is None or not isinstance(told := event.body, MetricsTold):
            return False
        settled = event.at_ns - told.since_ns >= SETTLED_NS
        agrees = all(getattr(told, name) == value for name, value in said.items())
        return told.slot == node.name and settled and agrees

    return Condition(f"{node.name}'s metrics page to go on message {said}", holds)


def past(event: Event, by_ns: int) -> Condition:
    """What is told by now was told that much later: clients, for one, tell all the while."""
    return Condition(
        f"{by_ns} ns to pass since {event.process} told of {event.kind}",
        lambda view: view.last is not None and view.last.at_ns > event.at_ns + by_ns,
    )


@pytest.mark.parametrize("disk", ["empty", "copy"])
@clause("KR-01")
def test_of_two_processes_with_one_id_the_one_with_a_session_stays(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, disk: str
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.duplicate_id(victim, disk=disk):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.refused_with("DUPLICATE_BROKER_REGISTRATION"))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        assert not cluster.holds(duplicate.active)
        assert cluster.holds(victim.active)


@LONG_SESSION
@clause("KR-01", "KR-02", "QC-21")
def test_a_bounce_within_the_session_waits_for_its_end(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    faults.bounce(victim, after_ms=0)
    cluster.eventually(victim.refused_with("DUPLICATE_BROKER_REGISTRATION"))
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))


# Its leadership stays away, or it may lead again, by right, when the probe comes.
@pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(settings={"auto.leader.rebalance.enable": "0"})],
    ids=["leaders-stay"],
)
@clause("KR-02", "KR-05", "QC-30", "RP-24")
def test_a_broker_cut_off_from_the_controllers_is_fenced_by_them(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    cluster.eventually(writes.acked_at_least(50))
    victim = cluster.leader("orders", 0)
    # It does not know that it was fenced, and its clients wait for followers it has lost.
    with faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(cluster.another_leader("orders", 0, victim))
    cluster.eventually(cluster.recovered)
    assert clients.produce_directly(victim, "orders", 0).refused


@clause("QC-07", "QC-21", "QC-28")
def test_an_isolated_controller_has_a_successor_that_knows_everything(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("before")
    clients.produce("orders")
    old = cluster.active_controller
    with faults.partition(old, [c for c in cluster.controllers if c != old]):
        cluster.eventually(cluster.another_controller(old))
        clients.create_topic("meanwhile")
    with faults.kill(cluster.leader("orders", 0)):
        faults.bounce(cluster.active_controller, after_ms=0)
        cluster.eventually(cluster.led_by_controllers)
    cluster.eventually(cluster.recovered)
    assert clients.list_topics().outcome == "ok"


@clause("KR-02", "QC-31")
def test_a_broker_that_dies_as_the_controller_does_is_fenced_by_the_next_one(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.kill(cluster.active_controller), faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@clause("KR-03")
def test_a_fenced_broker_is_named_to_no_client_of_kafka(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim, *others = cluster.brokers
    cluster.eventually(others[0].caught_up)
    assert victim.id in clients.ask_metadata(others[0], "orders").brokers
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for broker in others:
            applied = cluster.eventually(broker.caught_up)
            cluster.eventually(past(applied, APPLIED_WITHIN_NS))
            told = clients.ask_metadata(broker, "orders")
            assert told.answered
            assert victim.id not in told.brokers
    cluster.eventually(cluster.recovered)


@clause("KR-04")
def test_a_broker_that_is_asked_to_stop_leaves_leading_nothing(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.terminate(victim) as stopped:
        assert stopped.receipt.true
        cluster.eventually(cluster.another_leader("orders", 0, victim))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize("fencepost_shape", [kafka_shape(brokers=4)], ids=["four-brokers"])
@clause("RP-19", "RP-06", "RP-13")
def test_a_partition_moves_while_it_is_written_to_wherever_it_was(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", count=800, rate=200)
    cluster.eventually(writes.acked_at_least(50))
    old = cluster.leader("orders", 0)
    others = cluster.followers("orders", 0)
    (new,) = (broker for broker in cluster.brokers if broker not in (old, *others))
    with faults.kill(cluster.active_controller):
        cluster.eventually(cluster.led_by_controllers)
        clients.reassign("orders", 0, [new, *others])
        cluster.eventually(cluster.assigned("orders", 0, [new, *others]))
    cluster.eventually(new.leads("orders", 0))
    cluster.eventually(writes.settled, within_ms=60_000)
    assert writes.acked <= clients.read_all("orders")


@clause("KR-07", "KR-08", "QC-37")
def test_what_the_metrics_of_nodes_say_is_so(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders")
    victim, *others = cluster.brokers
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for controller in cluster.controllers:
            cluster.eventually(goes_on_saying(controller, active_brokers=2, fenced_brokers=1))
        for node in (*cluster.controllers, *others):
            told = clients.read_metrics(node)
            assert told.answered, told.body
            page = told.answer.decode()
            evidence = f"{node} tells {sorted(figures(page))}, and ZooKeeper's if it has them"
            history.record_evidence("QC-37", "SessionExpireListener" not in page, evidence)
    cluster.eventually(cluster.recovered)
    old = cluster.active_controller
    with faults.pause(old):
        cluster.eventually(cluster.another_controller(old))
        new = cluster.active_controller
        cluster.eventually(goes_on_saying(new, active_controllers=1))
    cluster.eventually(goes_on_saying(old, active_controllers=0, active_brokers=3))
