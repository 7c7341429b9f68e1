"""RP-25, the removal of a deleted topic's replicas: each with a violation, a near miss and an
undecided history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from tests.suites.partition_histories import stated, why

from fencepost import Evidence, FaultInjected, NodeStarted, PhaseStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerStateChanged,
    FollowingStarted,
    LogAppended,
    ReplicaRemoved,
    SnapshotLoaded,
    TopicCommitted,
    TopicMarked,
)
from fencepost_suites.plugin import DECLARED
from fencepost_suites.topics.deletion import DeletedReplicasAreRemoved

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
C1, B2, B2_AGAIN = "controller-1#1", "broker-2#1", "broker-2#2"


def verdict(h: HistoryBuilder) -> Verdict:
    rules = (DeletedReplicasAreRemoved(),)
    return judge(h.events(), rules, CLAUSES, h.end(True), "quorum").verdicts["RP-25"]


def follows(stored: bool = True) -> HistoryBuilder:
    h = HistoryBuilder()
    h.add(B2, NodeStarted(role="broker", node_id=2, incarnation="u2", log_end=0))
    h.add(B2, TopicCommitted(offset=5, topic="orders", topic_id="t", deleted=False))
    h.add(
        B2,
        FollowingStarted(
            topic="orders", partition=0, leader=1, leader_epoch=1, log_end=0, high_watermark=0
        ),
    )
    if stored:
        stores(h)
    return h


def stores(h: HistoryBuilder) -> None:
    h.add(
        B2,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=0,
            log_end=1,
            expected_base=0,
            batch_epoch=1,
            leader_epoch=1,
            as_leader=False,
            digest="d",
            producer_id=-1,
            base_sequence=-1,
        ),
    )


def deleted_while_away(stored: bool = True) -> HistoryBuilder:
    h = follows(stored)
    h.add("harness", ProcessExited(ended=B2, exit_code=-9, signal=9, expected=True))
    h.add(C1, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    return h


def back(h: HistoryBuilder, removes: bool) -> None:
    h.add(B2_AGAIN, NodeStarted(role="broker", node_id=2, incarnation="u3", log_end=0))
    if removes:
        h.add(B2_AGAIN, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="stray"))
    h.add(
        B2_AGAIN,
        BrokerStateChanged(
            broker_id=2, old="FENCED", new="ACTIVE", broker_epoch=8, reason="unfenced"
        ),
    )


def test_a_broker_that_returns_with_a_deleted_topic_breaks_rp_25() -> None:
    h = deleted_while_away()
    back(h, removes=False)
    assert stated(verdict(h), "partition", "active") == ("orders-0", True)


@pytest.mark.parametrize(
    ("fault", "slot", "outcome"),
    [
        ("wipe_disk", "broker-2", Outcome.NOT_EXERCISED),
        ("wipe_disk", "broker-1", Outcome.VIOLATED),
        ("damage_disk", "broker-2", Outcome.VIOLATED),
    ],
)
def test_a_disk_that_was_emptied_holds_no_deleted_topic(
    fault: str, slot: str, outcome: Outcome
) -> None:
    h = deleted_while_away()
    h.add(
        "harness",
        FaultInjected(
            fault_id=f"{fault}-1", fault=fault, targets=(f"{slot}#1",), receipt=True, evidence=""
        ),
    )
    back(h, removes=False)
    assert verdict(h).verdict is outcome


def test_a_broker_that_returns_and_removes_it_keeps_rp_25() -> None:
    h = deleted_while_away()
    back(h, removes=True)
    found = verdict(h)
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.SELF)


@pytest.mark.parametrize(("process", "outcome"), [(B2, Outcome.VIOLATED), (C1, Outcome.UNKNOWN)])
def test_a_running_broker_must_remove_a_deleted_topic_once_it_has_replayed_that(
    process: str, outcome: Outcome
) -> None:
    h = follows()
    h.add(process, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.add(
        B2,
        BrokerStateChanged(
            broker_id=2, old="FENCED", new="ACTIVE", broker_epoch=8, reason="unfenced"
        ),
    )
    assert verdict(h).verdict is outcome


def test_a_topic_that_is_made_again_has_replicas_of_its_own() -> None:
    h = follows()
    h.add(B2, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))
    h.add(B2, TopicCommitted(offset=8, topic="orders", topic_id="again", deleted=False))
    stores(h)
    h.add(B2, TopicCommitted(offset=9, topic="orders", topic_id="again", deleted=True))
    h.add(
        B2,
        BrokerStateChanged(
            broker_id=2, old="FENCED", new="ACTIVE", broker_epoch=8, reason="unfenced"
        ),
    )
    assert stated(verdict(h), "partition", "active") == ("orders-0", True)


def test_a_replica_that_stored_nothing_has_no_log_that_rp_25_asks_for() -> None:
    h = deleted_while_away(stored=False)
    back(h, removes=False)
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


def over_zookeeper(
    began_before_mark: bool, controller: str = C1, later_ms: int = 1
) -> HistoryBuilder:
    """Broker 2 has records of a topic of which only the controller tells, and removes them before
    the topic is gone. The controller may be broker 2 itself at first."""
    h = HistoryBuilder()
    h.add(
        controller,
        TopicCommitted(offset=5, topic="orders", topic_id="t", deleted=False, role="controller"),
    )
    h.add(B2, NodeStarted(role="broker", node_id=2, incarnation="u2", log_end=-1))
    for event in follows().events():
        if isinstance(event.body, LogAppended):
            h.add(B2, event.body)
    again = NodeStarted(role="broker", node_id=2, incarnation="u3", log_end=-1)
    if began_before_mark:
        h.add(B2_AGAIN, again)
    h.add(C1, TopicMarked(offset=6, topic="orders", topic_id="t"))
    if not began_before_mark:
        h.after(later_ms - 1)
        h.add(B2_AGAIN, again)
    return h


def removes(h: HistoryBuilder) -> None:
    h.add(B2_AGAIN, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))


def turned(state: Literal["ACTIVE", "FENCED"]) -> BrokerStateChanged:
    reason: Literal["registered", "controller_silent"] = (
        "registered" if state == "ACTIVE" else "controller_silent"
    )
    return BrokerStateChanged(broker_id=2, old="INITIAL", new=state, broker_epoch=3, reason=reason)


def replayed(h: HistoryBuilder) -> None:
    """A controller that begins reads of the deletion too."""
    deletion = TopicCommitted(
        offset=7, topic="orders", topic_id="t", deleted=True, role="controller"
    )
    h.add("controller-2#1", deletion)


def gone(h: HistoryBuilder) -> None:
    h.add(
        C1, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True, role="controller")
    )


@pytest.mark.parametrize("began_before_mark", [True, False])
def test_over_zookeeper_a_broker_that_returns_to_a_marked_topic_exercises_rp_25(
    began_before_mark: bool,
) -> None:
    h = over_zookeeper(began_before_mark)
    removes(h)
    gone(h)
    expected = Outcome.NOT_EXERCISED if began_before_mark else Outcome.HOLDS
    assert verdict(h).verdict is expected


@pytest.mark.parametrize("controller", [C1, B2])
@pytest.mark.parametrize("began_before_mark", [True, False])
def test_over_zookeeper_a_topic_that_is_gone_before_its_replicas_breaks_rp_25(
    began_before_mark: bool, controller: str
) -> None:
    h = over_zookeeper(began_before_mark, controller)
    gone(h)
    (violation,) = verdict(h).violations
    assert violation.evidence is Evidence.PEER
    assert stated(violation, "process", "partition") == (B2_AGAIN, "orders-0")


def test_over_zookeeper_a_broker_that_is_down_when_a_topic_goes_has_time_until_it_is_active() -> (
    None
):
    h = over_zookeeper(began_before_mark=False)
    h.add("harness", ProcessExited(ended=B2_AGAIN, exit_code=-9, signal=9, expected=True))
    gone(h)
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("active", "violated"), [(B2_AGAIN, 1), (C1, 0), ("", 1)])
def test_over_zookeeper_a_broker_that_is_not_active_is_commanded_nothing(
    active: str, violated: int
) -> None:
    """A second process has its id, so it waits. If no process says that it is active, all are."""
    h = over_zookeeper(began_before_mark=False)
    if active:
        registered = BrokerStateChanged(
            broker_id=2, old="INITIAL", new="ACTIVE", broker_epoch=3, reason="registered"
        )
        h.add(active, registered)
    gone(h)
    h.after(60_000)
    assert verdict(h).violated == violated


def test_over_zookeeper_the_disk_of_a_broker_whose_id_a_second_process_has_is_excused() -> None:
    h = over_zookeeper(began_before_mark=False)
    second = "broker-2-duplicate#1"
    h.add(second, NodeStarted(role="broker", node_id=2, incarnation="u4", log_end=-1))
    registered = BrokerStateChanged(
        broker_id=2, old="INITIAL", new="ACTIVE", broker_epoch=3, reason="registered"
    )
    h.add(second, registered)
    gone(h)
    h.add("harness", ProcessExited(ended=second, exit_code=0, signal=9, expected=True))
    h.add(B2_AGAIN, registered)
    found = verdict(h)
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "process") == second


def test_over_zookeeper_a_second_process_that_is_not_active_excuses_nothing() -> None:
    h = over_zookeeper(began_before_mark=False)
    second = "broker-2-duplicate#1"
    h.add(second, NodeStarted(role="broker", node_id=2, incarnation="u4", log_end=-1))
    h.add(B2_AGAIN, turned("ACTIVE"))
    gone(h)
    assert stated(verdict(h), "process") == B2_AGAIN


def test_over_zookeeper_a_broker_that_was_active_once_is_commanded_nothing() -> None:
    h = over_zookeeper(began_before_mark=False)
    h.add(C1, turned("ACTIVE"))
    h.add(B2_AGAIN, turned("ACTIVE"))
    h.add(B2_AGAIN, turned("FENCED"))
    gone(h)
    assert verdict(h).violated == 0


def test_a_broker_that_knows_a_topic_by_a_snapshot_is_commanded_nothing() -> None:
    """It was down when the topic went, and removes its replica when it has replayed that."""
    h = HistoryBuilder()
    h.add(
        C1,
        TopicCommitted(offset=5, topic="orders", topic_id="t", deleted=False, role="controller"),
    )
    h.add(B2, NodeStarted(role="broker", node_id=2, incarnation="u2", log_end=9))
    h.add(B2, SnapshotLoaded(offset=6, epoch=1, digest="d"))
    for event in follows().events():
        if isinstance(event.body, LogAppended):
            h.add(B2, event.body)
    h.add("harness", ProcessExited(ended=B2, exit_code=-9, signal=9, expected=True))
    gone(h)
    h.add(B2_AGAIN, NodeStarted(role="broker", node_id=2, incarnation="u3", log_end=9))
    h.add(B2_AGAIN, SnapshotLoaded(offset=6, epoch=1, digest="d"))
    h.add(B2_AGAIN, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.add(B2_AGAIN, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="stray"))
    assert verdict(h).verdict is Outcome.HOLDS


def test_rp_25_is_undecided_while_a_running_broker_had_no_time() -> None:
    h = follows()
    h.add(C1, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    assert verdict(h).verdict is Outcome.UNKNOWN
    assert verdict(deleted_while_away()).verdict is Outcome.NOT_EXERCISED


def test_what_a_broker_kept_to_the_end_is_not_forgotten_as_the_harness_ends_all_processes() -> None:
    """Every recorded run ends so: 13 of 17 that lacked the removals of one broker passed."""
    h = follows()
    h.add(C1, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.after(11_000)
    h.add("harness", PhaseStarted(phase="end"))
    h.add("harness", ProcessExited(ended=B2, exit_code=0, signal=15, expected=True))
    assert verdict(h).verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------- to the millisecond


@pytest.mark.parametrize(("more_ms", "expected"), [(0, Outcome.UNKNOWN), (1, Outcome.VIOLATED)])
def test_a_running_broker_has_ten_seconds(more_ms: int, expected: Outcome) -> None:
    h = follows()
    h.add(C1, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.after(10_000 - 1 + more_ms)
    found = verdict(h)
    assert found.verdict is expected
    assert found.violated == more_ms


def test_a_process_that_began_as_the_topic_went_may_not_know_of_it() -> None:
    h = deleted_while_away()
    h.after(-1)
    back(h, removes=False)
    assert verdict(h).verdict is Outcome.UNKNOWN


def test_over_zookeeper_a_process_that_began_as_the_topic_was_marked_exercises_nothing() -> None:
    h = over_zookeeper(began_before_mark=False, later_ms=0)
    removes(h)
    gone(h)
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------ odds and ends


@pytest.mark.parametrize("then", [removes, replayed, None])
@pytest.mark.parametrize("over", [True, False], ids=["over zookeeper", "by its own records"])
def test_each_log_that_is_left_is_one_violation(
    over: bool, then: Callable[[HistoryBuilder], None] | None
) -> None:
    if over:
        h = over_zookeeper(began_before_mark=True)
        gone(h)
    else:
        h = deleted_while_away()
        back(h, removes=False)
    assert verdict(h).violated == 1
    if then is not None:
        then(h)
    found = verdict(h.after(11_000))
    assert (found.verdict, found.violated, found.exercised) == (Outcome.VIOLATED, 1, 0)


def test_a_running_broker_that_removes_a_deleted_topic_finds_nothing_when_it_starts() -> None:
    h = follows()
    h.add(B2, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_replays_the_deletion_of_a_marked_topic_finds_nothing_when_it_starts() -> (
    None
):
    h = follows()
    h.add(C1, TopicMarked(offset=6, topic="orders", topic_id="t"))
    h.add(B2_AGAIN, NodeStarted(role="broker", node_id=2, incarnation="u3", log_end=0))
    h.add(B2_AGAIN, TopicCommitted(offset=5, topic="orders", topic_id="t", deleted=False))
    h.add(B2_AGAIN, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    removes(h)
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


def test_the_disk_of_a_second_process_with_an_id_holds_no_replica() -> None:
    h = HistoryBuilder()
    twin = "broker-2-duplicate#1"
    for event in deleted_while_away().events():
        h.add(twin if event.process == B2 else event.process, event.body)
    h.add(
        twin,
        BrokerStateChanged(
            broker_id=2, old="FENCED", new="ACTIVE", broker_epoch=8, reason="unfenced"
        ),
    )
    h.after(11_000)
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_replays_records_now_is_commanded_nothing() -> None:
    h = over_zookeeper(began_before_mark=True)
    h.add(B2_AGAIN, SnapshotLoaded(offset=6, epoch=1, digest="d"))
    for event in follows().events():
        if isinstance(event.body, LogAppended):
            h.add(B2_AGAIN, event.body)
    gone(h)
    assert verdict(h).verdict is Outcome.UNKNOWN


def test_a_broker_that_stores_messages_of_a_deleted_topic_again_owes_their_removal() -> None:
    h = follows()
    h.add(B2, TopicCommitted(offset=7, topic="orders", topic_id="t", deleted=True))
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))
    h.after(60_000)
    stores(h)
    h.after(60_000)
    h.add("harness", PhaseStarted(phase="end"))
    assert verdict(h).verdict is Outcome.VIOLATED
