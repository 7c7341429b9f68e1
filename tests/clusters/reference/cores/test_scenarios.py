"""The cores together, under virtual time: authority changes hands, and each promise shows."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from world import BROKERS, CONTROLLERS, SECOND, World

from fencepost import Shape, Signal
from fencepost_clusters.reference.cluster import ReferenceQuorum
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    BrokerStateChanged,
    ControllerElected,
    HeartbeatAnswered,
    IsrChangeAsked,
    LogTruncated,
    MetadataTruncated,
    RequestRefused,
    StateReverted,
    VoteAnswered,
)


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A healthy cluster with one partition, from three seeds."""
    made = World(tmp_path / "run", request.param)
    assert made.until(made.healthy, 20)
    create_topic(made, "orders")
    return made


def create_topic(world: World, name: str) -> None:
    """Creates a topic of one partition on three brokers, and waits until all know of it.

    While a controller is being replaced the request may time out. A client sends it again then.
    """
    topic = m.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    request = m.CreateTopicsRequest(topics=(topic,), timeout=2000)
    limit_ns = world.now_ns + 10 * SECOND
    error = Error.REQUEST_TIMED_OUT
    while error == Error.REQUEST_TIMED_OUT:
        assert world.now_ns < limit_ns
        answer = world.answer("broker-1", request)
        assert isinstance(answer, m.CreateTopicsResponse)
        error = answer.topics[0].error_code
    assert error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)  # the latter after a lost answer
    assert world.until(
        lambda: all(name in world.core(slot).committed.image.topics for slot in BROKERS)
    )


def batch_request(batch: bytes, acks: int = -1, timeout_ms: int = 1000) -> m.ProduceRequest:
    """A Produce of one batch to the partition."""
    data = m.PartitionProduceData(index=0, records=batch)
    topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
    return m.ProduceRequest(acks=acks, timeout=timeout_ms, topic_data=topics)


def produce_request(value: bytes, acks: int = -1, timeout_ms: int = 1000) -> m.ProduceRequest:
    return batch_request(record_batch.build([value], 0, -1, 1), acks, timeout_ms)


