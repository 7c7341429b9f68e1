"""The rules of leases, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.brokers.lease_histories import (
    BROKER,
    LEASE_MS,
    MS,
    ONE,
    TWO,
    active_broker,
    answer,
    ask,
    expire,
    expired,
    fence_itself,
    grant,
    isolated,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import Evidence, NodeStarted, ProcessExited, ProcessSpawned, Stalled
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    HeartbeatRefused,
    LeaseExpired,
    LeaseGranted,
    QuorumLearned,
)


def die(h: HistoryBuilder, process: str = BROKER) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-9, signal=9, expected=True))


# ------------------------------------------------------------------------------------------ QC-13


def test_a_lease_end_from_the_controllers_clock_breaks_qc_13() -> None:
    h = HistoryBuilder()
    answer(h, length_ms=LEASE_MS + 2)
    assert stated(verdict(h, "QC-13"), "length_ms") == LEASE_MS + 2


def test_a_lease_that_arrives_with_another_length_breaks_qc_13() -> None:
    h = HistoryBuilder()
    answer(h)
    grant(h, length_ms=LEASE_MS + 1)
    assert verdict(h, "QC-13").violations[0].evidence is Evidence.PEER


def test_a_lease_expired_too_early_breaks_qc_13() -> None:
    h = HistoryBuilder()
    expired(h, at_ms=LEASE_MS - 1)
    assert verdict(h, "QC-13").verdict is Outcome.VIOLATED


def test_a_lease_of_the_period_from_the_brokers_start_keeps_qc_13() -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h)
    grant(h)
    expired(h.after(LEASE_MS))
    found = verdict(h, "QC-13")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.PEER)


def test_a_lease_that_counts_from_another_start_than_the_brokers_breaks_qc_13() -> None:
    """Each of the two words fits itself: the controller names a start that nobody asked for."""
    h = HistoryBuilder()
    ask(h, start_ms=50)
    answer(h, start_ms=90_000)
    grant(h, start_ms=50, length_ms=90_000 + LEASE_MS - 50)
    (found,) = verdict(h, "QC-13").violations
    assert (found.evidence, found.because) == (Evidence.PEER, (h.events()[0].ref,))
    assert stated(found, "length_ms", "bound_ms") == (92_950, LEASE_MS)


def test_a_lease_expired_right_after_an_accepted_heartbeat_breaks_qc_13() -> None:
    """Whatever the controller says about when it heard the broker last."""
    h = HistoryBuilder()
    ask(h)
    answer(h)
    expired(h.after(500))
    (found,) = verdict(h, "QC-13").violations
    assert (found.evidence, found.because) == (
        Evidence.PEER,
        tuple(event.ref for event in h.events()[:2]),
    )
    assert stated(found, "process", "after_ns") == (ONE, 502_000_000)


def fenced_by_record(h: HistoryBuilder, epoch: int = 5, incarnation: str = "x") -> Verdict:
    """A record fences the broker, and no controller says that its lease has ended."""
    for process in (ONE, TWO):
        body = BrokerCommitted(
            offset=9, broker_id=1, broker_epoch=epoch, fenced=True, incarnation=incarnation
        )
        h.add(process, body)
    return verdict(h, "QC-13")


def unfenced_and_heard(h: HistoryBuilder) -> HistoryBuilder:
    body = BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="x")
    h.add(ONE, body)
    ask(h)
    answer(h)
    return h


@pytest.mark.parametrize("after_ms", [500, LEASE_MS])
def test_a_record_that_fences_right_after_an_accepted_heartbeat_breaks_qc_13(after_ms: int) -> None:
    found = fenced_by_record(unfenced_and_heard(HistoryBuilder()).after(after_ms))
    assert found.violated == (after_ms < LEASE_MS)
    if found.violations:
        assert stated(found, "process", "broker") == (ONE, "broker 1")


def refuses_renewal(h: HistoryBuilder) -> None:
    answer(h, error="STALE_BROKER_EPOCH")


def asks_to_stop(h: HistoryBuilder) -> None:
    ask(h, start_ms=90, target="SHUTDOWN")


@pytest.mark.parametrize("ends", [refuses_renewal, asks_to_stop])
def test_a_record_may_fence_a_broker_that_stops_or_is_refused(
    ends: Callable[[HistoryBuilder], None],
) -> None:
    h = unfenced_and_heard(HistoryBuilder())
    ends(h)
    assert fenced_by_record(h.after(100)).violated == 0


@pytest.mark.parametrize("asked", ["before", "after"])
def test_a_broker_that_is_refused_may_be_fenced_before_it_is_answered(asked: str) -> None:
    """One that is far behind is refused once the record that fences it is stored."""
    h = unfenced_and_heard(HistoryBuilder()).after(100)
    if asked == "before":
        ask(h, start_ms=90)
    fenced_by_record(h)
    if asked == "after":
        ask(h.after(100), start_ms=90)
    answer(h, start_ms=90, error="STALE_BROKER_EPOCH")
    assert verdict(h, "QC-13").violated == (asked == "after")


@pytest.mark.parametrize(("epoch", "incarnation"), [(9, "x"), (9, "y")])
def test_a_registration_ends_no_lease(epoch: int, incarnation: str) -> None:
    h = unfenced_and_heard(HistoryBuilder())
    assert fenced_by_record(h.after(100), epoch, incarnation).violated == 0


def test_when_a_heartbeat_came_that_no_broker_told_of_is_undecided() -> None:
    h = HistoryBuilder()
    answer(h)
    expired(h.after(500))
    assert verdict(h, "QC-13").verdict is Outcome.UNKNOWN


def test_a_lease_expired_right_after_an_answer_that_had_waited_keeps_qc_13() -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h.after(LEASE_MS - 100))
    expired(h.after(100))
    assert verdict(h, "QC-13").verdict is Outcome.HOLDS


def test_a_stall_of_the_controller_leaves_an_early_expiry_undecided() -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h)
    h.after(1000)
    h.add(ONE, Stalled(stalled_ns=400 * MS))
    expired(h)
    assert verdict(h, "QC-13").verdict is Outcome.UNKNOWN


def test_qc_13_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    answer(h)
    grant(h)
    assert verdict(h, "QC-13", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-14


def test_a_broker_active_past_its_lease_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    expire(h)
    h.after(500)
    fence_itself(h)
    found = verdict(h, "QC-14").violations[0]
    assert stated(found, "process", "after_ns") == (BROKER, 505_000_000)
    # The grant, and the expiry by the controller.
    ending = next(e.ref for e in h.events() if isinstance(e.body, LeaseExpired))
    assert [ref.process for ref in found.because] == [BROKER, ONE]
    assert found.because[1] == ending


def test_a_broker_active_to_the_end_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    expire(h)
    h.after(500)
    assert verdict(h, "QC-14").violations[0].evidence is Evidence.SELF


@pytest.mark.parametrize("said_ms", [100 * LEASE_MS, -1, 0], ids=["longer", "backwards", "none"])
def test_the_period_of_a_lease_is_the_controllers_word(said_ms: int) -> None:
    """A broker that says how late it may notice the end by its own period was never late."""
    h = HistoryBuilder()
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    answer(h)
    # It counts from its request, and tells another start.
    body = LeaseGranted(
        broker_id=1,
        broker_epoch=5,
        next_state="ACTIVE",
        lease_start_ms=50 + LEASE_MS - said_ms,
        lease_end_ms=50 + LEASE_MS,
        ends_at_ns=h.now_ns + LEASE_MS * MS,
        controller_epoch=1,
    )
    h.add(BROKER, body)
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=5, reason="unfenced"
        ),
    )
    fence_itself(h.after(LEASE_MS + 500))
    assert verdict(h, "QC-14").verdict is Outcome.VIOLATED


def test_a_lease_counted_from_its_answer_breaks_qc_14() -> None:
    """The answer came late, and the broker counts from when it got it."""
    h = HistoryBuilder()
    ask(h)
    active_broker(h.after(1200))
    fence_itself(h.after(LEASE_MS))
    (found,) = verdict(h, "QC-14").violations
    assert stated(found, "process", "after_ns") == (BROKER, 1_206_000_000)


@pytest.mark.parametrize("given", ["from its request", "nothing of requests", "one start"])
def test_a_broker_that_fences_itself_a_period_after_its_request_keeps_qc_14(given: str) -> None:
    h = HistoryBuilder()
    if given != "nothing of requests":
        ask(h)
    if given == "one start":
        ask(h.after(1200))
    active_broker(h.after(300))
    fence_itself(h.after(LEASE_MS))
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_a_stall_between_a_request_and_its_answer_leaves_the_end_of_the_lease_undecided() -> None:
    h = HistoryBuilder()
    ask(h)
    h.after(1200)
    h.add(BROKER, Stalled(stalled_ns=1100 * MS))
    active_broker(h)
    fence_itself(h.after(LEASE_MS))
    assert verdict(h, "QC-14").verdict is Outcome.UNKNOWN


def forge(h: HistoryBuilder, epoch: int = 1) -> None:
    """The broker goes on for 8 s by leases that nobody answered, and then fences itself."""
    for start_ms in range(2000, 10_000, 2000):
        grant(h.after(2000), start_ms=start_ms, epoch=epoch)
    fence_itself(h)


def test_a_broker_that_goes_on_by_leases_which_no_controller_gave_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    given = h.events()[3]
    expire(h)
    forge(h)
    (found,) = verdict(h, "QC-14").violations
    forged = [e for e in h.events() if isinstance(e.body, LeaseGranted)][1]
    assert (found.evidence, found.because) == (Evidence.PEER, (given.ref, forged.ref))
    assert stated(found, "process", "broker") == (BROKER, "broker 1")
    assert verdict(h, "QC-14", complete=False).verdict is Outcome.UNKNOWN


def test_leases_whose_answers_are_told_later_keep_qc_14() -> None:
    """A node may record an answer once it is sent."""
    h = HistoryBuilder()
    active_broker(h)
    for start_ms in range(2000, 10_000, 2000):
        grant(h.after(1500), start_ms=start_ms)
        answer(h, start_ms=start_ms)
    h.after(500)
    grant(h, start_ms=10_000)
    fence_itself(h.after(1000))
    answer(h, start_ms=10_000)
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_leases_of_a_controller_that_tells_of_no_answer_keep_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    expire(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    forge(h, epoch=2)
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("unknown", "outcome"),
    [
        ("killed", Outcome.UNKNOWN),
        ("killed later", Outcome.VIOLATED),
        ("term", Outcome.UNKNOWN),
        ("client", Outcome.UNKNOWN),
    ],
)
def test_who_gave_a_lease_without_an_answer_may_not_be_known(
    unknown: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active_broker(h)
    expire(h)
    if unknown == "client":
        answer(h, start_ms=7, client="")
    forge(h, epoch=3 if unknown == "term" else 1)
    if unknown == "killed later":
        answer(h, start_ms=7, client="broker-2#1")
    if unknown.startswith("killed"):
        die(h, ONE)
    assert verdict(h, "QC-14").verdict is outcome


def test_a_silent_broker_left_unfenced_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    fence_itself(h)
    h.after(1300)
    found = verdict(h, "QC-14").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "process", "broker") == (ONE, "broker 1")


def test_answers_to_heartbeats_that_nobody_sent_keep_no_broker_unfenced() -> None:
    h = HistoryBuilder()
    ask(h)
    active_broker(h)
    heard = h.events()[3]
    for start_ms in range(2000, 10_000, 2000):
        if start_ms == 4000:
            fence_itself(h)
        answer(h.after(2000), start_ms=start_ms)
    (found,) = verdict(h, "QC-14").violations
    assert (found.evidence, found.because) == (Evidence.PEER, (heard.ref,))
    assert stated(found, "process", "broker") == (ONE, "broker 1")


def test_an_answer_told_again_and_again_keeps_no_broker_unfenced() -> None:
    h = HistoryBuilder()
    ask(h)
    active_broker(h)
    for at in range(4):
        answer(h.after(1500))
        if at == 1:
            fence_itself(h)
    assert stated(verdict(h, "QC-14"), "process", "broker") == (ONE, "broker 1")


@pytest.mark.parametrize("tells", ["nothing", "late", "killed", "one start"])
def test_heartbeats_that_a_broker_may_have_sent_keep_it_unfenced(tells: str) -> None:
    h = HistoryBuilder()
    if tells != "nothing":
        ask(h, start_ms=50)
    active_broker(h)
    for at in range(2000, 10_000, 2000):
        # Its wall clock stands, or its system has no starts.
        start_ms = 50 if tells == "one start" else at
        if tells != "nothing":
            ask(h, start_ms=start_ms)
        if tells == "killed":
            die(h)
        # The link holds the request for nearly half of the lease.
        answer(h.after(1300), start_ms=start_ms)
        if tells == "killed":
            break
        grant(h, start_ms=start_ms, late_ms=1302)
    h.after(LEASE_MS - 1302)
    if tells != "killed":
        fence_itself(h)
    expire(h.after(1302))
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_a_broker_made_active_again_without_having_been_fenced_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    fence_itself(h)
    h.after(1300)
    h.add(
        ONE, BrokerCommitted(offset=9, broker_id=1, broker_epoch=9, fenced=False, incarnation="x")
    )
    answer(h)
    assert verdict(h, "QC-14").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("deleted", [True, False])
def test_a_silent_broker_that_was_deleted_need_not_be_fenced(deleted: bool) -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    fence_itself(h)
    if deleted:
        h.add(ONE, BrokerDeleted(offset=8, broker_id=1))
        replayed = BrokerCommitted(
            offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="x"
        )
        h.add("broker-2#2", replayed)  # a node that restarted
    h.after(1300)
    assert (verdict(h, "QC-14").verdict is Outcome.VIOLATED) != deleted


def test_a_lost_lease_fenced_on_both_sides_keeps_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS + 300)
    fence_itself(h)
    expire(h)
    h.after(60_000)
    found = verdict(h, "QC-14")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.PEER)


def test_a_dead_process_need_not_fence_itself_and_without_a_controller_none_is_fenced() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("more_ms", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)
def test_a_broker_that_never_fences_itself_is_late_a_lease_after_the_end_of_its_lease(
    more_ms: int, outcome: Outcome
) -> None:
    """It was active all the time, and then it was killed, as every process is in the end."""
    h = HistoryBuilder()
    active_broker(h)
    (taken,) = [event.body for event in h.events() if isinstance(event.body, LeaseGranted)]
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.after((taken.ends_at_ns - h.now_ns) // MS + LEASE_MS + more_ms)
    die(h)
    assert verdict(h, "QC-14").verdict is outcome


@pytest.mark.parametrize("stalled", [BROKER, "harness"])
def test_a_broker_that_stood_still_until_it_was_killed_owes_no_fencing(stalled: str) -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.after(20_000)
    h.add("harness", Stalled(stalled_ns=20_000 * MS, of="" if stalled == "harness" else stalled))
    die(h)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("resigns", [True, False])
def test_a_new_controller_does_not_excuse_a_lease_that_was_over_long_before(resigns: bool) -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.after(20_000)
    if resigns:
        h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.add(
        TWO, BrokerCommitted(offset=11, broker_id=1, broker_epoch=5, fenced=True, incarnation="x")
    )
    assert stated(verdict(h, "QC-14"), "broker", "since_ns") == ("broker 1", 20_004_000_000)


def test_a_controller_that_leaves_a_broker_unfenced_is_not_blamed_on_its_own_election() -> None:
    h = HistoryBuilder()
    active_broker(h)
    heard = h.events()[2]
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.after(20_000)
    h.add(
        TWO, BrokerCommitted(offset=11, broker_id=1, broker_epoch=5, fenced=True, incarnation="x")
    )
    (found,) = verdict(h, "QC-14").violations
    assert found.because == (heard.ref,)


def test_a_new_controller_gives_every_lease_a_full_period() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(2000)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.after(2000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


def test_a_second_election_in_the_same_epoch_gives_no_lease_a_new_period() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.after(2500)
    h.add(TWO, ControllerElected(epoch=1, log_end=6, last_epoch=1))
    h.after(2500)
    assert stated(verdict(h, "QC-14"), "process", "broker") == (ONE, "broker 1")


def test_a_new_controller_owes_nothing_to_a_broker_that_is_fenced_already() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    expire(h)
    fence_itself(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(TWO, ControllerElected(epoch=2, log_end=10, last_epoch=1))
    h.after(3 * LEASE_MS)
    h.add(
        TWO, BrokerCommitted(offset=11, broker_id=1, broker_epoch=11, fenced=True, incarnation="y")
    )
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_a_broker_that_stalled_past_its_lease_and_fences_itself_at_once_keeps_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    expire(h)
    h.after(500)
    h.add(BROKER, Stalled(stalled_ns=600 * MS))
    fence_itself(h)
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_a_stall_of_the_broker_that_does_not_cover_the_delay_leaves_qc_14_undecided() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS - 100)
    h.add(BROKER, Stalled(stalled_ns=600 * MS))
    h.after(100)
    expire(h)
    h.after(500)
    fence_itself(h)
    found = verdict(h, "QC-14")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "stalled_ns") == 600 * MS


def test_a_stall_of_another_process_is_no_excuse() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    expire(h)
    h.after(500)
    h.add("broker-2#1", Stalled(stalled_ns=600 * MS))
    fence_itself(h)
    assert verdict(h, "QC-14").verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ QC-22


@pytest.mark.parametrize("active", [True, False])
def test_a_deposed_controller_that_renews_breaks_qc_22(active: bool) -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    answer(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="higher_epoch"))
    answer(h, active=active)
    found = verdict(h, "QC-22")
    assert found.violated == 1
    assert [str(ref) for ref in found.violations[0].because] == [f"{ONE}@2"]


def test_a_controller_that_was_never_active_and_answers_breaks_qc_22() -> None:
    h = HistoryBuilder()
    answer(h, error="STALE_BROKER_EPOCH", active=False)
    assert verdict(h, "QC-22").verdict is Outcome.VIOLATED


def test_a_refusal_by_an_inactive_controller_keeps_qc_22() -> None:
    h = HistoryBuilder()
    answer(h, error="NOT_CONTROLLER", active=False, process=TWO)
    h.add(
        BROKER,
        HeartbeatRefused(broker_id=1, broker_epoch=5, error="NOT_CONTROLLER", controller=102),
    )
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    answer(h, error="STALE_BROKER_EPOCH")
    found = verdict(h, "QC-22")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.PEER)


def test_qc_22_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    answer(h, error="NOT_CONTROLLER", active=False)
    assert verdict(h, "QC-22", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-36


def test_a_lease_that_outlives_the_successors_first_decision_breaks_qc_36() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(400)
    grant(h)
    found = verdict(h, "QC-36").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "controller", "after_ns") == (ONE, 401_000_000)


def test_a_controller_that_goes_on_renewing_breaks_qc_36() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(400)
    answer(h)
    assert verdict(h, "QC-36").violations[0].evidence is Evidence.SELF


def test_a_controller_that_goes_on_in_its_successors_name_breaks_qc_36() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(400)
    answer(h, epoch=2)
    found = verdict(h, "QC-36").violations[0]
    assert stated(found, "process", "epoch") == (ONE, 1)


@pytest.mark.parametrize("who", ["the successor", "elected again", "never elected", "in time"])
def test_a_controller_that_renews_in_the_newest_epoch_keeps_qc_36(who: str) -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(200 if who == "in time" else 400)
    if who == "elected again":
        h.add(ONE, ControllerElected(epoch=3, log_end=7, last_epoch=2))
    process = {"the successor": TWO, "never elected": "controller-3#1"}.get(who, ONE)
    answer(h, process=process, epoch=3 if who == "elected again" else 2)
    assert verdict(h, "QC-36").verdict is Outcome.NOT_EXERCISED


THREE = "controller-3#1"
VOTERS = (101, 102, 103)


def quorum(h: HistoryBuilder, seen: tuple[str, ...] = (ONE, TWO, THREE)) -> None:
    """Three voters, of which these processes were seen to start."""
    for process in seen:
        node = VOTERS[(ONE, TWO, THREE).index(process)]
        h.add(process, NodeStarted(role="controller", node_id=node))
        learn(h, process)


def learn(h: HistoryBuilder, process: str, voters: tuple[int, ...] = VOTERS) -> None:
    h.add(process, QuorumLearned(voters=voters, endpoints=(), bootstrap=()))


def test_a_controller_that_goes_on_without_any_other_voter_breaks_qc_36() -> None:
    h = HistoryBuilder()
    quorum(h)
    isolated(h)
    die(h, TWO)
    die(h, THREE)
    ended = h.events()[-1].ref
    for start_ms in range(6000, 16_000, 2000):
        answer(h.after(2000), start_ms=start_ms)
    (found,) = verdict(h, "QC-36").violations
    assert (found.evidence, found.because) == (Evidence.SELF, (ended,))
    assert stated(found, "process", "after_ns") == (ONE, 6_003_000_000)


@pytest.mark.parametrize(
    "alive", ["one more", "started again", "spawned", "never seen", "voters changed", "duplicate"]
)
def test_where_a_majority_may_be_alive_a_controller_may_go_on(alive: str) -> None:
    h = HistoryBuilder()
    quorum(h, seen=(ONE, TWO) if alive == "never seen" else (ONE, TWO, THREE))
    isolated(h)
    if alive == "voters changed":
        learn(h, ONE, voters=(101, 102))
    if alive == "duplicate":
        h.add("controller-3-duplicate#1", NodeStarted(role="controller", node_id=103))
    die(h, TWO)
    if alive not in ("one more", "never seen"):
        die(h, THREE)
    if alive == "started again":
        h.add("controller-3#2", NodeStarted(role="controller", node_id=103))
    if alive == "spawned":
        h.add(
            "harness",
            ProcessSpawned(
                started="controller-3#2", slot="controller-3", role="controller", node_id=0, pid=9
            ),
        )
    answer(h.after(60_000), start_ms=7)
    assert verdict(h, "QC-36").verdict is Outcome.NOT_EXERCISED


def test_a_stall_of_a_controller_without_a_majority_leaves_qc_36_undecided() -> None:
    h = HistoryBuilder()
    quorum(h)
    isolated(h)
    die(h, TWO)
    die(h, THREE)
    h.after(6000)
    h.add(ONE, Stalled(stalled_ns=5000 * MS))
    answer(h, start_ms=7)
    assert verdict(h, "QC-36").verdict is Outcome.UNKNOWN


def test_a_controller_that_resigns_before_its_successor_keeps_qc_36() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.after(400)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    found = verdict(h, "QC-36")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_resignation_exercises_qc_36_at_the_next_election_only() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.add(ONE, ControllerElected(epoch=3, log_end=7, last_epoch=2))
    assert verdict(h, "QC-36").exercised == 1


def test_an_answer_in_flight_at_the_successors_election_keeps_qc_36() -> None:
    h = HistoryBuilder()
    isolated(h)
    granted = LeaseGranted(
        broker_id=1,
        broker_epoch=5,
        next_state="ACTIVE",
        lease_start_ms=50,
        lease_end_ms=3050,
        ends_at_ns=h.now_ns + LEASE_MS * MS,
        controller_epoch=1,
    )
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(900)
    h.add(BROKER, granted)
    assert verdict(h, "QC-36").verdict is Outcome.NOT_EXERCISED


def test_a_stall_of_the_old_controller_leaves_qc_36_undecided() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(5000)
    h.add(ONE, Stalled(stalled_ns=4000 * MS))
    answer(h)
    assert verdict(h, "QC-36").verdict is Outcome.UNKNOWN
