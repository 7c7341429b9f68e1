"""Which process leads in which epoch, of which topic of a name (RP-24)."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import (
    B1,
    B2,
    B3,
    CONTROLLER,
    lead,
    partition,
    stated,
    verdict,
)

from fencepost import ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeclared,
    FollowerFetched,
    HighWatermarkAdvanced,
    TopicCommitted,
)


def test_a_leader_that_names_its_epoch_again_keeps_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B1, 3)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


def test_a_process_that_names_a_former_epoch_of_its_own_late_keeps_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B2, 2)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


def test_a_deletion_that_is_replayed_late_does_not_delete_the_topic_that_was_made_since() -> None:
    """Its brokers, such as Kafka's, record no topics."""
    h = HistoryBuilder()
    for observer, offset, deleted in (("1", 7, True), ("1", 9, False), ("2", 7, True)):
        body = TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=deleted)
        h.add(f"clients/observer-{observer}#1", body)
    for process in (B1, B2):
        lead(h, process, 0, log_end=7)
    assert verdict(h, "RP-24").verdict is Outcome.VIOLATED


def made(h: HistoryBuilder, process: str, offset: int, deleted: bool = False) -> None:
    h.add(process, TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=deleted))


def test_a_node_that_knows_the_next_topic_by_a_snapshot_has_not_read_the_former_one_on() -> None:
    """Another node, which knows the former topic by a snapshot, replays its last record late."""
    h = HistoryBuilder()
    made(h, CONTROLLER, 10, deleted=True)
    partition(h, 9, leader=1, epoch=6, process=B2)
    made(h, CONTROLLER, 11)
    partition(h, 12, leader=1, epoch=0)
    partition(h, 13, leader=1, epoch=1, process=B1)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


def test_a_node_that_skips_the_deletion_by_a_snapshot_begins_with_the_next_topic() -> None:
    h = HistoryBuilder()
    made(h, B1, 5)
    partition(h, 9, leader=1, epoch=6, process=B1)
    made(h, CONTROLLER, 10, deleted=True)
    partition(h, 13, leader=1, epoch=1, process=B1)
    assert verdict(h, "RP-24").violated == 0
    partition(h, 14, leader=2, epoch=1, process=B1)
    assert verdict(h, "RP-24").violated == 1


def test_records_of_the_former_topic_are_judged_though_its_deletion_is_known() -> None:
    h = HistoryBuilder()
    made(h, B1, 5)
    made(h, CONTROLLER, 10, deleted=True)
    partition(h, 8, leader=1, epoch=6, process=B1)
    partition(h, 9, leader=2, epoch=6, process=B1)
    assert verdict(h, "RP-24").violated == 1


@pytest.mark.parametrize(("epoch", "violated"), [(1, 0), (0, 1)])
def test_processes_that_load_snapshots_read_records_of_the_topic_that_there_is_at_their_offset(
    epoch: int, violated: int
) -> None:
    """The first one begins with the former topic, the second with the topic that was made since."""
    h = HistoryBuilder()
    for offset, deleted in ((3, False), (8, True), (9, False)):
        made(h, CONTROLLER, offset, deleted)
    partition(h, 10, leader=1, epoch=0)
    partition(h, 7, leader=1, epoch=2, process=B1)
    partition(h, 11, leader=2, epoch=epoch, process=B2)
    assert verdict(h, "RP-24").violated == violated


@pytest.mark.parametrize(
    ("given_by", "violated"), [("a controller over ZooKeeper", 0), ("a record", 1), ("nobody", 1)]
)
def test_over_zookeeper_two_processes_of_one_id_may_lead_in_one_epoch(
    given_by: str, violated: int
) -> None:
    """A controller that is elected as the id goes to the second one begins no epoch. Records of a
    quorum would."""
    h = HistoryBuilder()
    second = "broker-1-duplicate#1"
    for process in (B1, second):
        slot = process.partition("#")[0]
        body = ProcessSpawned(started=process, slot=slot, role="broker", node_id=1, pid=1)
        h.add("harness", body)
    lead(h, B1, 3)
    if given_by == "a record":
        registered = BrokerCommitted(
            offset=193, broker_id=1, broker_epoch=193, fenced=False, incarnation="second"
        )
        h.add(CONTROLLER, registered)
    elif given_by != "nobody":
        declared = BrokerDeclared(
            broker_id=1,
            incarnation_id=193,
            old="Absent",
            new="Active",
            reason="controller_elected",
            version=5,
            silent_ms=0,
            timeout_ms=3000,
            controller_epoch=2,
        )
        h.add("broker-2#1", declared)
    lead(h, second, 3)
    found = verdict(h, "RP-24")
    assert (found.violated, found.excused) == (violated, 1 - violated)


@pytest.mark.parametrize("own", [None, 2])
def test_leaders_of_one_topic_share_an_epoch_whatever_records_of_it_they_have_read(
    own: int | None,
) -> None:
    """The second has loaded a snapshot, and so read no record of the topic; or it names another."""
    h = HistoryBuilder()
    made(h, B1, 1)
    if own is not None:
        made(h, B2, own)
    for process in (B1, B2):
        lead(h, process, 3)
    assert stated(verdict(h, "RP-24"), "process", "other", "epoch") == (B2, B1, 3)


