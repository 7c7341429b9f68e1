"""The demonstration of a Kafka cluster in `fencepost demo`: authority lost and regained, ten times.

The steps name their targets by their role at that time: the leader of a partition, the active
controller. They wait for events only, never for the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost import Condition
from fencepost.testing import Demonstration, Scene
from fencepost_kafka.clients.workers import KafkaClients
from fencepost_kafka.facade.cluster import KafkaCluster, kafka_cluster

TOPICS = ("orders", "payments", "audit")
PARTITIONS = 6
WARM = 30
"""How many messages each client has written or read before the first step."""


def demonstration(planted: str, followed_by: str = "") -> Demonstration:
    """The load and the steps below, with a defect of the system for the second run."""
    return Demonstration(load, STEPS, planted, followed_by)


def _kafka(scene: Scene) -> tuple[KafkaCluster, KafkaClients]:
    assert isinstance(scene.clients, KafkaClients), "the demonstration needs Kafka's clients"
    return kafka_cluster(scene.cluster), scene.clients


def load(scene: Scene) -> None:
    """Topics with six partitions, three replicas each; two producers and two consumers."""
    cluster, clients = _kafka(scene)
    for topic in TOPICS:
        clients.create_topic(topic, PARTITIONS)
    writes = [clients.produce(*TOPICS, acks="all", rate=60) for _ in range(2)]
    reads = [clients.consume(*TOPICS) for _ in range(2)]
    for condition in (
        *(one.acked_at_least(WARM) for one in writes),
        *(one.polled_at_least(WARM) for one in reads),
    ):
        cluster.eventually(condition)


# ----------------------------------------------------------------------------------------- steps


def cut_from_the_controllers_only(scene: Scene) -> None:
    """a leader is cut off from the controllers only"""
    cluster, clients = _kafka(scene)
    victim = cluster.leader("orders", 0)
    with scene.faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced)
        for _ in range(2):
            clients.fetch_directly(victim, "orders", 0)
            clients.produce_directly(victim, "orders", 0, acks=1)
        clients.ask_metadata(victim, "orders")
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(victim.active)


def one_way_between_two_brokers(scene: Scene) -> None:
    """a one-way cut: no data of one broker reaches another"""
    cluster, clients = _kafka(scene)
    leader = cluster.leader("orders", 1)
    follower = cluster.followers("orders", 1)[0]
    with scene.faults.cut(follower, leader):
        clients.produce_directly(leader, "orders", 1, acks=1)
        clients.fetch_directly(leader, "orders", 1)
        cluster.eventually(~follower.in_sync("orders", 1))
    cluster.eventually(follower.in_sync("orders", 1))


def isolated_active_controller(scene: Scene) -> None:
    """the active controller is isolated; it resigns, another takes over"""
    cluster, _ = _kafka(scene)
    old = cluster.active_controller
    with scene.faults.isolate(old):
        cluster.eventually(~old.elected)
        cluster.eventually(
            cluster.another_controller(old), within_ms=cluster.timing.recovery_bound_ms
        )


def controllers_apart(scene: Scene) -> None:
    """the active controller loses its peers, not its brokers: it writes but cannot commit"""
    cluster, clients = _kafka(scene)
    old = cluster.active_controller
    others = [c for c in cluster.controllers if c != old]
    with scene.faults.partition(old, others):
        clients.create_topic("written-in-vain", 1)


def bounced_within_the_lease(scene: Scene) -> None:
    """a leader is killed and back before its lease ended"""
    cluster, _ = _kafka(scene)
    victim = cluster.leader("orders", 2)
    scene.faults.bounce(victim, after_ms=0)
    cluster.eventually(victim.active)


def second_process_with_one_id(scene: Scene) -> None:
    """a second live process claims a leader's id, on a copy of its disk"""
    cluster, clients = _kafka(scene)
    victim = cluster.leader("payments", 0)
    with scene.faults.duplicate_id(victim, disk="copy"):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.active)
        cluster.eventually(victim.fenced)
        cluster.eventually(victim.disowned)
        clients.fetch_directly(victim, "payments", 0)
        clients.produce_directly(victim, "payments", 0, acks=1)


def isolated_leader(scene: Scene) -> None:
    """a leader is isolated while clients reach it: what it stores is never committed"""
    cluster, clients = _kafka(scene)
    old = cluster.leader("audit", 0)
    with scene.faults.isolate(old):
        for _ in range(3):
            clients.produce_directly(old, "audit", 0, acks=1)
        cluster.eventually(old.fenced_by_controller)
        new = cluster.leader("audit", 0)
        clients.produce_directly(new, "audit", 0, acks="all")
    cluster.eventually(old.in_sync("audit", 0))
    clients.produce_directly(old, "audit", 0, acks=1)


def cannot_store_a_smaller_isr(scene: Scene) -> None:
    """a leader loses a follower, and the controllers that could store a smaller ISR"""
    cluster, _ = _kafka(scene)
    leader = cluster.leader("orders", 3)
    follower = cluster.followers("orders", 3)[0]
    with scene.faults.cut_from_controllers(leader), scene.faults.partition(leader, follower):
        cluster.eventually(leader.fenced_by_controller)


def started_out_of_reach(scene: Scene) -> None:
    """a broker starts but reaches no controller: it serves no client"""
    cluster, clients = _kafka(scene)
    victim = cluster.leader("orders", 4)
    with scene.faults.cut_from_controllers(victim):
        scene.faults.bounce(victim, after_ms=0)
        cluster.eventually(
            Condition(f"{victim} to start", lambda view: victim.process(view) in view.node_of)
        )
        for _ in range(3):
            clients.fetch_directly(victim, "orders", 4)
            clients.ask_metadata(victim, "orders")


def shut_down_in_order(scene: Scene) -> None:
    """a leader is asked to shut down: its leaderships go first"""
    cluster, _ = _kafka(scene)
    victim = cluster.leader("orders", 5)
    with scene.faults.terminate(victim):
        pass
    cluster.eventually(victim.active)


STEPS: Sequence[Callable[[Scene], None]] = (
    cut_from_the_controllers_only,
    one_way_between_two_brokers,
    isolated_active_controller,
    bounced_within_the_lease,
    second_process_with_one_id,
    controllers_apart,
    isolated_leader,
    cannot_store_a_smaller_isr,
    started_out_of_reach,
    shut_down_in_order,
)