def error_of(answer: object) -> int:
    assert isinstance(answer, m.ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def idempotent(producer: int, sequence: int, values: list[bytes]) -> m.ProduceRequest:
    """A Produce of an idempotent producer, epoch 0."""
    batch = bytearray(record_batch.build(values, 0, -1, 1))
    struct.pack_into(">qhi", batch, 43, producer, 0, sequence)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch_request(bytes(batch))


def produce(
    world: World, slot: str, value: bytes, timeout_ms: int = 1000
) -> m.PartitionProduceResponse | None:
    """Produces one message through one broker; its answer, if any."""
    answer = world.answer(slot, produce_request(value, timeout_ms=timeout_ms))
    if answer is None:
        return None
    assert isinstance(answer, m.ProduceResponse)
    return answer.responses[0].partition_responses[0]


def fetch(world: World, slot: str, offset: int = 0) -> m.PartitionData:
    """Fetches from one broker without waiting."""
    part = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = (m.FetchTopic(partitions=(part,), topic="orders"),)
    asked = m.FetchRequest(max_wait=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    answer = world.answer(slot, asked)
    assert isinstance(answer, m.FetchResponse)
    return answer.responses[0].partitions[0]


def ok(part: m.PartitionProduceResponse | None) -> bool:
    return part is not None and part.error_code == Error.NONE


def write(world: World, count: int, prefix: str = "m") -> list[bytes]:
    """Messages that were acknowledged; each is sent again until it is."""
    values = [f"{prefix}{n}".encode() for n in range(count)]
    limit_ns = world.now_ns + 20 * SECOND
    for value in values:
        while not ok(produce(world, world.leader("orders"), value)):
            assert world.now_ns < limit_ns
    return values


def read(world: World) -> list[bytes]:
    """All committed messages."""
    found: list[bytes] = []
    limit_ns = world.now_ns + 20 * SECOND
    while True:
        part = fetch(world, world.leader("orders"), len(found))
        if part.error_code == Error.NOT_LEADER_OR_FOLLOWER and world.now_ns < limit_ns:
            continue  # another leader was just elected, and does not know it yet
        assert part.error_code == Error.NONE
        assert isinstance(part.records, bytes)
        values = [v for _, b in record_batch.split(part.records) for v in record_batch.values(b)]
        if not values:
            return found
        found += values


def test_acknowledged_messages_survive_a_killed_leader(world: World) -> None:
    written = write(world, 10)
    old = world.leader("orders")
    world.kill(old)
    assert world.until(lambda: world.leader("orders") != old, 10)
    written += write(world, 5, "after")
    world.start(old)
    assert world.until(world.healthy, 20)
    assert [v for v in read(world) if v in written] == written


def test_a_broker_cut_off_from_the_controllers_fences_itself_first(world: World) -> None:
    victim = world.leader("orders")
    world.isolate(victim, *CONTROLLERS)
    assert world.until(lambda: world.core(victim).lifecycle.state.name == "FENCED", 10)
    fenced_itself = world.now_ns
    node_id = world.layout.slot(victim).node_id
    controller = world.core(world.active())
    assert world.until(lambda: controller.committed.image.brokers[node_id].fenced, 10)
    assert world.now_ns >= fenced_itself  # KIP-631: the lease ends at the broker first
    answer = produce(world, victim, b"late")
    assert answer is not None
    assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert world.answer(victim, m.MetadataRequest(topics=None), 1) is None
    before = world.core(victim).lifecycle.epoch
    world.heal()
    assert world.until(world.healthy, 20)
    assert world.core(victim).lifecycle.epoch > before  # QC-20


def test_an_isolated_controller_resigns_before_its_successor_could_fence(world: World) -> None:
    old = world.active()
    core = world.core(old)
    assert isinstance(core, ControllerNode)
    world.isolate(old)
    cut_at = world.now_ns
    assert world.until(lambda: not core.active, 10)
    assert world.now_ns - cut_at < 1.5 * SECOND
    assert world.until(lambda: world.active() not in (None, old), 10)
    world.run(3)
    world.heal()
    assert world.until(world.healthy, 20)
    epochs = [body.epoch for _, body in world.bodies(ControllerElected)]
    assert len(epochs) == len(set(epochs))


def test_an_uncommitted_change_of_an_isolated_controller_is_undone(world: World) -> None:
    old = world.active()
    for other in set(CONTROLLERS) - {old}:
        world.isolate(old, other)
    request = m.CreateTopicsRequest(
        topics=(m.CreatableTopic(name="lost", num_partitions=1, replication_factor=3),),
        timeout=2000,
    )
    asked = world.ask(old, request)
    world.run(6)
    assert "lost" not in world.core(old).committed.image.topics
    assert isinstance(asked.answer, m.CreateTopicsResponse)
    assert asked.answer.topics[0].error_code != Error.NONE
    world.heal()
    assert world.until(world.healthy, 20)
    assert world.until(
        lambda: any(process.startswith(old) for process, _ in world.bodies(MetadataTruncated)), 20
    )
    assert world.bodies(StateReverted)
    assert all(
        "lost" not in core.committed.image.topics
        for core in map(world.core, (*CONTROLLERS, *BROKERS))
    )


def test_a_controller_that_fell_behind_is_not_elected(world: World) -> None:
    old = world.active()
    world.isolate(old)
    assert world.until(lambda: world.active() not in (None, old), 10)
    create_topic(world, "second")
    world.run(3)
    world.heal()
    assert world.until(world.healthy, 20)
    world.run(5)
    refused = [b for _, b in world.bodies(VoteAnswered) if b.reason == "log_behind"]  # type: ignore[attr-defined]
    assert refused
    assert all(
        "second" in core.committed.image.topics
        for core in map(world.core, (*CONTROLLERS, *BROKERS))
    )


def test_the_newest_process_with_an_id_wins_and_the_old_one_is_refused(world: World) -> None:
    write(world, 3)
    old = world.leader("orders")
    duplicate = f"{old}-duplicate"
    world.start(duplicate)
    assert world.until(lambda: world.core(duplicate).lifecycle.state.name == "ACTIVE", 10)
    assert world.until(lambda: world.core(old).lifecycle.state.name == "FENCED", 4)
    world.run(2)
    assert world.core(old).lifecycle.lost
    late = [
        body
        for process, body in world.bodies(HeartbeatAnswered)
        if body.client == f"{old}#1" and body.error == "DUPLICATE_BROKER_REGISTRATION"  # type: ignore[attr-defined]
    ]
    assert late
    assert not ok(produce(world, old, b"from the loser"))


def test_a_killed_broker_gets_its_id_back_at_once(world: World) -> None:
    world.kill("broker-2")
    world.run(0.2)
    began = world.now_ns
    world.start("broker-2")
    assert world.until(lambda: world.core("broker-2").lifecycle.state.name == "ACTIVE", 10)
    lease_ms = ReferenceQuorum().timing(Shape()).lease_ms
    assert world.now_ns - began < lease_ms * 1_000_000 / 2
    assert world.until(world.healthy, 20)


def test_a_dead_follower_blocks_writes_only_until_it_is_dropped(world: World) -> None:
    leader = world.leader("orders")
    follower = next(b for b in BROKERS if b != leader)
    world.isolate(follower)
    assert world.until(lambda: len(world.partition("orders").isr) == 2, 10)
    write(world, 3)
    world.heal()
    assert world.until(world.healthy, 20)


def test_a_leader_cut_off_from_all_acknowledges_nothing(world: World) -> None:
    write(world, 5)
    old = world.leader("orders")
    world.isolate(old)
    assert not ok(produce(world, old, b"never", timeout_ms=4000))
    assert world.until(lambda: world.leader("orders") != old, 10)
    written = write(world, 3, "new")
    world.heal()
    assert world.until(world.healthy, 20)
    assert read(world)[-3:] == written
    cut = [b for p, b in world.bodies(LogTruncated) if p.startswith(old)]
    assert cut  # what it alone had stored is gone, by leader epoch
    assert all(b.to_offset >= b.high_watermark for b in cut)  # type: ignore[attr-defined]


def test_an_unacknowledged_leader_write_is_never_read(world: World) -> None:
    leader = world.leader("orders")
    for other in set(BROKERS) - {leader}:
        world.isolate(leader, other)
    world.ask(leader, produce_request(b"uncommitted", acks=1))
    world.run(0.2)
    part = fetch(world, leader)
    assert part.records == b""
    assert part.high_watermark == 0


def test_an_idempotent_resend_is_stored_once(world: World) -> None:
    leader = world.leader("orders")
    batch = idempotent(7, 0, [b"a", b"b"])
    first, again = (world.answer(leader, batch), world.answer(leader, batch))
    assert first == again
    old = leader
    world.kill(old)
    assert world.until(lambda: world.leader("orders") != old, 10)
    world.run(0.5)
    after = world.answer(world.leader("orders"), batch)  # a new leader knows it too
    assert after == first
    assert read(world) == [b"a", b"b"]
    gap = world.answer(world.leader("orders"), idempotent(7, 5, [b"c"]))
    assert error_of(gap) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_is_refused_while_an_earlier_one_of_its_producer_may_come_again(
    world: World,
) -> None:
    """librdkafka takes the earlier batch for stored as soon as the later one is."""
    followers = set(BROKERS) - {world.leader("orders")}
    early, late = idempotent(7, 0, [b"a", b"b"]), idempotent(7, 2, [b"c"])
    assert {error_of(world.answer(one, early)) for one in followers} == {
        Error.NOT_LEADER_OR_FOLLOWER
    }
    world.kill(world.leader("orders"))
    assert world.until(lambda: world.leader("orders") in followers, 10)
    world.run(0.5)
    new = world.leader("orders")
    assert error_of(world.answer(new, late)) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [error_of(world.answer(new, one)) for one in (early, late)] == [Error.NONE] * 2
    assert read(world) == [b"a", b"b", b"c"]


def test_a_producer_that_a_log_does_not_know_may_begin_with_any_sequence_number(
    world: World,
) -> None:
    assert error_of(world.answer(world.leader("orders"), idempotent(7, 5, [b"a"]))) == Error.NONE


def test_a_batch_is_refused_whose_predecessor_a_former_leader_has_lost(
    world: World,
) -> None:
    """librdkafka takes the earlier batch for stored as soon as the later one is. Here the former
    leader has stored the earlier one, and loses it."""
    old = world.leader("orders")
    for other in {*BROKERS} - {old}:
        world.isolate(old, other)
    early, late = idempotent(7, 0, [b"a", b"b"]), idempotent(7, 2, [b"c"])
    world.ask(old, early)
    world.run(0.2)
    world.kill(old)
    assert world.until(lambda: world.leader("orders") not in (old, ""), 10)
    world.run(0.5)
    new = world.leader("orders")
    assert error_of(world.answer(new, late)) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [error_of(world.answer(new, one)) for one in (early, late)] == [Error.NONE] * 2
    assert read(world) == [b"a", b"b", b"c"]


def test_a_broker_that_shuts_down_hands_its_leaderships_over_first(world: World) -> None:
    leader = world.leader("orders")
    world.signal(leader, Signal.TERM)
    assert world.until(lambda: not world.lives(leader), 5)
    assert world.leader("orders") != leader
    reasons = [b.reason for p, b in world.bodies(BrokerStateChanged) if p.startswith(leader)]
    assert reasons[-1] == "shutdown_granted"
    assert ok(produce(world, world.leader("orders"), b"goes on"))


def test_a_starting_broker_answers_no_client(world: World) -> None:
    world.kill("broker-3")
    world.isolate("broker-3", *CONTROLLERS)
    world.start("broker-3")
    assert world.answer("broker-3", m.MetadataRequest(topics=None), 1) is None
    part = fetch(world, "broker-3")
    assert part.error_code != Error.NONE
    assert [b for _, b in world.bodies(RequestRefused) if b.state == "INITIAL"]  # type: ignore[attr-defined]


def test_a_deleted_topic_is_gone_on_every_broker_and_disk(world: World) -> None:
    write(world, 3)
    world.kill("broker-3")
    answer = world.answer("broker-1", m.DeleteTopicsRequest(topic_names=("orders",), timeout=2000))
    assert isinstance(answer, m.DeleteTopicsResponse)
    assert answer.responses[0].error_code == Error.NONE
    world.run(1)
    world.start("broker-3")
    assert world.until(world.healthy, 20)
    world.run(1)
    for slot in BROKERS:
        assert not [log for log in world.disk(slot).logs if log.startswith("orders")]


def test_a_follower_that_is_cut_off_from_a_quiet_log_leaves_the_isr_once(world: World) -> None:
    leader = world.leader("orders")
    for follower in set(BROKERS) - {leader}:
        world.cut(follower, leader)
    assert world.until(lambda: len(world.partition("orders").isr) == 1, 5)
    epoch = world.partition("orders").leader_epoch
    world.run(3)
    assert world.partition("orders").leader_epoch == epoch


def test_a_follower_whose_request_waits_while_it_is_cut_off_leaves_the_isr_once(
    world: World,
) -> None:
    """A fetch from before the log grew is answered when it grows, which proves nothing about the
    follower."""
    leader = world.leader("orders")
    world.run(8)  # by now the followers ask at different times
    for follower in set(BROKERS) - {leader}:
        world.cut(follower, leader)
    world.run(0.1)
    world.ask(leader, produce_request(b"alone", acks=1))
    assert world.until(lambda: len(world.partition("orders").isr) == 1, 5)
    world.run(1)
    asked = [body for _, body in world.bodies(IsrChangeAsked)]
    assert all(set(body.new_isr) < set(body.old_isr) for body in asked)