@pytest.mark.parametrize(("late_ms", "violated"), [(5, 0), (6_000, 1)])
def test_an_observer_may_tell_a_deletion_after_the_next_topic_is_led(
    late_ms: int, violated: int
) -> None:
    """Kafka's brokers record no topics, and an observer asks for the records now and then."""
    h = HistoryBuilder()
    lead(h, B1, 0)
    h.after(1_000)
    lead(h, B2, 0)
    h.after(late_ms)
    made(h, "clients/observer#1", 9, deleted=True)
    assert verdict(h, "RP-24").violated == violated


def spawn(h: HistoryBuilder) -> None:
    for node, process in enumerate((B1, B2, B3, CONTROLLER), 1):
        slot = process.partition("#")[0]
        role = slot.partition("-")[0]
        body = ProcessSpawned(started=process, slot=slot, role=role, node_id=node, pid=1)
        h.add("harness", body)


@pytest.mark.parametrize(("epoch", "named"), [(6, False), (4, False), (5, True)])
def test_a_leadership_that_no_record_gave_breaks_rp_24(epoch: int, named: bool) -> None:
    """Broker 2 leads by its own word: in an epoch that no record began, or in broker 1's, which
    says nothing itself."""
    h = HistoryBuilder()
    spawn(h)
    partition(h, 30, leader=1, epoch=5)
    lead(h, B2, epoch)
    h.after(60_000)
    partition(h, 31, leader=1, epoch=7)
    found = verdict(h, "RP-24")
    assert stated(found, "process", "epoch") == (B2, epoch)
    assert ("named" in found.violations[0].facts) is named


def test_a_leader_is_not_believed_that_a_record_names_it() -> None:
    h = HistoryBuilder()
    spawn(h)
    partition(h, 30, leader=1, epoch=5, role="controller")
    partition(h, 31, leader=2, epoch=6, process=B2, role="broker")
    lead(h, B2, 6)
    h.after(60_000)
    partition(h, 32, leader=1, epoch=7)
    assert stated(verdict(h, "RP-24"), "process", "epoch") == (B2, 6)


def test_over_zookeeper_a_leader_alone_may_know_of_the_record_that_names_it() -> None:
    """No node there does nothing but control, so the controller may be the leader itself."""
    h = HistoryBuilder()
    for node, process in enumerate((B1, B2), 1):
        slot = process.partition("#")[0]
        h.add(
            "harness",
            ProcessSpawned(started=process, slot=slot, role="broker", node_id=node, pid=1),
        )
    partition(h, 30, leader=1, epoch=5, process=B1, role="controller")
    partition(h, 31, leader=2, epoch=6, process=B2, role="controller")
    lead(h, B2, 6)
    h.after(60_000)
    partition(h, 32, leader=1, epoch=7, process=B1)
    assert verdict(h, "RP-24").violated == 0


def test_a_record_that_gives_an_epoch_to_broker_0_names_a_leader() -> None:
    h = HistoryBuilder()
    spawn(h)
    partition(h, 30, leader=0, epoch=5)
    lead(h, B2, 5)
    h.after(60_000)
    partition(h, 31, leader=1, epoch=7)
    assert stated(verdict(h, "RP-24"), "named") == ("broker 0",)


@pytest.mark.parametrize("why", ["told later", "records skipped", "the run ends", "none told"])
def test_a_record_that_may_be_there_gives_a_leadership(why: str) -> None:
    h = HistoryBuilder()
    spawn(h)
    if why != "none told":
        partition(h, 30, leader=1, epoch=5)
    lead(h, B2, 6)
    if why != "the run ends":
        h.after(60_000)
    if why == "told later":
        partition(h, 31, leader=2, epoch=6)
    if why != "none told":
        partition(h, 32, leader=1, epoch=7, skipped=1 if why == "records skipped" else 0)
    assert verdict(h, "RP-24").violated == 0


@pytest.mark.parametrize(("process", "epoch", "broken"), [(B1, 3, 0), (B2, 3, 1), (B1, 4, 1)])
@pytest.mark.parametrize("what", ["counts", "commits", "follows"])
def test_a_broker_that_acts_as_leader_in_the_epoch_of_another_breaks_rp_24(
    process: str, epoch: int, broken: int, what: str
) -> None:
    """It says nothing of leading."""
    h = HistoryBuilder()
    for node, one in enumerate((B1, B2, B3), 1):
        h.add(
            "harness",
            ProcessSpawned(
                started=one, slot=one.split("#")[0], role="broker", node_id=node, pid=node
            ),
        )
    partition(h, 1, leader=1, epoch=3)
    lead(h, B1, 3)
    counted = FollowerFetched(
        topic="orders",
        partition=0,
        leader_epoch=epoch,
        follower=3,
        client=B3,
        broker_epoch=1,
        offset=2,
    )
    committed = HighWatermarkAdvanced(
        topic="orders",
        partition=0,
        high_watermark=2,
        log_end=2,
        leader_epoch=epoch,
        as_leader=what == "commits",
        isr=(),
        counted=(),
    )
    h.add(process, counted if what == "counts" else committed)
    h.after(60_000)
    assert verdict(h, "RP-24").violated == (broken and what != "follows")
