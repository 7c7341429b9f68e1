"""The rules of leadership, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated
from tests.suites.replication import replication_histories
from tests.suites.replication.replication_histories import PROBE, probe

from fencepost import Event, Evidence
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    FetchServed,
    FollowingStarted,
    HeartbeatAnswered,
    HeartbeatSent,
    LeadershipEnded,
    LeadershipStarted,
    LeaseExpired,
    PartitionCommitted,
    RequestRefused,
    TopicCommitted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, OTHER = "controller-1#1", "controller-2#1"
B1, B2 = "broker-1#1", "broker-2#1"
ALL3 = (1, 2, 3)
MS = 1_000_000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def partition(
    h: HistoryBuilder,
    offset: int,
    leader: int,
    epoch: int,
    isr: tuple[int, ...] = ALL3,
    process: str = CONTROLLER,
    number: int = 0,
) -> None:
    h.add(
        process,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=number,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=ALL3,
        ),
    )


def broker(h: HistoryBuilder, offset: int, number: int, fenced: bool) -> Event:
    return h.add(
        CONTROLLER,
        BrokerCommitted(
            offset=offset,
            broker_id=number,
            broker_epoch=offset,
            fenced=fenced,
            incarnation=f"i{number}",
        ),
    )


def lead(h: HistoryBuilder, process: str, epoch: int) -> None:
    h.add(
        process,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=ALL3,
            log_start=0,
            log_end=7,
            high_watermark=7,
        ),
    )


def stop(h: HistoryBuilder, process: str, epoch: int, reason: str = "metadata") -> None:
    h.add(process, LeadershipEnded(topic="orders", partition=0, leader_epoch=epoch, reason=reason))


# ------------------------------------------------------------------------------------------ QC-18


def ask(h: HistoryBuilder, correlation: int = 1) -> None:
    h.add(
        B1,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=correlation,
            target_state="SHUTDOWN",
            lease_start_ms=0,
            metadata_offset=3,
        ),
    )


def answer(h: HistoryBuilder, next_state: str) -> None:
    h.add(
        CONTROLLER,
        HeartbeatAnswered(
            client=B1,
            broker_id=1,
            incarnation="i1",
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state=next_state,
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=True,
        ),
    )


def expire(h: HistoryBuilder) -> None:
    h.add(
        CONTROLLER,
        LeaseExpired(
            broker_id=1,
            broker_epoch=5,
            last_heard_ns=0,
            now_ns=3000 * MS,
            lease_period_ms=3000,
            controller_epoch=1,
        ),
    )


def test_shutdown_granted_while_leading_breaks_qc_18() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    answer(h, "SHUTDOWN")
    assert stated(verdict(h, "QC-18"), "places") == ("orders-0",)


def test_shutdown_granted_with_the_handover_in_one_decision_breaks_qc_18() -> None:
    """The broker leads no partition at the answer, but led all of them at the fencing record in the
    same decision."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    fenced = broker(h, 4, 1, fenced=True)
    partition(h, 5, leader=2, epoch=1, isr=(2, 3))
    answer(h, "SHUTDOWN")
    violation = verdict(h, "QC-18").violations[0]
    assert stated(violation, "places") == ("orders-0",)
    assert (violation.at, violation.because) == (fenced.ref, (h.events()[1].ref,))


def test_shutdown_granted_while_leading_again_is_no_matter_of_an_older_fencing() -> None:
    h = HistoryBuilder()
    ask(h)
    broker(h, 3, 1, fenced=True)
    broker(h, 4, 1, fenced=False)
    partition(h, 5, leader=1, epoch=0)
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").violations[0].at == h.events()[-1].ref


def test_shutdown_held_back_until_the_handover_keeps_qc_18() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    partition(h, 4, leader=2, epoch=1)
    answer(h, "ACTIVE")
    ask(h, 2)
    broker(h, 5, 1, fenced=True)
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").verdict is Outcome.HOLDS


def test_a_later_shutdown_that_is_granted_at_once_does_not_exercise_qc_18() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    answer(h, "ACTIVE")
    partition(h, 4, leader=2, epoch=1)
    answer(h, "SHUTDOWN")
    ask(h, 2)
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").exercised == 1


def test_a_broker_fenced_for_its_silence_may_shut_down_at_once() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    expire(h)
    broker(h, 4, 1, fenced=True)
    partition(h, 5, leader=2, epoch=1, isr=(2, 3))
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_was_silent_before_must_hand_over_once_it_is_back() -> None:
    h = HistoryBuilder()
    expire(h)
    for offset, fenced in ((3, True), (4, False)):
        broker(h, offset, 1, fenced)
    partition(h, 5, leader=1, epoch=0)
    ask(h)
    broker(h, 6, 1, fenced=True)
    partition(h, 7, leader=2, epoch=1, isr=(2, 3))
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").verdict is Outcome.VIOLATED


def test_a_deleted_topic_holds_back_no_shutdown() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    h.add(CONTROLLER, TopicCommitted(offset=4, topic="orders", topic_id="t", deleted=True))
    partition(h, 3, leader=1, epoch=0, process=OTHER)
    ask(h)
    answer(h, "SHUTDOWN")
    assert verdict(h, "QC-18").verdict is Outcome.NOT_EXERCISED


