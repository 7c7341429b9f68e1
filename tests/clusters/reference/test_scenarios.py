"""The cores together, under virtual time: authority changes hands, and each promise shows."""

from __future__ import annotations

import pytest
from chaos import CONTROLLERS, chaos
from world import SECOND, World, produce_request, read_values

from fencepost_clusters.reference.core.node.effects import ShutdownAsked
from fencepost_clusters.reference.wire import messages as m
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

BROKERS = ("broker-1", "broker-2", "broker-3")


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest) -> World:
    """A healthy cluster with one partition, from three seeds."""
    made = World(request.param)
    assert made.until(made.healthy, 20)
    made.create_topic("orders")
    return made


def ok(part: m.PartitionProduceResponse | None) -> bool:
    return part is not None and part.error_code == Error.NONE


def write(world: World, count: int, prefix: str = "m") -> list[bytes]:
    """Acknowledged messages."""
    values = [f"{prefix}{n}".encode() for n in range(count)]
    for value in values:
        assert world.until(
            lambda v=value: ok(world.produce(world.leader("orders"), "orders", v)), 20
        )
    return values


def read(world: World) -> list[bytes]:
    found: list[bytes] = []
    while True:
        part = world.fetch(world.leader("orders"), "orders", len(found))
        assert part is not None
        assert part.error_code == 0
        values = read_values(part)
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
    assert world.until(lambda: world.broker(victim).lifecycle.state.name == "FENCED", 10)
    fenced_itself = world.now_ns
    node_id = world.layout.slot(victim).node_id
    active = world.active()
    assert active is not None
    assert world.until(lambda: active.committed.image.brokers[node_id].fenced, 10)
    assert world.now_ns >= fenced_itself  # KIP-631: the lease ends at the broker first
    answer = world.produce(victim, "orders", b"late")
    assert answer is not None
    assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert world.answer(victim, m.MetadataRequest(topics=None), 1) is None
    before = world.broker(victim).lifecycle.epoch
    world.cuts.clear()
    assert world.until(world.healthy, 20)
    assert world.broker(victim).lifecycle.epoch > before  # QC-20


def test_an_isolated_controller_resigns_before_its_successor_could_fence(world: World) -> None:
    old = world.active_slot()
    core = world.active()
    assert core is not None
    world.isolate(old)
    cut_at = world.now_ns
    assert world.until(lambda: not core.active, 10)
    assert world.now_ns - cut_at < 1.5 * SECOND
    assert world.until(lambda: world.active() is not None, 10)
    assert world.active_slot() != old
    world.run(3)
    world.cuts.clear()
    assert world.until(world.healthy, 20)
    epochs = [body.epoch for _, body in world.bodies(ControllerElected)]
    assert len(epochs) == len(set(epochs))


def test_an_uncommitted_change_of_an_isolated_controller_is_undone(world: World) -> None:
    old = world.active_slot()
    for other in set(CONTROLLERS) - {old}:
        world.isolate(old, other)
    request = m.CreateTopicsRequest(
        topics=(m.CreatableTopic(name="lost", num_partitions=1, replication_factor=3),),
        timeout=2000,
    )
    asker = world.ask(old, request, listener="CONTROLLER")
    world.run(6)
    assert "lost" not in world.alive[old].core.committed.image.topics
    answer = world.answers.get(asker)
    assert isinstance(answer, m.CreateTopicsResponse)
    assert answer.topics[0].error_code != Error.NONE
    world.cuts.clear()
    assert world.until(world.healthy, 20)
    assert world.until(
        lambda: any(process.startswith(old) for process, _ in world.bodies(MetadataTruncated)), 20
    )
    assert world.bodies(StateReverted)
    assert all("lost" not in x.core.committed.image.topics for x in world.alive.values())


def test_a_controller_that_fell_behind_is_not_elected(world: World) -> None:
    old = world.active_slot()
    world.isolate(old)
    assert world.until(lambda: world.active() is not None and world.active_slot() != old, 10)
    world.create_topic("second")
    world.run(3)
    world.cuts.clear()
    assert world.until(world.healthy, 20)
    world.run(5)
    refused = [b for _, b in world.bodies(VoteAnswered) if b.reason == "log_behind"]  # type: ignore[attr-defined]
    assert refused
    assert all("second" in x.core.committed.image.topics for x in world.alive.values())


def test_the_newest_process_with_an_id_wins_and_the_old_one_is_refused(world: World) -> None:
    write(world, 3)
    old = world.leader("orders")
    duplicate = f"{old}-duplicate"
    world.start(duplicate)
    assert world.until(lambda: world.broker(duplicate).lifecycle.state.name == "ACTIVE", 10)
    assert world.until(lambda: world.broker(old).lifecycle.state.name == "FENCED", 4)
    world.run(2)
    assert world.broker(old).lifecycle.lost
    late = [
        body
        for process, body in world.bodies(HeartbeatAnswered)
        if body.client == f"{old}#1" and body.error == "DUPLICATE_BROKER_REGISTRATION"  # type: ignore[attr-defined]
    ]
    assert late
    assert not ok(world.produce(old, "orders", b"from the loser"))


def test_a_killed_broker_gets_its_id_back_at_once(world: World) -> None:
    world.kill("broker-2")
    world.run(0.2)
    began = world.now_ns
    world.start("broker-2")
    assert world.until(lambda: world.broker("broker-2").lifecycle.state.name == "ACTIVE", 10)
    assert world.now_ns - began < world.timing.lease_ms * 1_000_000 / 2
    assert world.until(world.healthy, 20)


