"""Partitions whose messages no promise covers any more, since their replicas lost their disks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import pytest
from tests.suites.clients import client_histories as c
from tests.suites.partition_histories import (
    ALL3,
    B1,
    B2,
    B3,
    CLAUSES,
    CLIENT,
    CONTROLLER,
    follow,
    lead,
    partition,
    verdict,
    why,
)
from tests.suites.replication import replication_histories as r

from fencepost import Facts, FaultInjected, PhaseStarted, ProcessExited, ProcessSpawned, Scope
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_kafka import (
    BrokerCommitted,
    FollowerFetched,
    ProduceCompleted,
    ProduceInvoked,
    TopicCommitted,
    broker_of,
    partition_at,
)
from fencepost_kafka.judging.forfeits import FORFEITING, Forfeits
from fencepost_kafka.judging.generations import PresentTopics, topics_of_clients
from fencepost_suites import rules

KEEPERS = (PresentTopics, topics_of_clients)
OF_MESSAGES = {one.clause for one in rules.ALL if one.keeper in KEEPERS}


def begun(*isr: int) -> HistoryBuilder:
    """The harness has started three brokers; the ISR is committed."""
    h = HistoryBuilder()
    for broker in ALL3:
        spawned(h, f"broker-{broker}", broker)
    partition(h, 10, leader=isr[0], epoch=1, isr=isr)
    return h


def spawned(
    h: HistoryBuilder, slot: str, node_id: int, role: str = "broker", *, number: int = 1
) -> None:
    body = ProcessSpawned(started=f"{slot}#{number}", slot=slot, role=role, node_id=node_id, pid=1)
    h.add("harness", body)


def strikes(h: HistoryBuilder, fault: str, *slots: str, number: int = 1) -> HistoryBuilder:
    body = FaultInjected(
        fault_id=f"{fault}-{number}",
        fault=fault,
        targets=tuple(f"{slot}#1" for slot in slots),
        receipt=True,
        evidence="",
    )
    h.add("harness", body)
    return h


def forfeited(h: HistoryBuilder) -> list[Facts]:
    """The facts of the reasons, in order."""
    forfeits = Forfeits()
    found = []
    for event in h.events():
        if type(event.body) in Forfeits.kinds:
            forfeits.take(event, event.body)
            for place, reason in forfeits.found if type(event.body) in FORFEITING else ():
                assert place == ("orders", 0)
                assert reason.facts["partition"] == partition_at(*place)
                found.append(reason.facts)
    return found


def brokers(*ids: int) -> tuple[Scope, ...]:
    return tuple(map(broker_of, ids))


@pytest.mark.parametrize("fault", ["wipe_disk", "damage_disk", "lose_power"])
def test_a_partition_whose_only_member_loses_its_disk_is_forfeited(fault: str) -> None:
    (reason,) = forfeited(strikes(begun(3), fault, "broker-3"))
    assert (reason["isr"], reason["lost"]) == (brokers(3), brokers(3))
    assert reason["harms"] == f"{fault}-1"


@pytest.mark.parametrize(
    ("fault", "slot"),
    [
        *(("kill", "broker-3"), ("duplicate_id", "broker-3")),
        *(("wipe_disk", "broker-2"), ("wipe_disk", "broker-9")),
    ],
)
def test_another_fault_and_another_disk_forfeit_nothing(fault: str, slot: str) -> None:
    assert forfeited(strikes(begun(3), fault, slot)) == []


def test_a_partition_is_kept_while_one_member_keeps_its_disk() -> None:
    h = begun(1, 2, 3)
    for number, slot in enumerate(("broker-3", "broker-1")):
        strikes(h, "wipe_disk", slot, number=number)
    assert forfeited(h) == []
    strikes(h, "lose_power", "broker-2")
    (reason,) = forfeited(h)
    assert (reason["isr"], reason["lost"]) == (brokers(1, 2, 3), brokers(1, 2, 3))
    assert reason["harms"] == "lose_power-1, wipe_disk-0, wipe_disk-1"


def test_one_fault_of_several_disks_forfeits_a_partition_once() -> None:
    assert len(forfeited(strikes(begun(1, 2), "wipe_disk", "broker-1", "broker-2"))) == 1


def test_an_isr_that_shrinks_to_what_lost_its_disk_is_forfeited() -> None:
    """The member that left has the messages, and no promise says that a leader waits for it."""
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    partition(h, 11, leader=3, epoch=2, isr=(3,))
    assert len(forfeited(h)) == 1


def test_a_member_that_has_joined_again_has_the_messages() -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    partition(h, 11, leader=1, epoch=2, isr=(1,))
    spawned(h, "broker-3", 3)
    partition(h, 12, leader=1, epoch=3, isr=(1, 3))
    partition(h, 13, leader=3, epoch=4, isr=(3,))
    assert forfeited(h) == []


def writes(h: HistoryBuilder, operation: str = "op-1", acks: int = -1) -> None:
    h.add(CLIENT, ProduceInvoked(operation=operation, topic="orders", partition=0, acks=acks))


def acknowledged(h: HistoryBuilder, outcome: Literal["ok", "unknown"] = "ok") -> None:
    body = ProduceCompleted(
        operation="op-1",
        topic="orders",
        partition=0,
        acks=-1,
        outcome=outcome,
        offset=7,
        error="",
    )
    h.add(CLIENT, body)


def test_a_member_that_stayed_has_the_messages_once_a_later_write_is_acknowledged() -> None:
    """Over ZooKeeper a broker can return before its old session is over."""
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    spawned(h, "broker-3", 3)
    writes(h)
    acknowledged(h)
    strikes(h, "wipe_disk", "broker-1", number=2)
    assert forfeited(h) == []
    strikes(h, "wipe_disk", "broker-3", number=3)
    assert len(forfeited(h)) == 1


@pytest.mark.parametrize("why", ["invoked before", "harmed again", "unknown", "acks=1", "not back"])
def test_another_write_does_not_show_that_a_member_has_the_messages(why: str) -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    if why == "invoked before":
        writes(h)
    if why != "not back":
        spawned(h, "broker-3", 3)
    if why != "invoked before":
        writes(h, acks=1 if why == "acks=1" else -1)
    if why == "harmed again":
        strikes(h, "lose_power", "broker-3", number=2)
        spawned(h, "broker-3", 3)
    acknowledged(h, "unknown" if why == "unknown" else "ok")
    strikes(h, "wipe_disk", "broker-1", number=3)
    assert len(forfeited(h)) == 1


def test_a_write_shows_nothing_of_a_replica_that_is_eligible_beside_the_isr() -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    partition(h, 11, leader=1, epoch=2, isr=(1,), eligible=(3,))
    spawned(h, "broker-3", 3)
    writes(h)
    acknowledged(h)
    assert len(forfeited(strikes(h, "wipe_disk", "broker-1", number=2))) == 1


def test_a_record_that_another_node_replays_later_changes_nothing() -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    partition(h, 9, leader=3, epoch=0, isr=(3,), process=B2)
    partition(h, 10, leader=1, epoch=1, isr=(1, 3), process=B2)
    assert forfeited(h) == []


def test_a_topic_that_is_made_again_has_its_messages_on_the_disk_as_it_is() -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-3")
    h.add(CONTROLLER, TopicCommitted(offset=11, topic="orders", topic_id="a", deleted=True))
    partition(h, 12, leader=3, epoch=0, isr=(3,))
    h.add(B1, TopicCommitted(offset=11, topic="orders", topic_id="a", deleted=True))
    assert forfeited(h) == []
    strikes(h, "wipe_disk", "broker-3", number=2)
    assert len(forfeited(h)) == 1


def test_a_record_of_a_deleted_topic_that_is_replayed_late_forfeits_nothing() -> None:
    h = begun(1, 3)
    h.add(CONTROLLER, TopicCommitted(offset=11, topic="orders", topic_id="a", deleted=True))
    partition(h, 10, leader=3, epoch=2, isr=(3,), process=B2)
    assert forfeited(strikes(h, "wipe_disk", "broker-3")) == []


def test_a_member_whose_joining_is_replayed_after_its_disk_was_harmed_has_no_messages() -> None:
    """It has had no process since, so it joined before."""
    h = strikes(begun(1), "wipe_disk", "broker-3")
    partition(h, 11, leader=1, epoch=1, isr=(1, 3))
    strikes(h, "wipe_disk", "broker-1", number=2)
    assert len(forfeited(h)) == 1


def test_a_replica_that_is_eligible_beside_the_isr_has_the_messages() -> None:
    """KIP-966."""
    h = begun(1, 3)
    partition(h, 11, leader=3, epoch=2, isr=(3,), eligible=(1,))
    assert forfeited(strikes(h, "wipe_disk", "broker-3")) == []
    (reason,) = forfeited(strikes(h, "wipe_disk", "broker-1", number=2))
    assert (reason["isr"], reason["beside"]) == (brokers(3), brokers(1))
    assert reason["lost"] == brokers(1, 3)


def test_a_harmed_member_that_becomes_eligible_has_no_messages_until_it_joins_again() -> None:
    h = strikes(begun(1, 3), "wipe_disk", "broker-1")
    partition(h, 11, leader=3, epoch=2, isr=(3,), eligible=(1,))
    assert len(forfeited(strikes(h, "wipe_disk", "broker-3", number=2))) == 1
    h = strikes(begun(1, 3), "wipe_disk", "broker-1")
    partition(h, 11, leader=3, epoch=2, isr=(3,), eligible=(1,))
    spawned(h, "broker-1", 1)
    partition(h, 12, leader=3, epoch=3, isr=(1, 3))
    assert forfeited(strikes(h, "wipe_disk", "broker-3", number=2)) == []


def test_a_controllers_disk_holds_no_messages() -> None:
    h = begun(3)
    spawned(h, "controller-3", 3, role="controller")
    assert forfeited(strikes(h, "wipe_disk", "controller-3")) == []


def test_a_partition_whose_only_members_id_is_taken_over_is_forfeited() -> None:
    h = begun(3)
    spawned(h, "broker-3-duplicate", 3)
    body = BrokerCommitted(offset=71, broker_id=3, broker_epoch=71, fenced=False, incarnation="x")
    h.add(CONTROLLER, body)
    (reason,) = forfeited(h)
    assert reason["harms"] == "broker-3-duplicate#1 had its id"


def deleted(h: HistoryBuilder, offset: int) -> None:
    body = TopicCommitted(offset=offset, topic="orders", topic_id="a", deleted=True)
    h.add(CONTROLLER, body)


def gone_after(h: HistoryBuilder) -> Collection[tuple[str, int]]:
    """The partitions that are forfeited at the end."""
    forfeits = Forfeits()
    for event in h.events():
        if type(event.body) in Forfeits.kinds:
            forfeits.take(event, event.body)
    return forfeits.gone


def test_the_partitions_of_a_deleted_topic_are_forfeited_no_more() -> None:
    h = strikes(begun(3), "wipe_disk", "broker-3")
    assert [*gone_after(h)] == [("orders", 0)]
    deleted(h, 11)
    assert not gone_after(h)


def test_the_word_of_one_broker_alone_ends_no_forfeit() -> None:
    h = strikes(over("controller", 3), "wipe_disk", "broker-3")
    body = TopicCommitted(offset=11, topic="orders", topic_id="a", deleted=True)
    h.add("broker-3#1", body)
    assert [*gone_after(h)] == [("orders", 0)]
    h.add("broker-1#1", body)
    assert not gone_after(h)


def test_no_failure_of_before_a_deletion_counts_for_the_next_topic() -> None:
    for keeper in ("controller", "zookeeper"):
        h = strikes(over(keeper, 2, 3), "wipe_disk", "broker-3")
        if keeper == "zookeeper":
            ended(h, "broker-3")
        spawned(h, "broker-3", 3)
        deleted(h, 11)
        partition(h, 12, leader=3, epoch=0, isr=(2, 3))
        assert forfeited(strikes(h, "wipe_disk", "broker-2", number=2)) == []


def test_a_record_that_is_replayed_again_forfeits_nothing_again() -> None:
    h = strikes(begun(3), "wipe_disk", "broker-3")
    partition(h, 10, leader=3, epoch=1, isr=(3,), process=B2)
    assert len(forfeited(h)) == 1


@pytest.mark.parametrize("eligible", [False, True])
def test_a_harmed_replica_that_returns_has_no_messages_while_it_does_not_join_anew(
    eligible: bool,
) -> None:
    h = begun(1, 3)
    if eligible:
        partition(h, 11, leader=1, epoch=2, isr=(1,), eligible=(3,))
    strikes(h, "wipe_disk", "broker-3")
    spawned(h, "broker-3", 3)
    if eligible:
        partition(h, 12, leader=1, epoch=3, isr=(1,), eligible=(3,))
    else:
        partition(h, 12, leader=1, epoch=3, isr=(1, 3))
    assert len(forfeited(strikes(h, "wipe_disk", "broker-1", number=2))) == 1


def test_the_broker_with_the_id_0_may_fail() -> None:
    h = over("zookeeper", 0, 3)
    spawned(h, "broker-0", 0)
    ended(h, "broker-0")
    assert len(forfeited(strikes(h, "wipe_disk", "broker-3"))) == 1


def ended(h: HistoryBuilder, slot: str) -> None:
    body = ProcessExited(ended=f"{slot}#1", exit_code=0, signal=9, expected=True)
    h.add("harness", body)


def over(keeper: str, *isr: int) -> HistoryBuilder:
    """As `begun`, where such servers keep the metadata."""
    h = begun(*isr)
    spawned(h, f"{keeper}-1", 201, role=keeper)
    return h


@pytest.mark.parametrize(("keeper", "gone"), [("zookeeper", 1), ("controller", 0)])
@pytest.mark.parametrize("loss_first", [True, False])
def test_over_zookeeper_a_lost_disk_forfeits_a_partition_whose_other_members_failed(
    keeper: str, gone: int, loss_first: bool
) -> None:
    h = over(keeper, 2, 3)
    if loss_first:
        strikes(h, "lose_power", "broker-3")
    ended(h, "broker-2")
    if not loss_first:
        strikes(h, "lose_power", "broker-3")
    lost = [(reason["isr"], reason["lost"]) for reason in forfeited(h)]
    assert lost == [(brokers(2, 3), brokers(3))] * gone


def test_failures_alone_and_that_of_a_second_process_forfeit_nothing() -> None:
    h = over("zookeeper", 2, 3)
    ended(h, "broker-2")
    ended(h, "broker-3")
    assert forfeited(h) == []
    h = strikes(over("zookeeper", 2, 3), "wipe_disk", "broker-3")
    spawned(h, "broker-2-duplicate", 2)
    ended(h, "broker-2-duplicate")
    assert forfeited(h) == []


def counts(h: HistoryBuilder, offset: int, client: str, leader: str = B3) -> None:
    """A leader counts a process of broker 2 up to that offset."""
    body = FollowerFetched(
        topic="orders",
        partition=0,
        leader_epoch=1,
        follower=2,
        client=client,
        broker_epoch=1,
        offset=offset,
    )
    h.add(leader, body)


@pytest.mark.parametrize(
    ("offset", "client", "leader", "gone"),
    [(7, 2, B3, 0), (8, 2, B1, 0), (6, 2, B3, 1), (7, 1, B3, 1), (7, 2, "broker-2#2", 1)],
)
def test_a_member_that_failed_has_not_once_a_leader_counts_its_next_process(
    offset: int, client: int, leader: str, gone: int
) -> None:
    """As far as a leader has counted any follower."""
    h = over("zookeeper", 2, 3)
    counts(h, 7, B2)
    ended(h, "broker-2")
    spawned(h, "broker-2", 2, number=2)
    counts(h, offset, f"broker-2#{client}", leader)
    assert len(forfeited(strikes(h, "wipe_disk", "broker-3"))) == gone


def test_an_ended_process_that_is_counted_late_has_failed() -> None:
    h = over("zookeeper", 2, 3)
    ended(h, "broker-2")
    counts(h, 7, B2)
    assert len(forfeited(strikes(h, "wipe_disk", "broker-3"))) == 1


@pytest.mark.parametrize("back", [True, False])
def test_a_harmed_member_has_the_messages_once_a_leader_counts_its_next_process(back: bool) -> None:
    h = begun(2, 3)
    counts(h, 7, B2)
    strikes(h, "wipe_disk", "broker-2")
    if back:
        spawned(h, "broker-2", 2, number=2)
    counts(h, 7, "broker-2#2" if back else B2)
    assert len(forfeited(strikes(h, "wipe_disk", "broker-3", number=2))) == (not back)


def test_a_broker_that_ends_with_the_run_has_not_failed() -> None:
    h = strikes(over("zookeeper", 2, 3), "wipe_disk", "broker-3")
    h.add("harness", PhaseStarted(phase="end"))
    ended(h, "broker-2")
    assert forfeited(h) == []


def test_a_member_that_failed_has_not_once_it_joins_again_or_a_later_write_is_acknowledged() -> (
    None
):
    h = over("zookeeper", 2, 3)
    ended(h, "broker-2")
    partition(h, 11, leader=3, epoch=2, isr=(3,))
    partition(h, 12, leader=3, epoch=2, isr=(2, 3))
    assert forfeited(strikes(h, "wipe_disk", "broker-3")) == []
    h = over("zookeeper", 2, 3)
    ended(h, "broker-2")
    writes(h)
    acknowledged(h)
    assert forfeited(strikes(h, "wipe_disk", "broker-3")) == []


# ------------------------------------------------------------------------------------------- rules


def lost(*isr: int) -> HistoryBuilder:
    """Broker 1 has committed a message; broker 2 leads after it with an empty log."""
    h = begun(*isr)
    lead(h, B1, 1)
    r.store(h, B1, 0, as_leader=True)
    r.mark(h, B1, 1)
    return h


def next_leader(h: HistoryBuilder) -> HistoryBuilder:
    partition(h, 20, leader=2, epoch=2, isr=(2,))
    lead(h, B2, 2)
    return h


def test_a_loss_from_a_forfeited_partition_is_excused_with_the_reason() -> None:
    assert verdict(next_leader(lost(1, 2)), "RP-06").verdict is Outcome.VIOLATED
    h = lost(1, 2)
    for number, slot in enumerate(("broker-1", "broker-2")):
        strikes(h, "wipe_disk", slot, number=number)
    found = verdict(next_leader(h), "RP-06")
    # Once for each of its two rules; the one that has seen the next record, too, once more.
    assert (found.violated, found.excused) == (0, 3)
    assert why(found, "partition", "lost") == ("orders-0", ("broker 1", "broker 2"))


def test_a_loss_while_one_member_kept_its_disk_is_a_loss() -> None:
    h = strikes(lost(1, 2, 3), "wipe_disk", "broker-1")
    assert verdict(next_leader(h), "RP-06").verdict is Outcome.VIOLATED


def test_no_rule_about_messages_judges_a_forfeited_partition() -> None:
    kept, gone = lost(1, 2), lost(1, 2)
    for number, slot in enumerate(("broker-1", "broker-2")):
        strikes(gone, "wipe_disk", slot, number=number)
    violated = [
        OF_MESSAGES & {*judge(h.events(), rules.ALL, CLAUSES, h.end(True), "quorum").broken}
        for h in (next_leader(kept), next_leader(gone))
    ]
    assert violated == [{"RP-06"}, set()]


# ------------------------------------------------------------------------------------- begins anew


def wiped() -> HistoryBuilder:
    """Broker 1, the only member of the ISR, loses its disk with a write that was acknowledged; then
    broker 2 leads, and the others join the ISR."""
    h = lost(1)
    c.invoke_named(h, "op-0")
    c.acked(h, 0)
    strikes(h, "wipe_disk", "broker-1")
    partition(h, 20, leader=2, epoch=2, isr=(2,))
    partition(h, 21, leader=2, epoch=3, isr=ALL3)
    lead(h, B2, 3)
    follow(h, B3, 0, 0, leader=2, epoch=3)
    return h


def written(h: HistoryBuilder) -> HistoryBuilder:
    """A write is stored by brokers 2 and 3, committed, and acknowledged."""
    c.invoke_named(h, "new-0")
    for process in (B2, B3):
        r.store(h, process, 0, digest="new", as_leader=process == B2, epoch=3)
        r.mark(h, process, 1)
    c.acked(h, 0, "new-0")
    return h


def test_what_is_written_after_a_forfeit_is_promised_again() -> None:
    """Nothing struck the disks of brokers 2 and 3 since."""
    h = written(wiped())
    partition(h, 30, leader=3, epoch=4, isr=(3,))
    c.read(h, 1)
    found = verdict(h, "JEPSEN-lost-write")
    assert (found.verdict, found.violated, found.excused) == (Outcome.VIOLATED, 1, 1)


def test_what_a_forfeit_took_is_missed_by_nobody_later() -> None:
    """`op-0` is nowhere, and another write has its offset."""
    h = written(wiped())
    c.poll(h, c.READER, 0, o0="new-0")
    c.read(h, 1)
    judged = judge(h.events(), rules.ALL, CLAUSES, h.end(True), "quorum")
    assert not OF_MESSAGES & {*judged.broken}


def test_a_partition_that_began_anew_is_forfeited_again_with_its_next_disks() -> None:
    h = written(wiped())
    strikes(h, "wipe_disk", "broker-2", "broker-3", "broker-1", number=2)
    partition(h, 30, leader=3, epoch=4, isr=(3,))
    c.read(h, 1)
    found = verdict(h, "JEPSEN-lost-write")
    assert (found.violated, found.excused) == (0, 2)


def test_a_partition_does_not_begin_anew_while_two_processes_may_be_a_member() -> None:
    """A record that names broker 1 may be of either, and so may what is read from it."""
    h = lost(1)
    spawned(h, "broker-1-duplicate", 1)
    body = BrokerCommitted(offset=71, broker_id=1, broker_epoch=71, fenced=False, incarnation="x")
    h.add(CONTROLLER, body)
    partition(h, 20, leader=1, epoch=2, isr=(1, 2))
    written(h)
    c.read(h, 1)
    assert verdict(h, "JEPSEN-lost-write").violated == 0


def test_what_was_found_before_a_forfeit_is_not_forgotten() -> None:
    """A message was at two offsets, an hour before the disk was lost."""
    h = lost(1)
    c.invoke(h)
    c.poll(h, c.READER, 0, 7, o0="op", o7="op")
    strikes(h.after(3_600_000), "wipe_disk", "broker-1")
    found = verdict(h, "JEPSEN-duplicate")
    assert (found.violated, found.excused) == (1, 1)


def test_a_message_that_was_begun_before_is_no_duplicate_after_a_forfeit() -> None:
    """Its producer may not be idempotent: who began then is not known."""
    h = wiped()
    c.poll(h, c.READER, 0, 1, o0="old", o1="old")
    assert verdict(h, "JEPSEN-duplicate").violated == 0


@pytest.mark.parametrize(("before", "violated"), [(True, 0), (False, 1)])
def test_a_message_in_flight_at_a_forfeit_is_no_duplicate_after_it(
    before: bool, violated: int
) -> None:
    """Its producer may have begun an epoch meanwhile, when nothing of the partition counted."""
    h = lost(1)
    if before:
        c.invoke_named(h, "sent", idempotent=True)
    strikes(h, "wipe_disk", "broker-1")
    partition(h, 20, leader=2, epoch=2, isr=(2,))
    partition(h, 21, leader=2, epoch=3, isr=ALL3)
    lead(h, B2, 3)
    written(h)
    if not before:
        c.invoke_named(h, "sent", idempotent=True)
    c.poll(h, c.READER, 1, 2, o1="sent", o2="sent")
    assert verdict(h, "JEPSEN-duplicate").violated == violated


@pytest.mark.parametrize(("leaders", "violated"), [((1,), 1), ((1, 3), 0)])
def test_what_one_leader_lost_before_a_forfeit_is_not_forgotten(
    leaders: tuple[int, ...], violated: int
) -> None:
    """A reading missed it an hour before the disk was lost."""
    h = lost(1)
    for epoch, leader in enumerate(leaders, 1):
        partition(h, 10 + epoch, leader=leader, epoch=epoch, isr=(1,))
    c.acked(h, 0, "one", acks=1)
    c.read(h, 1)
    strikes(h.after(3_600_000), "wipe_disk", "broker-1")
    assert verdict(h, "JEPSEN-lost-write-acks1").violated == violated
