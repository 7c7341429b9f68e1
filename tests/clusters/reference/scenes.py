"""Small scenes in the world of bare cores, each aimed at one promise of the data plane.

Each leaves a history like any run's, for the rules to judge. The seed moves every delay.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from chaos import BROKERS, CONTROLLERS, PRODUCER, Clients
from crc32c import crc32c
from world import MS, World, produce_request

from fencepost import Event, RunEnd, RunEnded, RunStarted
from fencepost_clusters.reference.core.node.effects import ShutdownAsked
from fencepost_clusters.reference.core.quorum.controller import changes
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import AdminCompleted, ProduceCompleted, ProduceInvoked

Scene = Callable[[World], None]
LOOKS_FOR_MS = 14_000


def play(
    scene: Scene, seed: int, defects: tuple[str, ...] = (), settings: Mapping[str, str] = {}
) -> tuple[list[Event], RunEnd]:
    """A scene's history and its end, all healed."""
    world = World(seed, defects, **SHAPES.get(scene, {}), **settings)  # type: ignore[arg-type]
    world.note("harness", RunStarted(system="reference/quorum", runtime="world", seed=seed))
    assert world.until(world.healthy, 20)
    scene(world)
    world.cuts.clear()
    world.until(world.healthy, 15)
    world.run(2)
    world.note("harness", RunEnded(True))
    return world.events, RunEnd(complete=True, ended_at_ns=world.now_ns)


def others(*slots: str) -> tuple[str, ...]:
    """The other brokers of the first three."""
    return tuple(b for b in BROKERS if b not in slots)


def paused_leader(world: World) -> None:
    """A leader stands still, within its lease, while a follower is bounced; when it wakes it asks
    for a smaller ISR before it could learn that the ISR has changed."""
    world.create_topic("orders")
    clients = Clients(world, "orders")
    clients.start_producing()
    world.run(0.5)
    leader = world.leader("orders")
    world.pause(leader)
    world.run(0.2)
    follower = others(leader)[0]
    world.kill(follower)
    world.start(follower)
    world.run(2.1)
    world.resume(leader)
    world.run(3)
    clients.stop_producing()


def dead_isr(world: World) -> None:
    """The last member of an ISR dies while the other replicas live."""
    world.create_topic("orders")
    leader = world.leader("orders")
    for other in others(leader):
        world.cut((other, leader))
    assert world.until(lambda: len(world.isr("orders")) == 1, 10)
    world.kill(leader)
    world.cuts.clear()
    world.run(6)
    world.start(leader)


def handover_with_writes_waiting(world: World) -> None:
    """A leader without fetching followers hands over while a write waits for its followers."""
    world.create_topic("orders")
    leader = world.leader("orders")
    for other in others(leader):
        world.cut((other, leader))
    world.run(0.3)
    world.ask(leader, produce_request("orders", b"waits", -1, 8000), PRODUCER)
    world.run(0.2)
    world.step(leader, ShutdownAsked())
    world.until(lambda: leader not in world.alive, 10)
    world.cuts.clear()
    world.run(1)
    world.start(leader)


def killed_with_a_tail(world: World) -> None:
    """A leader dies with messages in its log that it alone has."""
    world.create_topic("orders")
    leader = world.leader("orders")
    for number in range(3):
        world.produce(leader, "orders", f"kept-{number}".encode())
    world.run(2.5)
    for other in others(leader):
        world.isolate(leader, other)
    world.run(0.1)
    world.ask(leader, produce_request("orders", b"tail", 1), PRODUCER)
    world.run(0.2)
    world.kill(leader)
    world.cuts.clear()
    world.run(1)
    world.start(leader)


def power_lost(world: World) -> None:
    """Each broker in turn loses what it had not synced; under writes, at any moment between two
    checkpoints."""
    world.create_topic("orders")
    clients = Clients(world, "orders")
    clients.start_producing()
    world.run(2)
    for slot in (*BROKERS, *BROKERS):
        world.lose_power(slot)
        world.run(0.5)
        world.start(slot)
        assert world.until(world.healthy, 20)
        world.run(1.3)
    clients.stop_producing()


