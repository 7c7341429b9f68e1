"""Small scenes in the world of bare cores, each aimed at one promise of the data plane.

Each leaves a history like any run's, for the rules to judge. The seed moves every delay.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from chaos import BROKERS, PRODUCER, Clients
from crc32c import crc32c
from world import MS, World, produce_request

from fencepost import Event, ProduceCompleted, ProduceInvoked, RunEnd, RunEnded, RunStarted
from fencepost_clusters.reference.core.effects import ShutdownAsked
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error

Scene = Callable[[World], None]
LOOKS_FOR_MS = 14_000


def play(
    scene: Scene, seed: int, defects: tuple[str, ...] = (), **shape: int | tuple[str, ...]
) -> tuple[list[Event], RunEnd]:
    """A scene's history and its end, all healed."""
    world = World(seed, defects, **shape)  # type: ignore[arg-type]
    world.note("harness", RunStarted("reference/quorum", "world", seed))
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
    for a smaller ISR before anybody could tell it that the ISR is another by now."""
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
    """A leader that nobody fetches from hands over while a write waits for its followers."""
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
    data = m.PartitionProduceData(0, bytes(batch))
    return m.ProduceRequest(-1, 1000, (m.TopicProduceData(topic, (data,)),))


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
    clients.record(PRODUCER, ProduceInvoked("sought", "orders", 0, -1))
    offset = -1
    asked = 0
    while offset < 0 and world.now_ns < deadline:
        alive = others(old)
        asked += 1
        told = world.answer(alive[asked % 2], m.MetadataRequest(None), 1)
        world.run(0.1)
        if not isinstance(told, m.MetadataResponse):
            continue
        leader = f"broker-{told.topics[0].partitions[0].leader_id}"
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
    completed = ProduceCompleted("sought", "orders", 0, -1, outcome, offset, error)
    clients.record(PRODUCER, completed)
    world.start(old)


FINDS: dict[str, Scene] = {
    "applies-stale-isr-change": paused_leader,
    "elects-any-live-replica": dead_isr,
    "acks-on-stepping-down": handover_with_writes_waiting,
    "restarts-from-log-end": killed_with_a_tail,
    "flushed-before-sync": power_lost,
    "new-leader-forgets-producers": resend_after_failover,
    "metadata-names-former-leader": client_looks_for_leader,
}
"""The scene in which each defect is found."""
