"""The promises of Apache Kafka that differ from the seed documents. Each test injects a fault
against one promise."""

from __future__ import annotations

import pytest

from fencepost import Condition, Event, FaultHealed, FaultInjected, Shape, View
from fencepost.testing import EventLog, Faults
from fencepost_clusters.apache_kafka.metrics import MetricsObserved, figures
from fencepost_clusters.apache_kafka.rules.metrics import SETTLED_NS
from fencepost_clusters.apache_kafka.rules.serving import APPLIED_WITHIN_NS
from fencepost_kafka import ControllerResigned, KafkaView, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode

clause = pytest.mark.clause
pytestmark = pytest.mark.only("apache/kraft", reason="the promise under test is Kafka's own")
LONG_SESSION = pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(settings={"registration.lease.timeout.ms": "12000"})],
    ids=["long-session"],
)
"""A session that outlasts the start of a JVM, on a busy machine too."""
AWAY_NS = 4_000_000_000
"""More than two fetch timeouts of the suites: a voter that is away for it becomes a candidate."""


def keeps_showing(node: KafkaNode, **shown: int) -> Condition:
    """The node's metrics page has shown these figures for as long as a rule waits before it judges
    them."""

    def holds(view: View) -> bool:
        event = view.latest.get(("clients/metrics#1", "apache_kafka.metrics"))
        if event is None or not isinstance(page := event.body, MetricsObserved):
            return False
        settled = event.at_ns - page.since_ns >= SETTLED_NS
        agrees = all(getattr(page, name) == value for name, value in shown.items())
        return page.slot == node.name and settled and agrees

    return Condition(f"{node.name}'s metrics page to keep showing {shown}", holds)


def out_of_isr(node: KafkaNode, topic: str, partition: int) -> Condition:
    """The node's replica is in the ISR no longer, by the committed metadata."""

    def holds(view: View) -> bool:
        return node.id not in view.of(KafkaView).partitions[topic, partition].isr

    return Condition(f"{node.name} to leave the ISR of {topic}-{partition}", holds)


def past(event: Event, by_ns: int) -> Condition:
    """An event came that much later than this one; clients, for example, write events all the
    time."""
    return Condition(
        f"{by_ns} ns to pass since the {event.kind} of {event.process}",
        lambda view: view.last is not None and view.last.at_ns > event.at_ns + by_ns,
    )


@pytest.mark.parametrize("disk", ["empty", "copy"])
@clause("KR-01")
def test_a_process_with_a_session_keeps_its_id_from_a_second_process(
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


# Leadership must not return, or the broker may rightly lead again when the probe arrives.
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
    # The broker does not know that it is fenced, and its clients wait for followers it has lost.
    with faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(cluster.another_leader("orders", 0, victim))
    cluster.eventually(cluster.recovered)
    assert clients.produce_directly(victim, "orders", 0).refused


@clause("QC-07", "QC-21", "QC-28")
def test_an_isolated_controller_has_a_successor_with_all_committed_metadata(
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
def test_a_broker_that_is_killed_with_the_controller_is_fenced_by_the_next_one(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.kill(cluster.active_controller), faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@clause("REG-07")
def test_a_fenced_broker_is_left_out_of_kafkas_metadata_answers(
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
            result = clients.ask_metadata(broker, "orders")
            assert result.answered
            assert victim.id not in result.brokers
    cluster.eventually(cluster.recovered)


@clause("KR-04")
def test_a_broker_that_is_asked_to_stop_leads_nothing_when_it_ends(
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
def test_a_partition_moves_while_it_is_written_to(
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
def test_the_metrics_of_nodes_agree_with_the_history(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders")
    victim, *others = cluster.brokers
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for controller in cluster.controllers:
            cluster.eventually(keeps_showing(controller, active_brokers=2, fenced_brokers=1))
        for node in (*cluster.controllers, *others):
            result = clients.read_metrics(node)
            assert result.answered, result.body
            page = result.answer.decode()
            evidence = f"{node} shows {sorted(figures(page))}, and ZooKeeper's if it has them"
            history.record_evidence("QC-37", "SessionExpireListener" not in page, evidence)
    cluster.eventually(cluster.recovered)
    old = cluster.active_controller
    with faults.pause(old):
        cluster.eventually(cluster.another_controller(old))
        new = cluster.active_controller
        cluster.eventually(keeps_showing(new, active_controllers=1))
    cluster.eventually(keeps_showing(old, active_controllers=0, active_brokers=3))


@clause("KR-09")
def test_a_controller_that_no_majority_reaches_gives_its_leadership_up(
    cluster: KafkaCluster, faults: Faults, history: EventLog
) -> None:
    old = cluster.active_controller
    resigned = history.event_where(ControllerResigned, lambda _: True, f"{old.name} to resign")
    with faults.cut_from_role(old, "controller"):
        cluster.eventually(resigned)
        cluster.eventually(cluster.another_controller(old))
    cluster.eventually(cluster.recovered)


@clause("KR-10")
def test_a_follower_leaves_the_isr_and_the_leader_goes_on_in_its_epoch(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.followers("orders", 0)[0]
    with faults.pause(victim):
        cluster.eventually(out_of_isr(victim, "orders", 0))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@clause("KR-11")
def test_a_controller_that_was_cut_off_returns_and_deposes_no_other(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders")
    away = next(one for one in cluster.controllers if one != cluster.active_controller)
    injected = history.event_where(FaultInjected, lambda _: True, f"{away.name} to be cut off")
    healed = history.event_where(FaultHealed, lambda _: True, f"{away.name} to be back")
    with faults.cut_from_role(away, "controller"):
        cluster.eventually(past(cluster.eventually(injected), AWAY_NS))
    cluster.eventually(past(cluster.eventually(healed), AWAY_NS))
