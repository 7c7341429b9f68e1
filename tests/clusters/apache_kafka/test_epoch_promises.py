"""The rules for Kafka's own promises about epochs: violations, near misses, undecided histories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, ended, verdict

from fencepost import Administered, FaultHealed, FaultInjected, NodeStarted, ProcessExited, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.apache_kafka.log_memory import QuorumConfigured
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
    PartitionCommitted,
    QuorumLearned,
    ResignReason,
)

MS = 1_000_000
FETCH_MS = 1_500
BOUND_MS = FETCH_MS * 3 // 2 + 1_000
AWAY_MS = 2 * FETCH_MS
ONE, TWO, THREE = "controller-1#1", "controller-2#1", "controller-3#1"
SLOTS = ("controller-1", "controller-2", "controller-3")
Pair = tuple[str, str]


def quorum() -> HistoryBuilder:
    """Three controllers, of which the first is active in epoch 4."""
    h = HistoryBuilder()
    for number, process in enumerate((ONE, TWO, THREE), 101):
        h.add(process, NodeStarted(role="controller", node_id=number, incarnation="", log_end=-1))
        h.add(process, QuorumConfigured(node_id=number, fetch_timeout_ms=FETCH_MS))
    elected(h, ONE, 4)
    return h


def elected(h: HistoryBuilder, process: str, epoch: int) -> None:
    h.add(process, ControllerElected(epoch=epoch, log_end=9, last_epoch=-1))


def resigned(h: HistoryBuilder, reason: ResignReason = "no_majority", epoch: int = 4) -> None:
    h.add(ONE, ControllerResigned(epoch=epoch, reason=reason))


def around(slot: str) -> list[Pair]:
    """Both directions of the links between a controller and the others."""
    others = [one for one in SLOTS if one != slot]
    return [pair for one in others for pair in ((slot, one), (one, slot))]


def cut(
    h: HistoryBuilder,
    pairs: Sequence[Pair],
    fault: str = "partition-1",
    *,
    receipt: bool = True,
    kind: str = "partition",
) -> None:
    h.add(
        "harness",
        FaultInjected(
            fault_id=fault,
            fault=kind,
            targets=tuple(sorted({slot for pair in pairs for slot in pair})),
            receipt=receipt,
            evidence="seen",
            directions=tuple(" -> ".join(pair) for pair in pairs),
        ),
    )


def paused(h: HistoryBuilder, process: str, fault: str = "pause-1") -> None:
    body = FaultInjected(
        fault_id=fault, fault="pause", targets=(process,), receipt=True, evidence="seen"
    )
    h.add("harness", body)


def healed(h: HistoryBuilder, fault: str = "partition-1", began_ns: int = 0) -> None:
    body = FaultHealed(fault_id=fault, receipt=True, evidence="seen", began_at_ns=began_ns)
    h.add("harness", body)


# ------------------------------------------------------------------------------------------ KR-09


def test_a_controller_that_stays_active_without_a_majority_breaks_kr_09() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS + 1)
    elected(h, TWO, 5)
    broken = verdict(h, "KR-09")
    assert broken.violated == 1
    message = broken.violations[0].message
    assert message.startswith(f"{ONE} was active in epoch 4 for 3.3 s though no majority")


def test_a_successor_elsewhere_is_no_excuse_for_a_controller_that_stays_active() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS // 2)
    elected(h, TWO, 5)
    h.after(BOUND_MS // 2 + 1)
    healed(h)
    broken = verdict(h, "KR-09")
    (found,) = broken.violations
    assert found.message.startswith(f"{ONE} was active in epoch 4 ")


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
    for before_ms, broken in ((500, 0), (1, 1)):
        h = quorum()
        cut(h, around("controller-1"))
        h.after(BOUND_MS + 2 - before_ms)
        began_ns = h.now_ns
        h.after(before_ms)
        elected(h, TWO, 5)
        healed(h, began_ns=began_ns)
        assert verdict(h, "KR-09").violated == broken, before_ms


def test_a_stall_leaves_kr_09_open() -> None:
    h = quorum()
    cut(h, around("controller-1"))
    h.after(BOUND_MS + 1)
    h.add(TWO, Stalled(stalled_ns=BOUND_MS * MS // 2))
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
    broken = verdict(h, "KR-10")
    assert broken.violated == 1
    assert broken.violations[0].message == (
        "leader epoch 4 of orders-0 began at offset 20, though broker 1 goes on as the leader: its "
        "ISR became [1, 2], from [1, 2, 3]"
    )


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


def test_an_isr_that_grows_in_the_same_epoch_does_not_exercise_kr_10() -> None:
    h = HistoryBuilder()
    led(h, 10, 3, (1, 2))
    led(h, 20, 3, (1, 2, 3))
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


# ------------------------------------------------------------------------------------------ KR-11


def away(h: HistoryBuilder, slot: str = "controller-3", for_ms: int = AWAY_MS) -> None:
    """A controller is cut off from the others, and returns."""
    cut(h, around(slot))
    h.after(for_ms)
    healed(h)


def test_a_return_that_deposes_the_active_controller_breaks_kr_11() -> None:
    h = quorum()
    away(h)
    h.after(200)
    resigned(h, "higher_epoch")
    broken = verdict(h, "KR-11")
    assert broken.violated == 1
    assert broken.violations[0].message == (
        f"{ONE} lost the leadership of epoch 4 when controller-3 returned, which had been cut off "
        "from all other voters"
    )


def test_a_controller_that_is_deposed_before_the_healing_is_recorded_counts() -> None:
    for before_ms, broken in ((100, 1), (300, 0)):
        h = quorum()
        cut(h, around("controller-3"))
        h.after(AWAY_MS)
        began_ns = h.now_ns + 200 * MS
        h.after(300 - before_ms)
        resigned(h, "higher_epoch")
        h.after(before_ms)
        healed(h, began_ns=began_ns)
        assert verdict(h, "KR-11").violated == broken, before_ms


def test_a_controller_that_goes_on_after_a_return_exercises_kr_11() -> None:
    h = quorum()
    away(h)
    h.after(AWAY_MS + 1)
    elected(h, TWO, 9)
    assert verdict(h, "KR-11").verdict is Outcome.HOLDS


def test_a_controller_that_is_deposed_much_later_exercises_kr_11() -> None:
    h = quorum()
    away(h)
    h.after(AWAY_MS + 100)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.HOLDS


def test_a_controller_that_was_asked_to_end_was_not_deposed_by_a_return() -> None:
    """It names its successor. The harness records the signal once the process has ended."""
    for asked_ms, broken in ((100, 0), (300, 1)):
        h = quorum()
        away(h)
        asked_ns = h.now_ns + asked_ms * MS
        resigned(h.after(200), "higher_epoch")
        h.after(400).add("harness", ProcessExited(ended=ONE, exit_code=0, signal=0, expected=True))
        ending = FaultInjected(
            fault_id="terminate-1", fault="terminate", targets=(ONE,), receipt=True,
            evidence="seen", began_at_ns=asked_ns,
        )  # fmt: skip
        h.add("harness", ending)
        assert verdict(h, "KR-11").violated == broken, asked_ms


def test_a_change_of_voters_decides_nothing_for_kr_11() -> None:
    h = quorum()
    away(h)
    asked = Administered(operation="remove_voter", arguments="{}", targets=("controller-1",))
    h.add("harness", asked)
    resigned(h.after(200), "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_a_controller_that_lost_its_majority_was_not_deposed_by_a_return() -> None:
    h = quorum()
    away(h)
    h.after(200)
    resigned(h, "no_majority")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_a_voter_that_was_away_for_a_moment_is_no_candidate() -> None:
    h = quorum()
    away(h, for_ms=AWAY_MS - 5)
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_the_return_of_the_active_controller_is_not_judged_by_kr_11() -> None:
    h = quorum()
    away(h, "controller-1")
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_a_voter_that_some_link_still_joined_did_not_return() -> None:
    h = quorum()
    cut(h, around("controller-3")[:3])
    h.after(AWAY_MS)
    healed(h)
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_what_else_acts_upon_the_quorum_leaves_kr_11_alone() -> None:
    for trouble in (
        lambda h: paused(h, TWO),
        lambda h: cut(h, [("controller-1", "controller-2")], "cut-2"),
        lambda h: ended(h, TWO),
    ):
        h = quorum()
        trouble(h)
        away(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED
        h = quorum()
        away(h)
        trouble(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED
    for unrelated in (
        lambda h: paused(h, "broker-1#1"),
        lambda h: cut(h, [("controller-1", "broker-2")], "cut-2"),
        lambda h: ended(h, "broker-1#1"),
    ):
        h = quorum()
        unrelated(h)
        away(h)
        unrelated(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").violated == 1


def test_a_stall_leaves_kr_11_open() -> None:
    h = quorum()
    away(h)
    h.after(200)
    h.add(TWO, Stalled(stalled_ns=200 * MS))
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.UNKNOWN


def test_a_run_that_is_cut_short_after_a_return_does_not_exercise_kr_11() -> None:
    h = quorum()
    away(h)
    assert verdict(h, "KR-11", complete=False).verdict is not Outcome.HOLDS
