"""The rules about heartbeats as controllers answer them (QC-16 to QC-22), each with a violation, a
near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    CONTROLLER,
    FIRST,
    OBSERVER,
    SESSION_MS,
    ended,
    healed,
    injected,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import Evidence, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    LeaseExpired,
    MetadataApplied,
    MetadataCommitted,
)

MS = 1_000_000
OTHER = "controller-2#1"
EPOCH = 20
"""Broker 1's epoch, which is the offset of its registration."""


def answered(
    h: HistoryBuilder,
    state: str = "ACTIVE",
    error: str = "NONE",
    epoch: int = EPOCH,
    at: int = EPOCH,
    ago_ms: int = 0,
    process: str = CONTROLLER,
    term: int = 1,
) -> None:
    """A heartbeat of broker 1, that came in so long ago with metadata up to `at`."""
    body = HeartbeatAnswered(
        client="",
        broker_id=1,
        incarnation="",
        request_epoch=epoch,
        broker_epoch=epoch,
        error=error,
        next_state=state,  # type: ignore[arg-type]
        lease_start_ms=0,
        lease_end_ms=0,
        lease_period_ms=SESSION_MS,
        controller_epoch=term,
        active_controller=-1,
        active=term >= 0,
        metadata_offset=at,
        received_at_ns=h.now_ns - ago_ms * MS,
    )
    h.add(process, body)


def runs(h: HistoryBuilder) -> None:
    """Broker 1 begins to run."""
    body = BrokerStateChanged(
        broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=EPOCH, reason="unfenced"
    )
    h.add(FIRST, body)


def applied(h: HistoryBuilder, offset: int = EPOCH) -> None:
    h.add(FIRST, MetadataApplied(offset=offset, epoch=1))


def elected(h: HistoryBuilder, process: str = CONTROLLER, epoch: int = 1) -> None:
    h.add(process, ControllerElected(epoch=epoch, log_end=1, last_epoch=-1))


# ------------------------------------------------------------------------------------------ QC-16


def test_a_broker_that_unfences_itself_breaks_kr_16() -> None:
    h = HistoryBuilder()
    answered(h, "FENCED")
    answered(h, "ACTIVE", epoch=EPOCH - 1)  # for a former process
    answered(h, "ACTIVE", error="NOT_CONTROLLER")
    runs(h)
    found = verdict(h.after(2_000), "QC-16")
    assert (found.verdict, found.violations[0].evidence) == (Outcome.VIOLATED, Evidence.PEER)


def test_a_broker_that_runs_before_its_heartbeat_came_in_breaks_kr_16() -> None:
    h = HistoryBuilder()
    runs(h)
    h.after(300)
    answered(h, ago_ms=150)
    assert verdict(h, "QC-16").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("later_ms", "broken"), [(100, 0), (101, 1)])
