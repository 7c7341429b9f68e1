"""The rules about ids and sessions of brokers (KR-01, KR-02, KR-06), each with a violation, a near
miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    BOUND_MS,
    CONTROLLER,
    CONTROLLERS,
    DUPLICATE,
    FIRST,
    OBSERVER,
    SESSION_MS,
    begun,
    claimed,
    ended,
    healed,
    injected,
    intruded,
    led,
    record,
    refused,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import FaultHealed, NodeStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerDeleted,
    BrokerStopping,
    ControllerElected,
    ControllerResigned,
    HeartbeatRefused,
    PartitionCommitted,
    QuorumLearned,
)

# ------------------------------------------------------------------------------------------ KR-01

WAYS = [("broker-1", controller) for controller in CONTROLLERS]
"""From a broker to every controller."""


def test_an_id_that_goes_to_another_while_its_holder_is_unaffected_breaks_kr_01() -> None:
    h = claimed()
    record(h, 20, fenced=True, incarnation="two")
    broken = verdict(h, "KR-01")
    assert broken.violated == 1
    assert stated(broken, "process") == DUPLICATE


def test_an_id_that_goes_to_a_process_that_is_not_known_states_none() -> None:
    h = begun()
    record(h, 20, fenced=True, incarnation="of nobody")
    (broken,) = verdict(h, "KR-01").violations
    assert "process" not in broken.facts
    assert stated(broken, "holder") == FIRST


def test_a_refusal_while_another_holds_the_id_exercises_kr_01() -> None:
    h = claimed()
    refused(h)
    assert verdict(h, "KR-01").verdict is Outcome.HOLDS


def test_an_id_goes_on_once_its_holder_is_dead_fenced_stopping_or_may_be_silent() -> None:
    for trouble in (
        lambda h: ended(h, FIRST),
        lambda h: record(h, 15, fenced=True),
        lambda h: h.add(
            FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1)
        ),
        lambda h: injected(h, "pause", FIRST),
        lambda h: injected(h, "cut", "broker-1", "controller-1"),
    ):
        h = claimed()
        trouble(h)
        record(h, 20, fenced=True, incarnation="two")
        assert verdict(h, "KR-01").verdict is Outcome.NOT_EXERCISED


def test_a_holder_is_unaffected_again_one_session_after_its_last_fault() -> None:
    for waits_ms, broken in ((SESSION_MS - 1, 0), (SESSION_MS + 1, 1)):
        h = claimed()
        injected(h, "cut", "broker-1", "controller-1")
        healed(h, "cut")
        h.after(waits_ms)
        record(h, 20, fenced=True, incarnation="two")
        assert verdict(h, "KR-01").violated == broken


@pytest.mark.parametrize(
    ("fault", "waits_ms", "excused"),
    [
        ("slow_disk", 2 * SESSION_MS - 10, 1),
        ("slow_disk", 2 * SESSION_MS + 1, 0),
        ("pause", 600_000, 1),
        ("cut_from_controllers", 600_000, 1),
    ],
)
def test_a_fault_that_stops_no_process_excuses_its_loss_for_two_sessions(
    fault: str, waits_ms: int, excused: int
) -> None:
    h = claimed()
    injected(h, fault, FIRST)
    record(h.after(waits_ms), 20, fenced=True, incarnation="two")
    found = verdict(h, "KR-01")
    assert (found.excused, found.violated) == (excused, 1 - excused)


@pytest.mark.parametrize(
    ("waits_ms", "broken"), [(300_000 + 2 * SESSION_MS, 0), (300_001 + 2 * SESSION_MS, 1)]
)
def test_a_holder_that_was_asked_to_stop_holds_its_id_again_if_it_still_runs_long_after(
    waits_ms: int, broken: int
) -> None:
    """It gives up waiting for its grant after `limit_ms`, and is fenced within two sessions."""
    h = claimed()
    stops = BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=300_000)
    h.add(FIRST, stops)
    record(h.after(waits_ms - 1), 20, fenced=True, incarnation="two")
    assert verdict(h, "KR-01").violated == broken


# ------------------------------------------------------------------------------------------ KR-02


def test_a_dead_broker_that_is_fenced_too_late_breaks_kr_02() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS)
    record(h, 20, fenced=True)
    assert stated(verdict(h, "KR-02"), "silent_ns") == 4_751_000_000


def test_a_dead_broker_that_is_fenced_in_time_exercises_kr_02() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS - 2)
    record(h, 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.HOLDS


def test_a_dead_broker_that_is_never_fenced_breaks_kr_02() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS + 1)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED
    assert verdict(h, "KR-02", complete=False).verdict is Outcome.UNKNOWN


def test_a_record_that_leaves_a_dead_broker_unfenced_does_not_end_its_silence() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(100)
    record(h, 20, fenced=False)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED
    h.after(BOUND_MS)
    record(h, 21, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("fenced", [True, False])
def test_another_incarnation_ends_a_silence_and_does_not_exercise_kr_02(fenced: bool) -> None:
    h = begun()
    ended(h, FIRST)
    h.after(100)
    record(h, 20, fenced=fenced, incarnation="two")
    h.after(2 * BOUND_MS)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_a_new_controller_counts_the_session_anew() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(2_000)
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=12, last_epoch=-1))
    h.after(BOUND_MS - 10)
    record(h, 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.HOLDS


def test_no_fencing_is_late_while_the_active_controller_is_dead_or_affected() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(2_000)
    ended(h, CONTROLLER)
    h.after(BOUND_MS)
    h.add("harness", FaultHealed(fault_id="kill-7", receipt=True, evidence="started"))
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=12, last_epoch=-1))
    injected(h, "isolate", "controller-2", "controller-1", "broker-1")
    h.after(BOUND_MS)
    h.add("harness", FaultHealed(fault_id="isolate-1", receipt=True, evidence="undone"))
    h.after(BOUND_MS - 10)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED
    h.after(11)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("others", "late"), [(1, True), (2, False)])
def test_no_fencing_is_late_while_no_majority_could_commit_it(others: int, late: bool) -> None:
    h = begun()
    ended(h, FIRST)
    for number in range(others):
        ended(h, f"controller-{3 - number}#1")
    h.after(BOUND_MS)
    started = NodeStarted(role="controller", node_id=103, incarnation="", log_end=-1)
    h.add("controller-3#2", started)
    h.after(1_000)
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="no_majority"))
    assert verdict(h, "KR-02").violated == late


@pytest.mark.parametrize(
    ("reader", "voters", "late"),
    [
        (CONTROLLER, (102, 103), False),
        ("controller-2#1", (102, 103), False),
        ("controller-3#1", (102, 103), True),
        (CONTROLLER, (101, 102), True),
    ],
)
def test_no_fencing_is_late_while_a_set_of_voters_may_count_that_has_no_majority(
    reader: str, voters: tuple[int, ...], late: bool
) -> None:
    """The third controller is dead, and its removal, or another one, is stored. What a dead one has
    read counts for none."""
    h = begun()
    for process, read in ((CONTROLLER, (101, 102, 103)), (reader, voters)):
        endpoints = tuple(map(str, read))
        h.add(process, QuorumLearned(voters=read, endpoints=endpoints, bootstrap=()))
    ended(h, FIRST)
    ended(h, "controller-3#1")
    h.after(BOUND_MS)
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="no_majority"))
    assert verdict(h, "KR-02").violated == late


def test_a_deposed_controller_that_resigns_late_ends_no_other_term() -> None:
    h = begun()
    ended(h, FIRST)
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=12, last_epoch=-1))
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="no_majority"))
    h.after(BOUND_MS + 1)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED


def test_a_paused_and_a_cut_off_broker_are_silent_until_they_are_healed() -> None:
    for fault, targets, cut in (
        ("pause", (FIRST,), ()),
        ("cut_from_controllers", ("broker-1", *CONTROLLERS), WAYS),
    ):
        h = begun()
        injected(h, fault, *targets, cut=cut)
        h.after(BOUND_MS + 1)
        h.add("harness", FaultHealed(fault_id=f"{fault}-1", receipt=True, evidence="undone"))
        assert verdict(h, "KR-02").verdict is Outcome.VIOLATED
        h = begun()
        injected(h, fault, *targets, cut=cut)
        h.after(1_000)
        h.add("harness", FaultHealed(fault_id=f"{fault}-1", receipt=True, evidence="undone"))
        h.after(60_000)
        assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_a_silence_ends_when_its_healing_begins() -> None:
    h = begun()
    injected(h, "cut_from_controllers", "broker-1", *CONTROLLERS, cut=WAYS)
    h.after(1_000)
    began_ns = h.events()[-1].at_ns + 1_000_000_000
    h.after(BOUND_MS)
    h.add(
        "harness",
        FaultHealed(
            fault_id="cut_from_controllers-1", receipt=True, evidence="undone", began_at_ns=began_ns
        ),
    )
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("began_ms", "beside", "broken"),
    [(BOUND_MS - 10, False, 0), (BOUND_MS + 10, False, 1), (BOUND_MS - 10, True, 1)],
    ids=["in time", "too late", "another fault goes on"],
)
def test_a_healing_that_began_in_time_ends_a_silence_although_its_record_comes_late(
    began_ms: int, beside: bool, broken: int
) -> None:
    """A healing is recorded once each link answers again. Events in between do not know of it."""
    h = begun()
    began_ns = h.now_ns + began_ms * 1_000_000
    injected(h, "cut_from_controllers", "broker-1", *CONTROLLERS, cut=WAYS)
    if beside:
        injected(h, "pause", FIRST)
    h.after(BOUND_MS + 1_000)
    injected(h, "elsewhere")
    h.after(1_000)
    healed(h, "cut_from_controllers", began_ns)
    assert verdict(h.after(60_000), "KR-02").violated == broken


@pytest.mark.parametrize(("changed", "broken"), [("broker-1", 0), ("broker-2", 1)])
@pytest.mark.parametrize("by_healing", [False, True])
def test_a_paused_broker_may_be_heard_while_its_links_are_changed(
    changed: str, broken: int, by_healing: bool
) -> None:
    """The harness resumes it for that, and stops it again."""
    h = begun()
    way = (changed, "controller-9")
    if by_healing:
        injected(h, "cut", *way, cut=[way])
    injected(h, "pause", FIRST)
    h.after(BOUND_MS - 100)
    if by_healing:
        healed(h, "cut")
    else:
        injected(h, "cut", *way, cut=[way])
    h.after(BOUND_MS - 100)
    healed(h, "pause")
    assert verdict(h, "KR-02").violated == broken


def test_a_fencing_that_is_late_while_the_machine_stalled_decides_nothing() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS + 1)
    h.add(CONTROLLER, Stalled(stalled_ns=BOUND_MS * 1_000_000 // 2))
    record(h, 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.UNKNOWN


def test_a_duplicate_that_dies_does_not_affect_the_holder_of_the_id() -> None:
    h = claimed()
    ended(h, DUPLICATE)
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_an_unregistered_broker_has_nothing_to_be_fenced_from() -> None:
    for late in (False, True):
        h = begun()
        if late:
            ended(h, FIRST)
            h.after(BOUND_MS)
        h.add(OBSERVER, BrokerDeleted(offset=20, broker_id=1))
        ended(h, FIRST)
        h.after(2 * BOUND_MS)
        assert verdict(h, "KR-02").violated == late


# ------------------------------------------------------------------------------------------ KR-06


def test_a_leadership_lost_without_a_fencing_while_another_claims_the_id_breaks_kr_06() -> None:
    h = intruded()
    led(h, 20, 2, 2, 3)
    broken = verdict(h, "KR-06")
    assert stated(broken, "offset", "other", "taken_over") == (20, DUPLICATE, False)
    assert broken.violations[0].because


def superseded(h: HistoryBuilder) -> None:
    """The duplicate is registered in place of the first process, which a fault kept away, and
    which still runs."""
    injected(h, "cut_from_controllers", FIRST)
    record(h, 14, fenced=True, incarnation="two")
    record(h, 15, fenced=False, incarnation="two")
    healed(h, "cut_from_controllers")
    h.after(SESSION_MS + 1)


def test_a_process_whose_id_was_taken_over_still_runs_and_claims_nothing() -> None:
    """What it was answered before it held the id is no evidence."""
    h = begun()
    refusal = HeartbeatRefused(broker_id=1, broker_epoch=-1, error="NOT_CONTROLLER", controller=-1)
    early = h.add(FIRST, refusal)
    record(h, 12, fenced=True)
    record(h, 13, fenced=False)
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1, incarnation="two", log_end=-1))
    superseded(h)
    led(h, 20, 1, 1, 2, 3)
    led(h, 21, 2, 2, 3)
    stale = h.add(FIRST, refusal)
    led(h, 22, 1, 1, 2, 3)
    led(h, 23, 2, 2, 3)
    first, second = verdict(h, "KR-06").violations
    assert stated(first, "other", "taken_over") == (FIRST, True)
    assert early.ref not in first.because
    assert second.because == (stale.ref,)


def test_a_refused_process_that_ends_and_changed_nothing_exercises_kr_06() -> None:
    h = intruded()
    ended(h, DUPLICATE)
    assert verdict(h, "KR-06").verdict is Outcome.HOLDS


def test_an_end_proves_nothing_for_kr_06_unless_a_refused_process_had_something_to_change() -> None:
    """A holder that leads, and that no fault affects; and a refusal."""
    not_refused, paused, fenced, without = claimed(), intruded(), intruded(), claimed()
    led(not_refused, 12, 1, 1, 2, 3)
    injected(paused, "pause", FIRST)
    record(fenced, 13, fenced=True)
    refused(without)
    for h in (not_refused, paused, fenced, without):
        ended(h, DUPLICATE)
        assert verdict(h, "KR-06").verdict is Outcome.NOT_EXERCISED


def balanced(h: HistoryBuilder, offset: int) -> None:
    """The leadership goes to the preferred replica; the former leader stays in the ISR."""
    body = PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=0,
        leader=2,
        leader_epoch=offset,
        isr=(1, 2, 3),
        replicas=(2, 1, 3),
    )
    h.add(OBSERVER, body)


def test_a_leadership_lost_to_another_than_the_preferred_replica_breaks_kr_06() -> None:
    """Though the former leader keeps its place in the ISR."""
    h = intruded()
    led(h, 20, 2, 1, 2, 3)
    assert stated(verdict(h, "KR-06"), "offset", "other") == (20, DUPLICATE)


def test_a_leadership_that_moves_rightly_keeps_kr_06() -> None:
    for lose in (
        lambda h: (led(h, 20, 2, 2, 3), record(h, 21, fenced=True)),  # one batch
        lambda h: (led(h, 20, 2, 2, 3), led(h, 21, 3, 3), record(h, 22, fenced=True)),
        lambda h: (record(h, 19, fenced=True), led(h, 20, 2, 2, 3)),
        lambda h: balanced(h, 20),
        lambda h: (led(h, 20, -1, 1), record(h, 21, fenced=True)),  # the last one of the ISR
        lambda h: (injected(h, "pause", FIRST), led(h, 20, 2, 2, 3)),
        lambda h: (
            h.add(FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1)),
            led(h, 20, 2, 2, 3),
        ),
        lambda h: (ended(h, DUPLICATE), led(h, 20, 2, 2, 3)),  # no process claims the id any more
    ):
        h = intruded()
        lose(h)
        assert verdict(h, "KR-06").violated == 0


def test_a_loss_long_after_a_fault_breaks_kr_06() -> None:
    h = intruded()
    injected(h, "pause", FIRST)
    healed(h, "pause")
    h.after(SESSION_MS + 1)
    led(h, 20, 2, 2, 3)
    assert verdict(h, "KR-06").violated == 1


def test_a_fencing_of_another_batch_explains_no_loss() -> None:
    for later in (False, True):
        h = intruded()
        led(h, 20, 2, 2, 3)
        if later:
            led(h, 24, 3, 3)
        record(h, 25, fenced=True)
        assert verdict(h, "KR-06").violated == 1


def test_a_run_that_was_cut_short_decides_nothing() -> None:
    h = claimed()
    refused(h)
    for clause in ("KR-01", "REG-07", "KR-04", "KR-05", "KR-06"):
        assert verdict(h, clause, complete=False).verdict is Outcome.UNKNOWN