def test_qc_18_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0)
    ask(h)
    answer(h, "ACTIVE")
    assert verdict(h, "QC-18", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-18


def store(h: HistoryBuilder, process: str = B1, as_leader: bool = True) -> None:
    replication_histories.store(h, process, 7, as_leader=as_leader)


def replaced(h: HistoryBuilder) -> None:
    partition(h, 3, leader=1, epoch=0, process=B1)
    lead(h, B1, 0)
    store(h)
    partition(h, 4, leader=2, epoch=1, process=B1)


def test_a_write_stored_by_a_leader_that_stepped_down_breaks_rp_18() -> None:
    h = HistoryBuilder()
    replaced(h)
    stop(h, B1, 0)
    store(h)
    assert verdict(h, "RP-18").violated == 1


def test_a_write_stored_after_replaying_the_next_leader_breaks_rp_18() -> None:
    h = HistoryBuilder()
    replaced(h)
    store(h)
    found = verdict(h, "RP-18").violations[0]
    assert found.evidence is Evidence.PEER
    assert [str(ref) for ref in found.because] == [f"{B1}@3"]


def test_a_write_stored_by_a_broker_that_never_led_breaks_rp_18() -> None:
    h = HistoryBuilder()
    store(h, B2)
    assert stated(verdict(h, "RP-18"), "led") is False


def test_a_fetch_served_long_after_stepping_down_breaks_rp_18() -> None:
    h = HistoryBuilder()
    replaced(h)
    stop(h, B1, 0)
    h.after(1000)
    h.add(
        B1,
        FetchServed(
            topic="orders",
            partition=0,
            client=PROBE,
            from_offset=0,
            to_offset=7,
            high_watermark=7,
            leader_epoch=1,
            state="ACTIVE",
        ),
    )
    assert verdict(h, "RP-18").verdict is Outcome.VIOLATED


def test_a_probe_answered_by_a_follower_breaks_rp_18() -> None:
    h = HistoryBuilder()
    h.add(
        B1,
        FollowingStarted(
            topic="orders", partition=0, leader=2, leader_epoch=1, log_end=7, high_watermark=7
        ),
    )
    h.after(10)
    probe(h, "answered", h.now_ns - 5 * MS)
    assert verdict(h, "RP-18").violations[0].evidence is Evidence.CLIENT


def test_requests_refused_by_a_former_leader_keep_rp_18() -> None:
    h = HistoryBuilder()
    replaced(h)
    stop(h, B1, 0)
    h.add(
        B1,
        FollowingStarted(
            topic="orders", partition=0, leader=2, leader_epoch=1, log_end=8, high_watermark=7
        ),
    )
    store(h, as_leader=False)
    h.after(10)
    refused = RequestRefused(
        api="Produce",
        topic="orders",
        partition=0,
        client=PROBE,
        requester=-1,
        error="NOT_LEADER_OR_FOLLOWER",
        reason="not_leader",
        state="ACTIVE",
    )
    h.add(B1, refused)
    probe(h, "refused", h.now_ns - 3 * MS)
    found = verdict(h, "RP-18")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_leader_in_its_next_epoch_still_leads() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=0, process=B1)
    lead(h, B1, 0)
    partition(h, 4, leader=1, epoch=1, process=B1)
    store(h)
    lead(h, B1, 1)
    store(h)
    assert verdict(h, "RP-18").verdict is Outcome.NOT_EXERCISED


def test_rp_18_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    replaced(h)
    assert verdict(h, "RP-18", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-24


def test_two_leaders_of_one_epoch_break_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B2, 3)
    assert verdict(h, "RP-24").violations[0].evidence is Evidence.PEER


def test_a_leader_that_goes_back_breaks_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B1, 2)
    assert verdict(h, "RP-24").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("leader", "epoch"), [(2, 3), (1, 2)])
def test_a_record_that_changes_leaders_without_a_new_epoch_breaks_rp_24(
    leader: int, epoch: int
) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=3)
    partition(h, 5, leader=leader, epoch=epoch)
    assert verdict(h, "RP-24").verdict is Outcome.VIOLATED


def test_growing_epochs_keep_rp_24() -> None:
    h = HistoryBuilder()
    for offset, leader, epoch in ((3, 1, 0), (4, 1, 1), (5, 2, 2)):
        partition(h, offset, leader, epoch)
    lead(h, B1, 0)
    lead(h, B1, 1)
    lead(h, B2, 2)
    partition(h, 3, 1, 0, process="controller-2#2")
    found = verdict(h, "RP-24")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_a_topic_made_again_begins_anew() -> None:
    h = HistoryBuilder()
    for process in (CONTROLLER, B1, B2):
        h.add(process, TopicCommitted(offset=2, topic="orders", topic_id="old", deleted=False))
    partition(h, 3, leader=1, epoch=0)
    lead(h, B1, 0)
    for process in (CONTROLLER, B1, B2):
        h.add(process, TopicCommitted(offset=7, topic="orders", topic_id="old", deleted=True))
        h.add(process, TopicCommitted(offset=8, topic="orders", topic_id="new", deleted=False))
    partition(h, 9, leader=2, epoch=0)
    lead(h, B2, 0)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("deleted", "outcome"), [(True, Outcome.NOT_EXERCISED), (False, Outcome.VIOLATED)]
)
def test_a_topic_made_again_begins_anew_for_brokers_that_record_no_topics(
    deleted: bool, outcome: Outcome
) -> None:
    """Such as Kafka's, beside an observer."""
    h = HistoryBuilder()
    lead(h, B1, 0)
    observer = "clients/observer#1"
    gone = TopicCommitted(offset=7, topic="orders", topic_id="old", deleted=deleted)
    h.add(observer, gone)
    lead(h, B2, 0)
    assert verdict(h, "RP-24").verdict is outcome


def test_rp_24_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B2, 4)
    assert verdict(h, "RP-24", complete=False).verdict is Outcome.UNKNOWN