def test_a_heartbeat_is_dated_a_tenth_of_a_second_late_at_most(later_ms: int, broken: int) -> None:
    h = HistoryBuilder()
    runs(h)
    answered(h.after(later_ms - 1))
    found = verdict(h, "QC-16")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_an_answer_exercises_kr_16_though_it_is_logged_after_its_effect() -> None:
    """And though the heartbeat is dated later than it came in, by what the log was late."""
    before, after, late = HistoryBuilder(), HistoryBuilder(), HistoryBuilder()
    answered(before)
    runs(before)
    runs(after)
    answered(after.after(100), ago_ms=150)
    runs(late)
    answered(late.after(35), ago_ms=33)
    for h in (before, after, late):
        found = verdict(h, "QC-16")
        assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_an_answer_that_may_not_have_been_logged_leaves_kr_16_undecided() -> None:
    ends = HistoryBuilder()
    answered(ends, "FENCED")
    runs(ends)
    assert verdict(ends, "QC-16").verdict is Outcome.UNKNOWN
    dies = HistoryBuilder()
    answered(dies, "FENCED")
    runs(dies)
    ended(dies, CONTROLLER)
    assert verdict(dies.after(5_000), "QC-16").verdict is Outcome.UNKNOWN
    ended(ends, FIRST)
    assert verdict(ends.after(5_000), "QC-16").verdict is Outcome.VIOLATED
    assert verdict(ends, "QC-16", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(("lived_ms", "broken"), [(1_000, 0), (1_001, 1)])
def test_a_run_that_ends_within_a_second_leaves_kr_16_undecided(lived_ms: int, broken: int) -> None:
    h = HistoryBuilder()
    answered(h, "FENCED")
    runs(h)
    assert verdict(h.after(lived_ms - 1), "QC-16").violated == broken


@pytest.mark.parametrize(("later_ms", "broken"), [(2_000, 0), (2_001, 1)])
def test_a_controller_that_ends_within_two_seconds_may_not_have_logged_its_answer(
    later_ms: int, broken: int
) -> None:
    h = HistoryBuilder()
    answered(h, "FENCED")
    runs(h)
    ended(h.after(later_ms - 1), CONTROLLER)
    assert verdict(h.after(5_000), "QC-16").violated == broken


@pytest.mark.parametrize(("earlier_ms", "broken"), [(1, 0), (1_000, 0), (1_001, 1)])
def test_a_controller_that_ended_right_before_may_not_have_logged_its_answer(
    earlier_ms: int, broken: int
) -> None:
    """It had sent it, and the broker was slow to act."""
    h = HistoryBuilder()
    answered(h, "FENCED")
    ended(h, CONTROLLER)
    runs(h.after(earlier_ms - 1))
    assert verdict(h.after(5_000), "QC-16").violated == broken


def test_a_history_without_answers_to_heartbeats_proves_nothing_for_kr_16() -> None:
    h = HistoryBuilder()
    runs(h)
    assert verdict(h.after(5_000), "QC-16").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ REG-04


def test_a_broker_that_runs_without_the_metadata_of_its_registration_breaks_kr_17() -> None:
    h = HistoryBuilder()
    applied(h, EPOCH - 1)
    answered(h)
    runs(h)
    assert verdict(h, "REG-04").violations[0].evidence is Evidence.SELF


def test_a_controller_that_unfences_a_broker_that_is_behind_breaks_kr_17() -> None:
    h = HistoryBuilder()
    answered(h, at=EPOCH - 1)
    assert verdict(h, "REG-04").violations[0].evidence is Evidence.PEER


def test_a_broker_that_is_unfenced_once_it_has_caught_up_exercises_kr_17() -> None:
    for early in (True, False):
        h = HistoryBuilder()
        applied(h)
        answered(h, "FENCED", at=EPOCH - 1)
        if early:
            answered(h)
        runs(h)
        answered(h, ago_ms=10)
        found = verdict(h, "REG-04")
        assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_broker_whose_answer_is_not_known_does_not_exercise_kr_17() -> None:
    h = HistoryBuilder()
    applied(h)
    runs(h)
    assert verdict(h, "REG-04").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-18


def expires(h: HistoryBuilder, process: str = CONTROLLER, named_ms: int = SESSION_MS) -> None:
    body = LeaseExpired(
        broker_id=1,
        broker_epoch=EPOCH,
        last_heard_ns=-1,
        now_ns=h.now_ns,
        lease_period_ms=named_ms,
        controller_epoch=1,
    )
    h.add(process, body)


def test_a_session_that_ends_early_breaks_kr_18() -> None:
    h = HistoryBuilder()
    answered(h)
    expires(h.after(SESSION_MS - 500))
    assert verdict(h, "KR-18").verdict is Outcome.VIOLATED


def test_a_session_that_lasts_its_time_exercises_kr_18() -> None:
    h = HistoryBuilder()
    answered(h)
    expires(h.after(SESSION_MS))
    assert verdict(h, "KR-18").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("early_ms", "broken"), [(100, 0), (101, 1)])