def test_a_dead_follower_blocks_writes_only_until_it_is_dropped(world: World) -> None:
    leader = world.leader("orders")
    follower = next(b for b in BROKERS if b != leader)
    world.isolate(follower)
    assert world.until(lambda: len(world.isr("orders")) == 2, 10)
    write(world, 3)
    world.cuts.clear()
    assert world.until(world.healthy, 20)


def test_a_leader_cut_off_from_all_acknowledges_nothing(world: World) -> None:
    write(world, 5)
    old = world.leader("orders")
    world.isolate(old)
    assert not ok(world.produce(old, "orders", b"never", timeout_ms=4000))
    assert world.until(lambda: world.leader("orders") != old, 10)
    written = write(world, 3, "new")
    world.cuts.clear()
    assert world.until(world.healthy, 20)
    assert read(world)[-3:] == written
    cut = [b for p, b in world.bodies(LogTruncated) if p.startswith(old)]
    assert cut  # what it alone had stored is gone, by leader epoch
    assert all(b.to_offset >= b.high_watermark for b in cut)  # type: ignore[attr-defined]


def test_an_unacknowledged_leader_write_is_never_read(world: World) -> None:
    leader = world.leader("orders")
    for other in set(BROKERS) - {leader}:
        world.isolate(leader, other)
    world.ask(leader, produce_request("orders", b"uncommitted", acks=1))
    world.run(0.2)
    part = world.fetch(leader, "orders", 0)
    assert part is not None
    assert part.records == b""
    assert part.high_watermark == 0


def test_an_idempotent_resend_is_stored_once(world: World) -> None:
    leader = world.leader("orders")
    batch = _idempotent(7, 0, [b"a", b"b"])
    first, again = (world.answer(leader, batch), world.answer(leader, batch))
    assert first == again
    old = leader
    world.kill(old)
    assert world.until(lambda: world.leader("orders") != old, 10)
    world.run(0.5)
    after = world.answer(world.leader("orders"), batch)  # a new leader knows it too
    assert after == first
    assert read(world) == [b"a", b"b"]
    gap = world.answer(world.leader("orders"), _idempotent(7, 5, [b"c"]))
    assert isinstance(gap, m.ProduceResponse)
    code = gap.responses[0].partition_responses[0].error_code
    assert code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def _idempotent(producer: int, sequence: int, values: list[bytes]) -> m.ProduceRequest:
    import struct  # noqa: PLC0415

    from crc32c import crc32c  # noqa: PLC0415

    from fencepost_clusters.reference.wire import record_batch  # noqa: PLC0415

    batch = bytearray(record_batch.build(values, 0, -1, 1))
    struct.pack_into(">qhi", batch, 43, producer, 0, sequence)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    data = m.PartitionProduceData(index=0, records=bytes(batch))
    return m.ProduceRequest(
        acks=-1,
        timeout=1000,
        topic_data=(m.TopicProduceData(name="orders", partition_data=(data,)),),
    )


def test_a_broker_that_shuts_down_hands_its_leaderships_over_first(world: World) -> None:
    leader = world.leader("orders")
    world.step(leader, ShutdownAsked())
    assert world.until(lambda: leader not in world.alive, 5)
    assert world.leader("orders") != leader
    reasons = [b.reason for p, b in world.bodies(BrokerStateChanged) if p.startswith(leader)]
    assert reasons[-1] == "shutdown_granted"
    assert ok(world.produce(world.leader("orders"), "orders", b"goes on"))


def test_a_starting_broker_answers_no_client(world: World) -> None:
    world.kill("broker-3")
    world.isolate("broker-3", *CONTROLLERS)
    world.start("broker-3")
    assert world.answer("broker-3", m.MetadataRequest(topics=None), 1) is None
    part = world.fetch("broker-3", "orders")
    assert part is not None
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
        assert not [log for log in world.disks[slot].logs if log.startswith("orders")]


@pytest.mark.parametrize("seed", range(1, 5))
def test_after_everything_at_once_the_cluster_recovers(seed: int) -> None:
    _, _, recovered = chaos(seed)
    assert recovered


def test_one_seed_is_one_history() -> None:
    assert chaos(11)[0] == chaos(11)[0]


def test_a_follower_that_is_cut_off_from_a_quiet_log_leaves_the_isr_once(world: World) -> None:
    leader = world.leader("orders")
    for follower in set(BROKERS) - {leader}:
        world.cut((follower, leader))
    assert world.until(lambda: len(world.isr("orders")) == 1, 5)
    epoch = world.partition("orders").leader_epoch
    world.run(3)
    assert world.partition("orders").leader_epoch == epoch


def test_a_follower_whose_request_waits_while_it_is_cut_off_leaves_the_isr_once(
    world: World,
) -> None:
    """What was asked before the log grew is answered when it grows: no word of the follower's."""
    leader = world.leader("orders")
    world.run(8)  # by now the followers ask at different times
    for follower in set(BROKERS) - {leader}:
        world.cut((follower, leader))
    world.run(0.1)
    world.ask(leader, produce_request("orders", b"alone", 1))
    assert world.until(lambda: len(world.isr("orders")) == 1, 5)
    world.run(1)
    asked = [body for _, body in world.bodies(IsrChangeAsked)]
    assert all(set(body.new_isr) < set(body.old_isr) for body in asked)