def idempotent(producer: int, sequence: int, values: list[bytes], topic: str) -> m.ProduceRequest:
    """A Produce of an idempotent producer, epoch 0."""
    batch = bytearray(record_batch.build(values, 0, -1, 1))
    struct.pack_into(">qhi", batch, 43, producer, 0, sequence)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    data = m.PartitionProduceData(index=0, records=bytes(batch))
    return m.ProduceRequest(
        acks=-1, timeout=1000, topic_data=(m.TopicProduceData(name=topic, partition_data=(data,)),)
    )


def resend_after_failover(world: World) -> None:
    """A leader dies after the write and before its answer arrives; the client sends it again."""
    world.create_topic("orders")
    old = world.leader("orders")
    batch = idempotent(7, 0, [b"a", b"b"], "orders")
    world.answer(old, batch)
    world.kill(old)
    assert world.until(lambda: world.leader("orders") not in (old, "broker--1"), 10)
    world.run(0.5)
    world.answer(world.leader("orders"), batch)
    world.run(1)
    world.start(old)


def client_looks_for_leader(world: World) -> None:
    """A client that knows leaders by Metadata only, while the leader dies for long."""
    world.create_topic("orders")
    old = world.leader("orders")
    clients = Clients(world, "orders")
    world.kill(old)
    deadline = world.now_ns + LOOKS_FOR_MS * MS
    clients.record(
        PRODUCER, ProduceInvoked(operation="sought", topic="orders", partition=0, acks=-1)
    )
    offset = -1
    asked = 0
    while offset < 0 and world.now_ns < deadline:
        alive = others(old)
        asked += 1
        metadata = world.answer(alive[asked % 2], m.MetadataRequest(topics=None), 1)
        world.run(0.1)
        if not isinstance(metadata, m.MetadataResponse):
            continue
        leader = f"broker-{metadata.topics[0].partitions[0].leader_id}"
        if leader in world.alive:
            request = produce_request("orders", b"sought", -1)
            request_id = world.ask(leader, request, PRODUCER)
            world.until(lambda i=request_id: i in world.answers, 2)
            answer = world.answers.get(request_id)
            if isinstance(answer, m.ProduceResponse):
                part = answer.responses[0].partition_responses[0]
                offset = part.base_offset if part.error_code == Error.NONE else -1
    outcome = "ok" if offset >= 0 else "unknown"
    error = "" if offset >= 0 else "_MSG_TIMED_OUT"
    completed = ProduceCompleted(
        operation="sought",
        topic="orders",
        partition=0,
        acks=-1,
        outcome=outcome,
        offset=offset,
        error=error,
    )
    clients.record(PRODUCER, completed)
    world.start(old)


def administer(world: World, api: str, subject: str, request: m.Request) -> m.Response | None:
    """An administrator's request through a live broker, recorded as its client would."""
    slot = next(name for name in world.alive if name.startswith("broker"))
    answer = world.answer(slot, request)
    bad = answer is None or any(changes.errors(answer))
    body = AdminCompleted(
        operation="op", api=api, subject=subject, outcome="failed" if bad else "ok", error=""
    )
    Clients(world, "").record("clients/admin#1", body)
    return answer


def many_partitions(world: World) -> None:
    """Enough partitions that each broker is preferred for several."""
    world.create_topic("orders", 6)


