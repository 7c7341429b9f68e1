"""The rules about epochs that begin, and those that end in time (KR-09, KR-10): violations, near
misses and undecided histories."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, ended, verdict
from tests.clusters.apache_kafka.quorum_histories import (
    BOUND_MS,
    MS,
    ONE,
    THREE,
    TWO,
    Pair,
    around,
    cut,
    elected,
    healed,
    paused,
    quorum,
    resigned,
)
from tests.suites.partition_histories import stated

from fencepost import NodeStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerResigned, PartitionCommitted, QuorumLearned

# ------------------------------------------------------------------------------------------ KR-09


def test_a_controller_that_stays_active_without_a_majority_breaks_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS + 1)
    elected(h, TWO, 5)
    (found,) = verdict(h, "KR-09").violations
    assert stated(found, "process", "epoch", "active_ns") == (ONE, 4, 3_252_000_000)


def test_a_successor_elsewhere_is_no_excuse_for_a_controller_that_stays_active() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS // 2)
    elected(h, TWO, 5)
    h.after(BOUND_MS // 2 + 1)
    healed(h)
    broken = verdict(h, "KR-09")
    (found,) = broken.violations
    assert stated(found, "process", "epoch") == (ONE, 4)


def test_it_is_reported_once_in_an_epoch() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS + 1)
    healed(h)
    h.after(1)
    cut(h, around("controller-1"), "partition-2")
    h.after(3 * BOUND_MS)
    assert verdict(h, "KR-09").violated == 1


def test_a_run_that_ends_meanwhile_shows_it_too_unless_it_is_cut_short() -> None:
    for complete, broken in ((True, 1), (False, 0)):
        h = quorum()
        cut(h, around("controller-1"))
        h.after(BOUND_MS + 2_000)
        assert verdict(h, "KR-09", complete).violated == broken


def test_a_controller_that_resigns_in_time_exercises_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS - 1)
    resigned(h)
    h.after(60_000)
    assert verdict(h, "KR-09").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("took_ms", "broken"), [(BOUND_MS, 0), (BOUND_MS + 1, 1)])
def test_a_controller_may_be_active_for_one_and_a_half_fetch_timeouts_and_a_second(
    took_ms: int, broken: int
) -> None:
    h = quorum()
    cut(h, around("controller-1"))
    resigned(h.after(took_ms - 1))
    found = verdict(h, "KR-09")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_another_that_resigns_is_no_answer_to_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.add(TWO, ControllerResigned(epoch=3, reason="higher_epoch"))
    h.after(BOUND_MS + 1)
    elected(h, TWO, 5)
    assert verdict(h, "KR-09").violated == 1


@pytest.mark.parametrize(
    ("pairs", "broken"),
    [
        ([("controller-2", "controller-1"), ("controller-3", "controller-1")], 1),
        ([("controller-1", "controller-2"), ("controller-1", "controller-3")], 0),
        ([("controller-2", "controller-1"), ("controller-1", "controller-2")], 0),
        ([("controller-2", "controller-3"), ("controller-3", "controller-2")], 0),
    ],
)
def test_only_voters_that_cannot_reach_it_count_for_kr_09(pairs: list[Pair], broken: int) -> None:
    h = quorum()
    cut(h, pairs)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == broken


@pytest.mark.parametrize("fault", ["slow_link", "hold"])
def test_a_link_that_delays_messages_still_reaches_it_for_kr_09(fault: str) -> None:
    h = quorum()
    cut(h, around("controller-1"), kind=fault)
    h.after(BOUND_MS + 1)
    elected(h, TWO, 5)
    assert verdict(h, "KR-09").violated == 0


def test_a_cut_without_a_receipt_proves_nothing_for_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"), receipt=False)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 0


def test_dead_and_stopped_voters_reach_nothing() -> None:
    h = quorum()
    ended(h, TWO)
    paused(h, THREE)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 1
    h = quorum()
    ended(h, TWO)
    h.add("controller-2#2", NodeStarted(role="controller", node_id=102, incarnation="", log_end=-1))
    paused(h, THREE)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 0


def test_half_of_the_voters_are_no_majority() -> None:
    h = quorum()
    h.add("controller-4#1", NodeStarted(role="controller", node_id=104, incarnation="", log_end=-1))
    cut(h, [("controller-2", "controller-1"), ("controller-3", "controller-1")])
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 1


def test_a_controller_without_a_majority_of_other_voters_keeps_kr_09() -> None:
    """The other two are cut off. It reaches a majority of the voters that it has read, or that any
    node has."""
    for alone in (True, False):
        h = quorum()
        voters = (101,) if alone else (101, 102, 103)
        endpoints = tuple(f"controller-{one - 100}:9093" for one in voters)
        h.add(ONE, QuorumLearned(voters=voters, endpoints=endpoints, bootstrap=()))
        cut(h, around("controller-1"))
        elected(h.after(BOUND_MS + 1), TWO, 5)
        assert verdict(h, "KR-09").violated == (0 if alone else 1)


def test_a_controller_that_is_stopped_itself_is_not_judged_by_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    paused(h, ONE)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 0


def test_a_controller_that_has_ended_is_not_active() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    ended(h, ONE)
    h.after(BOUND_MS + 2_000)
    assert verdict(h, "KR-09").violated == 0


def test_links_that_answer_before_their_healing_is_recorded_are_no_excess() -> None:
    for cut_off_ms, broken in ((BOUND_MS - 500, 0), (BOUND_MS, 0), (BOUND_MS + 1, 1)):
        h = quorum()
        cut(h, around("controller-1"))
        h.after(cut_off_ms - 1)
        began_ns = h.now_ns
        h.after(600)
        elected(h, TWO, 5)
        healed(h, began_ns=began_ns)
        assert verdict(h, "KR-09").violated == broken, cut_off_ms


def test_a_stall_leaves_kr_09_open() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS + 1)
    h.add(ONE, Stalled(stalled_ns=BOUND_MS * MS // 2))
    assert verdict(h, "KR-09").verdict is Outcome.UNKNOWN


def test_without_the_setting_there_is_no_bound() -> None:
    h = HistoryBuilder()
    for process in (ONE, TWO, THREE):
        h.add(process, NodeStarted(role="controller", node_id=1, incarnation="", log_end=-1))
    elected(h, ONE, 4)
    cut(h, around("controller-1"))
    h.after(60_000)
    assert verdict(h, "KR-09").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-10


def led(
    h: HistoryBuilder,
    offset: int,
    epoch: int,
    isr: tuple[int, ...],
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> None:
    body = PartitionCommitted(
        offset=offset, topic="orders", partition=0, leader=leader, leader_epoch=epoch, isr=isr,
        replicas=replicas,
    )  # fmt: skip
    h.add(OBSERVER, body)


def test_an_epoch_that_begins_with_a_shrunk_isr_breaks_kr_10() -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2, 3))
    led(h, 20, 4, (1, 2))
    (found,) = verdict(h, "KR-10").violations
    assert stated(found, "epoch", "partition", "offset") == (4, "orders-0", 20)
    assert stated(found, "leader", "gone") == ("broker 1", ("broker 3",))
    assert stated(found, "isr", "former_isr") == ((1, 2), (1, 2, 3))


def test_a_broker_with_the_id_0_leads_like_any_other() -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (0, 2, 3), leader=0)
    led(h, 20, 4, (0, 2), leader=0)
    assert verdict(h, "KR-10").violated == 1


def test_a_shrunk_isr_in_the_same_epoch_exercises_kr_10() -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2, 3))
    led(h, 20, 3, (1, 2))
    assert verdict(h, "KR-10").verdict is Outcome.HOLDS


@pytest.mark.parametrize("isr", [(1, 2), (1, 2, 3)])
def test_an_isr_that_stays_or_grows_in_the_same_epoch_does_not_exercise_kr_10(
    isr: tuple[int, ...],
) -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2))
    led(h, 20, 3, isr)
    assert verdict(h, "KR-10").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("epoch", "leader", "replicas"),
    [
        (4, 2, (1, 2, 3)),  # another leader
        (4, -1, (1, 2, 3)),  # none
        (4, 1, (1, 2)),  # a replica leaves
        (5, 1, (1, 2, 3)),  # the leader may have been another one in between
    ],
)
def test_other_epochs_may_begin(epoch: int, leader: int, replicas: tuple[int, ...]) -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2, 3))
    led(h, 20, epoch, (1, 2), leader, replicas)
    assert verdict(h, "KR-10").verdict is Outcome.NOT_EXERCISED


def test_a_partition_without_a_leader_and_an_older_record_are_not_judged() -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2, 3), leader=-1)
    led(h, 20, 4, (1, 2), leader=-1)
    led(h, 20, 5, (1,), leader=-1)
    assert verdict(h, "KR-10").verdict is Outcome.NOT_EXERCISED
    h = HistoryBuilder()
    led(h, 20, 3, (1, 2, 3))
    led(h, 10, 4, (1, 2))
    led(h, 20, 4, (1, 2))
    assert verdict(h, "KR-10").verdict is Outcome.NOT_EXERCISED
