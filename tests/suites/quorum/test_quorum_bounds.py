"""Elections, changes and identities of the quorum: exact bounds, and what does not count."""

from __future__ import annotations

import pytest
from tests.suites.quorum.test_electorate_rules import (
    BROKER,
    HERE,
    PROBE,
    begin,
    forbid,
    learn,
    refuse,
    registered,
    replaced,
)
from tests.suites.quorum.test_electorate_rules import GONE as NOWHERE
from tests.suites.quorum.test_electorate_rules import ONE as CONTROLLER
from tests.suites.quorum.test_quorum_rules import ONE, THREE, TWO, commit, elect, verdict
from tests.suites.replication.test_disk_rules import DISKS, LOG, batch, found, metadata

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    BrokerStateChanged,
    ChangeAnswered,
    ControllerElected,
    ControllerResigned,
    HeartbeatSent,
    IsrChangeAnswered,
    MetadataTruncated,
    ProbeCompleted,
    QuorumLearned,
    ReadCompleted,
    StateReverted,
)

# ------------------------------------------------------------------------------------------ QC-07


def test_a_second_winner_of_an_epoch_must_have_the_committed_records_as_well() -> None:
    h = HistoryBuilder()
    commit(h, TWO, 7, 1)
    elect(h, ONE, 2, 8)
    elect(h, THREE, 2, 7)
    assert verdict(h, "QC-07").violated == 2


def test_a_winner_need_not_have_had_the_records_of_its_own_epoch() -> None:
    h = HistoryBuilder()
    commit(h, TWO, 7, 1)
    commit(h, TWO, 8, 2)
    elect(h, ONE, 2, 8)
    assert verdict(h, "QC-07").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("start", "broken"), [(0, True), (1, True), (2, False)])
def test_a_disk_has_the_records_before_its_first_batch_in_a_snapshot(
    start: int, broken: bool
) -> None:
    """The record at offset 1 was committed in epoch 2, and the batches there are of epoch 1."""
    log = (batch(start, 1), batch(start + 2, 1), batch(start + 4, 1))
    assert (metadata(log, log, log, committed={1: 2}) != []) == broken


def test_a_snapshot_may_have_the_very_first_record() -> None:
    assert metadata(LOG[2:], LOG[2:], LOG[2:], committed={0: 1}) == []


def test_the_disks_of_a_majority_of_the_voters_are_enough() -> None:
    h = HistoryBuilder()
    commit(h, ONE, 1, 1)
    for number in range(1, 6):
        process = f"controller-{number}#1"
        h.add(
            process,
            NodeStarted(role="controller", node_id=100 + number, incarnation="x", log_end=0),
        )
        log = LOG if number < 3 else ()
        h.add(DISKS, found(f"controller-{number}", log, topic="__cluster_metadata"))
    assert verdict(h, "QC-07").violated == 1
    voters = (101, 102, 103)
    h.add(ONE, QuorumLearned(voters=voters, endpoints=("a:1", "b:1", "c:1"), bootstrap=()))
    assert verdict(h, "QC-07").violated == 0


# ------------------------------------------------------------------------------------------ QC-08


@pytest.mark.parametrize(
    ("offset", "high_watermark", "outcome"),
    [(0, 0, Outcome.VIOLATED), (0, 1, Outcome.HOLDS), (-1, 0, Outcome.NOT_EXERCISED)],
)
def test_the_first_record_of_a_log_must_be_committed_as_well(
    offset: int, high_watermark: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=offset,
            high_watermark=high_watermark,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-08").verdict is outcome


@pytest.mark.parametrize(("error", "isr"), [("NONE", ()), ("FENCED_LEADER_EPOCH", (1, 2))])
def test_an_isr_that_was_not_granted_need_not_be_committed(
    error: str, isr: tuple[int, ...]
) -> None:
    h = HistoryBuilder()
    h.add(
        "broker-1#1",
        IsrChangeAnswered(topic="orders", partition=0, leader_epoch=0, error=error, isr=isr),
    )
    assert verdict(h, "QC-08").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-09


def test_a_controller_that_has_reverted_may_be_elected_again() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(ONE, StateReverted(offset=10, high_watermark=10, epoch=1))
    elect(h, ONE, 3, 12)
    assert verdict(h, "QC-09").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("log_end", "exercised"), [(10, 0), (11, 1)])