def topic_while_a_broker_is_dead(world: World) -> None:
    """A topic is made while a broker is fenced."""
    world.kill("broker-2")
    world.run(5)
    slot = others("broker-2")[0]
    topic = m.CreatableTopic(name="orders", num_partitions=4, replication_factor=2)
    world.answer(slot, m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    world.run(0.5)
    world.start("broker-2")


def broker_with_many_leaderships_dies(world: World) -> None:
    """A broker dies that leads as many partitions as there are survivors."""
    world.create_topic("orders", 6)
    world.run(0.5)
    world.kill("broker-3")
    world.run(6)
    world.start("broker-3")


def preferred_comes_back(world: World) -> None:
    """A preferred leader dies, another leads, and the first one is in the ISR again."""
    world.create_topic("orders")
    old = world.leader("orders")
    world.kill(old)
    assert world.until(lambda: world.leader("orders") not in (old, "broker--1"), 10)
    world.start(old)
    world.until(lambda: len(world.isr("orders")) == 3, 15)
    world.run(9)


def reassigned(world: World) -> None:
    """A partition under writes moves to a broker that has nothing of it; twice, and once the
    controller fails meanwhile."""
    world.create_topic("orders")
    clients = Clients(world, "orders")
    clients.start_producing()
    world.run(1)
    for replicas, failover in (((4, 2, 3), False), ((1, 2, 4), True)):
        part = a.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = a.ReassignableTopic(name="orders", partitions=(part,))
        request = a.AlterPartitionReassignmentsRequest(timeout=2000, topics=(topic,))
        administer(world, "reassign", "orders", request)
        if failover:
            world.kill(world.active_slot())
        world.until(lambda want=replicas: world.partition("orders").replicas == want, 10)
        world.run(1.5)
    clients.stop_producing()
    for slot in CONTROLLERS:
        if slot not in world.alive:
            world.start(slot)


def reassigned_while_brokers_die(world: World) -> None:
    """A partition under writes moves from broker to broker, and at each step one node dies: the
    replica that is new, the one that leads, the active controller."""
    world.create_topic("orders")
    clients = Clients(world, "orders")
    clients.start_producing()
    world.run(0.5)
    steps = (((4, 2, 3), "broker-4"), ((4, 1, 3), ""), ((2, 1, 4), "controller"))
    for number, (replicas, victim) in enumerate(steps):
        part = a.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = a.ReassignableTopic(name="orders", partitions=(part,))
        request = a.AlterPartitionReassignmentsRequest(timeout=2000, topics=(topic,))
        administer(world, "reassign", "orders", request)
        world.run(0.01 * number)
        named = {"": world.leader("orders"), "controller": world.active_slot()}.get(victim, victim)
        if named in world.alive:
            world.kill(named)
        world.run(4.5)
        world.start(named)
        assert world.until(lambda want=replicas: world.partition("orders").replicas == want, 20)
        assert world.until(world.healthy, 20)
    clients.stop_producing()
    world.run(2)
    clients.read_all()


def broker_added(world: World) -> None:
    """A fourth broker is started, and given its share."""
    world.create_topic("orders", 6, replicas=2)
    world.create_topic("payments", 3, replicas=2)
    world.start("broker-4")
    assert world.until(world.healthy, 20)
    administer(world, "add_brokers", "4", a.RebalanceRequest(timeout=2000, brokers=(4,)))
    world.until(world.healthy, 20)


def broker_deleted(world: World) -> None:
    """A broker that runs is deleted; it registers anew."""
    world.create_topic("orders", 3)
    administer(world, "delete_broker", "2", a.UnregisterBrokerRequest(broker_id=2))
    world.run(3)


def topic_deleted_behind_a_broker(world: World) -> None:
    """A topic is deleted while a broker is down."""
    world.create_topic("orders")
    world.produce(world.leader("orders"), "orders", b"gone")
    world.run(0.5)
    world.kill("broker-2")
    administer(
        world,
        "delete_topic",
        "orders",
        m.DeleteTopicsRequest(topic_names=("orders",), timeout=2000),
    )
    world.run(1)
    world.start("broker-2")
    world.run(3)


FINDS: dict[str, Scene] = {
    "one-neighbour-holds-all": many_partitions,
    "places-on-dead-broker": topic_while_a_broker_is_dead,
    "elects-lowest-id": broker_with_many_leaderships_dies,
    "never-goes-back": preferred_comes_back,
    "switches-before-caught-up": reassigned,
    "former-replica-stays-in-isr": reassigned,
    "adding-moves-everything": broker_added,
    "deleted-broker-stays-in-isr": broker_deleted,
    "deleted-topic-comes-back": topic_deleted_behind_a_broker,
    "applies-stale-isr-change": paused_leader,
    "elects-any-live-replica": dead_isr,
    "acks-on-stepping-down": handover_with_writes_waiting,
    "restarts-from-log-end": killed_with_a_tail,
    "flushed-before-sync": power_lost,
    "new-leader-forgets-producers": resend_after_failover,
    "metadata-names-former-leader": client_looks_for_leader,
}
"""The scene in which each defect is found."""
SHAPES: dict[Scene, dict[str, int | tuple[str, ...]]] = {
    reassigned: {"brokers": 4},
    reassigned_while_brokers_die: {"brokers": 4},
    broker_added: {"brokers": 4, "later": ("broker-4",)},
}
"""The worlds of those that want another than three brokers."""