def test_a_session_may_end_early_by_what_the_heartbeat_is_dated_late(
    early_ms: int, broken: int
) -> None:
    h = HistoryBuilder()
    answered(h)
    expires(h.after(SESSION_MS - early_ms - 1))
    found = verdict(h, "KR-18")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_refused_heartbeats_and_those_of_another_controller_do_not_count_for_kr_18() -> None:
    h = HistoryBuilder()
    answered(h)
    h.after(SESSION_MS - 500)
    answered(h, error="STALE_BROKER_EPOCH")
    answered(h, process=OTHER)
    expires(h.after(500))
    assert verdict(h, "KR-18").verdict is Outcome.HOLDS
    unknown = HistoryBuilder()
    expires(unknown)
    assert verdict(unknown, "KR-18").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("after_ms", "broken"), [(SESSION_MS - 101, 1), (SESSION_MS - 100, 0)])
@pytest.mark.parametrize("process", [CONTROLLER, OTHER])
def test_a_new_term_counts_every_session_from_its_election(
    process: str, after_ms: int, broken: int
) -> None:
    """Also one of the same controller. A line about its former term begins none."""
    h = HistoryBuilder()
    elected(h, epoch=1)
    answered(h)
    elected(h.after(60_000), process, epoch=2)
    h.after(after_ms - 2)
    elected(h, process, epoch=0)
    expires(h, process)
    found = verdict(h, "KR-18")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_a_session_is_as_long_as_the_answer_to_its_heartbeat_said() -> None:
    for named_ms, broken in ((SESSION_MS, 0), (SESSION_MS // 3, 1)):
        h = HistoryBuilder()
        answered(h)
        expires(h.after(named_ms), named_ms=named_ms)
        found = verdict(h, "KR-18")
        assert found.violated == broken
        if broken:
            assert stated(found, "session_ms") == SESSION_MS


def test_a_stall_leaves_an_early_end_undecided_for_kr_18() -> None:
    h = HistoryBuilder()
    answered(h)
    h.after(1_000)
    h.add(CONTROLLER, Stalled(stalled_ns=900 * MS))
    expires(h)
    assert verdict(h, "KR-18").verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ KR-19


def registered(h: HistoryBuilder, epoch: int, term: int = 1) -> None:
    """A registration of broker 1, by the controller of that epoch."""
    h.add(
        OBSERVER,
        MetadataCommitted(offset=epoch, epoch=term, kind="RegisterBroker", digest="", version=3),
    )
    body = BrokerCommitted(
        offset=epoch, broker_id=1, broker_epoch=epoch, fenced=True, incarnation=f"of {epoch}"
    )
    h.add(OBSERVER, body)


def replaced(term: int = 1) -> HistoryBuilder:
    h = HistoryBuilder()
    registered(h, EPOCH)
    registered(h, EPOCH + 10, term)
    return h


def test_a_heartbeat_of_a_former_epoch_that_is_accepted_breaks_kr_19() -> None:
    h = replaced()
    answered(h)
    assert verdict(h, "KR-19").violations[0].evidence is Evidence.PEER


def test_a_registration_that_is_read_again_is_no_newer_for_kr_19() -> None:
    h = replaced().after(100)
    registered(h, EPOCH + 10)
    answered(h, ago_ms=50)
    assert verdict(h, "KR-19").verdict is Outcome.VIOLATED


def test_a_refusal_of_a_former_epoch_exercises_kr_19() -> None:
    h = replaced()
    answered(h, "FENCED", error="STALE_BROKER_EPOCH")
    assert verdict(h, "KR-19").verdict is Outcome.HOLDS


def test_what_came_in_before_or_a_controller_could_not_know_keeps_kr_19() -> None:
    came_before = replaced()
    answered(came_before, ago_ms=50)
    older = replaced(term=2)
    answered(older, term=1)
    current = replaced()
    answered(current, epoch=EPOCH + 10)
    resigned = replaced()
    answered(resigned, term=-1)
    for h in (came_before, older, current, resigned):
        assert verdict(h, "KR-19").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-22


def resigned() -> HistoryBuilder:
    h = HistoryBuilder()
    elected(h)
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
    return h.after(1_000)


def test_a_heartbeat_that_a_former_controller_accepts_breaks_kr_20() -> None:
    h = resigned()
    answered(h, term=-1)
    (found,) = verdict(h, "QC-22").violations
    assert found.because


def test_a_controller_that_was_never_active_and_accepts_breaks_kr_20() -> None:
    h = HistoryBuilder()
    answered(h, term=-1)
    (found,) = verdict(h, "QC-22").violations
    assert not found.because


@pytest.mark.parametrize(("later_ms", "broken"), [(100, 0), (101, 1)])
def test_what_is_dated_late_may_have_come_in_while_the_controller_was_active(
    later_ms: int, broken: int
) -> None:
    h = resigned()
    answered(h, term=-1, ago_ms=1_001 - later_ms)
    assert verdict(h, "QC-22").violated == broken


def test_not_controller_exercises_kr_20() -> None:
    h = resigned()
    answered(h, "FENCED", error="NOT_CONTROLLER", term=-1)
    assert verdict(h, "QC-22").verdict is Outcome.HOLDS


def test_an_answer_of_before_that_is_logged_later_keeps_kr_20() -> None:
    h = resigned()
    answered(h, term=-1, ago_ms=1_100)
    elected(h, epoch=3)
    answered(h, term=3)
    assert verdict(h, "QC-22").verdict is Outcome.NOT_EXERCISED


def test_a_stall_leaves_kr_20_undecided() -> None:
    h = resigned()
    h.add(CONTROLLER, Stalled(stalled_ns=900 * MS))
    answered(h, term=-1)
    assert verdict(h, "QC-22").verdict is Outcome.UNKNOWN


def deposed(after_ms: int, epoch: int = 2) -> HistoryBuilder:
    """Another controller is elected, and the former one logs no resignation."""
    h = HistoryBuilder()
    elected(h)
    elected(h, OTHER, epoch)
    answered(h.after(after_ms - 1))
    return h.after(1_000)


@pytest.mark.parametrize(
    ("after_ms", "epoch", "broken"), [(10_100, 2, 0), (10_101, 2, 1), (60_000, 0, 0)]
)
def test_a_deposed_controller_that_accepts_for_long_breaks_kr_20(
    after_ms: int, epoch: int, broken: int
) -> None:
    found = verdict(deposed(after_ms, epoch), "QC-22")
    assert found.violated == broken
    if broken:
        assert stated(found, "elected", "epoch", "after_ns") == (OTHER, 2, after_ms * MS)


@pytest.mark.parametrize("targets", [("controller-1", "controller-2"), (CONTROLLER,)])
@pytest.mark.parametrize(("heals_ms", "broken"), [(0, 1), (50_000, 0), (60_000, 0)])
def test_a_deposed_controller_that_a_fault_keeps_from_knowing_keeps_kr_20(
    targets: tuple[str, ...], heals_ms: int, broken: int
) -> None:
    h = HistoryBuilder()
    elected(h)
    injected(h, "cut", *targets, cut=[targets[::-1]] if len(targets) > 1 else ())
    elected(h, OTHER, 2)
    healed(h.after(heals_ms), "cut")
    answered(h.after(59_000 - heals_ms))
    assert verdict(h.after(1_000), "QC-22").violated == broken


def test_a_new_controller_that_is_gone_may_not_have_told_the_former_one() -> None:
    """Nor does a term count from a line that is read late, or end by one of a former term."""
    gone, resigns, former = HistoryBuilder(), HistoryBuilder(), HistoryBuilder()
    for h in (gone, resigns):
        elected(h)
        elected(h, OTHER, 2)
    ended(gone, OTHER)
    resigns.add(OTHER, ControllerResigned(epoch=2, reason="no_majority"))
    elected(former, epoch=3)
    elected(former, OTHER, 2)
    elected(former, epoch=1)
    former.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
    for h in (gone, resigns, former):
        answered(h.after(60_000))
        assert verdict(h.after(1_000), "QC-22").violated == 0