def test_a_deposed_controller_exercises_qc_09_once_by_records_that_it_drops(
    log_end: int, exercised: int
) -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    for _ in range(2):
        h.add(
            ONE,
            MetadataTruncated(from_offset=10, log_end=log_end, high_watermark=10, epoch=2),
        )
    assert verdict(h, "QC-09").exercised == exercised


# ------------------------------------------------------------------------------------------ QC-28


def acknowledge(h: HistoryBuilder, offset: int, epoch: int = 1) -> None:
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=offset,
            high_watermark=offset + 1,
            controller_epoch=epoch,
        ),
    )


def test_an_election_that_is_reported_twice_exercises_qc_28_once() -> None:
    h = HistoryBuilder()
    acknowledge(h, 9)
    elect(h, TWO, 2, 10)
    elect(h, TWO, 2, 10)
    assert verdict(h, "QC-28").exercised == 1


def test_a_late_winner_of_an_old_epoch_loses_no_change() -> None:
    h = HistoryBuilder()
    elect(h, TWO, 2, 0)
    acknowledge(h, 9, epoch=2)
    elect(h, THREE, 1, 5)
    assert verdict(h, "QC-28").verdict is Outcome.NOT_EXERCISED


def test_a_violation_of_qc_28_names_the_event_that_came_first_about_a_record() -> None:
    h = HistoryBuilder()
    acknowledge(h, 9)
    h.add(
        TWO, BrokerCommitted(offset=9, broker_id=1, broker_epoch=9, fenced=False, incarnation="x")
    )
    elect(h, THREE, 2, 9)
    (lost,) = verdict(h, "QC-28").violations
    assert lost.because == (h.events()[0].ref,)


@pytest.mark.parametrize(("epoch", "outcome"), [(1, Outcome.NOT_EXERCISED), (2, Outcome.HOLDS)])
def test_only_a_newer_controller_is_a_failover_to_a_topics_client(
    epoch: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    h.add(
        "clients/admin#1",
        AdminCompleted(operation="a", api="create_topic", subject="orders", outcome="ok", error=""),
    )
    elect(h, TWO, epoch, 10)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=5, outcome="ok", error=""),
    )
    assert verdict(h, "QC-28").verdict is outcome


# --------------------------------------------------------------------------- QC-04, QC-05, QC-29


def test_a_broker_that_registers_twice_exercises_qc_05_once() -> None:
    h = HistoryBuilder()
    learn(h, CONTROLLER, HERE)
    learn(h, BROKER, HERE, HERE, NOWHERE)
    registered(h)
    registered(h)
    assert verdict(h, "QC-05").exercised == 1


def test_an_election_that_is_reported_twice_forgets_no_request_of_a_broker() -> None:
    h = HistoryBuilder()
    replaced(h)
    h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=104,
            correlation=7,
            target_state="ACTIVE",
            lease_start_ms=0,
            metadata_offset=0,
        ),
    )
    h.add("controller-4#1", ControllerElected(epoch=2, log_end=9, last_epoch=1))
    refuse(h, 1, "NOT_CONTROLLER")
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(0, Outcome.HOLDS), (1, Outcome.NOT_EXERCISED)])
def test_a_request_was_refused_by_what_came_after_it_was_sent(ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    begin(h, CONTROLLER, 101)
    refused_ns = h.now_ns
    forbid(h)
    h.add(
        PROBE,
        ProbeCompleted(
            operation="p",
            api="CreateTopics",
            broker=101,
            slot="controller-1",
            topic="x",
            partition=-1,
            outcome="refused",
            error="CLUSTER_AUTHORIZATION_FAILED",
            records=0,
            base_offset=-1,
            sent_at_ns=refused_ns + ms * 1_000_000,
        ),
    )
    assert verdict(h, "QC-04").verdict is outcome
