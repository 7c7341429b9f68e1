"""The rule of the period that a new controller owes every broker (QC-31)."""

from __future__ import annotations

import pytest
from tests.suites.brokers.broker_histories import (
    BROKER,
    LEASE_MS,
    NEW,
    OLD,
    PEER,
    grant,
    record,
    verdict,
)
from tests.suites.brokers.lease_histories import answer, ask, expired
from tests.suites.brokers.life_histories import tell
from tests.suites.partition_histories import stated

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStopping,
    ControllerElected,
    HeartbeatAnswered,
    MetadataCommitted,
    VoteAnswered,
)

# ------------------------------------------------------------------------------------------ QC-31


def taken_over(h: HistoryBuilder) -> None:
    record(h, 5, fenced=False)
    h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))


def expire(h: HistoryBuilder, process: str = NEW, epoch: int = 2) -> None:
    expired(h, process=process, epoch=epoch)


def test_a_controller_that_fences_at_its_election_breaks_qc_31() -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h.after(2000))
    record(h, 10, fenced=True, process=NEW)
    record(h, 10, fenced=True)
    found = verdict(h, "QC-31")
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert found.violations[0].evidence is Evidence.PEER


@pytest.mark.parametrize(("start_ms", "outcome"), [(0, Outcome.HOLDS), (50, Outcome.VIOLATED)])
def test_a_lease_that_the_new_controller_did_not_give_pays_nothing(
    start_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    taken_over(h)
    answer(h, start_ms=start_ms, process=NEW, epoch=2)
    grant(h)
    expire(h.after(500))
    assert verdict(h, "QC-31").verdict is outcome


@pytest.mark.parametrize("teller", [OLD, NEW])
def test_a_controller_that_names_a_shorter_lease_than_was_promised_breaks_qc_31(
    teller: str,
) -> None:
    """It names 100 ms. Its former answers, or those of all others, name three seconds."""
    h = HistoryBuilder()
    answer(h, process=teller)
    taken_over(h)
    expired(h.after(500), process=NEW, epoch=2, period_ms=100)
    found = verdict(h, "QC-31")
    assert (found.verdict, stated(found, "bound_ns")) == (Outcome.VIOLATED, 3_000_000_000)


def test_one_controller_that_names_a_longer_lease_than_the_others_accuses_nobody_of_qc_31() -> None:
    h = HistoryBuilder()
    answer(h, process=OLD)
    expired(h, process=PEER, period_ms=10 * LEASE_MS)
    taken_over(h)
    expire(h.after(LEASE_MS))
    assert verdict(h, "QC-31").verdict is Outcome.HOLDS


def test_without_a_peer_the_controllers_own_event_breaks_qc_31() -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h)
    assert verdict(h, "QC-31").violations[0].evidence is Evidence.SELF


def fenced_by_record(
    h: HistoryBuilder, epoch: int = 2, after_ms: int = 1, incarnation: str = "x"
) -> None:
    """No controller says that it ended a lease: only the log has that the broker is fenced."""
    record(h, 5, fenced=False)
    expire(h, OLD, epoch=1)  # of an earlier broker: it names the period
    h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    h.after(after_ms)
    h.add(PEER, MetadataCommitted(offset=10, epoch=epoch, kind="Broker", digest=""))
    body = BrokerCommitted(
        offset=10, broker_id=1, broker_epoch=5, fenced=True, incarnation=incarnation
    )
    h.add(PEER, body)


def test_a_fencing_that_only_the_log_shows_breaks_qc_31() -> None:
    h = HistoryBuilder()
    fenced_by_record(h)
    found = verdict(h, "QC-31").violations[0]
    assert found.evidence is Evidence.PEER
    recorded = stated(found, "offset", "epoch", "broker", "after_ns")
    assert recorded == (10, 2, "broker 1", 3_000_000)


@pytest.mark.parametrize("error", ["STALE_BROKER_EPOCH", "UNSUPPORTED_VERSION"])
def test_a_broker_whose_lease_a_new_controller_refuses_to_renew_keeps_qc_31(error: str) -> None:
    """It is far behind, or lacks a feature. The answer waits until the record is committed."""
    h = HistoryBuilder()
    ask(h)
    fenced_by_record(h)
    answer(h, process=NEW, epoch=2, error=error)
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("why", ["asked after it", "of another process", "by a standby"])
def test_a_refusal_that_did_not_fence_the_broker_excuses_nothing_of_qc_31(why: str) -> None:
    h = HistoryBuilder()
    if why != "asked after it":
        ask(h)
    fenced_by_record(h, incarnation="x")
    if why == "asked after it":
        ask(h)
    incarnation = "y" if why == "of another process" else "x"
    body = HeartbeatAnswered(
        client=BROKER,
        broker_id=1,
        incarnation=incarnation,
        request_epoch=5,
        broker_epoch=-1,
        error="STALE_BROKER_EPOCH",
        next_state="FENCED",
        lease_start_ms=50,
        lease_end_ms=-1,
        lease_period_ms=LEASE_MS,
        controller_epoch=2,
        active_controller=102,
        active=why != "by a standby",
    )
    h.add(NEW, body)
    assert verdict(h, "QC-31").violated == 1


def voted(h: HistoryBuilder, epoch: int) -> None:
    body = VoteAnswered(
        epoch=epoch,
        candidate=2,
        granted=True,
        reason="granted",
        log_end=9,
        last_epoch=1,
        candidate_log_end=9,
        candidate_last_epoch=1,
    )
    h.add(PEER, body)


def fenced_in_silence(
    h: HistoryBuilder, epoch: int = 2, after_ms: int = 1, said_late: bool = False
) -> None:
    """The new controller never says that it was elected, or only after its first record."""
    record(h, 5, fenced=False)
    expire(h, OLD, epoch=1)
    voted(h, epoch)
    h.after(after_ms)
    for process in (PEER, OLD):
        h.add(process, MetadataCommitted(offset=10, epoch=2, kind="Broker", digest=""))
        if said_late:
            h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))
        body = BrokerCommitted(offset=10, broker_id=1, broker_epoch=5, fenced=True, incarnation="x")
        h.add(process, body)


@pytest.mark.parametrize("said_late", [False, True])
def test_a_fencing_of_a_controller_that_hides_its_election_breaks_qc_31(said_late: bool) -> None:
    h = HistoryBuilder()
    fenced_in_silence(h, said_late=said_late)
    found = verdict(h, "QC-31")
    assert found.violated == 1
    assert found.violations[0].evidence is Evidence.PEER
    assert stated(found, "offset", "epoch", "broker") == (10, 2, "broker 1")


def test_a_fencing_that_one_process_shows_has_no_peer_if_the_controller_is_unknown() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    expire(h, OLD, epoch=1)
    voted(h, 2)
    h.add(PEER, MetadataCommitted(offset=10, epoch=2, kind="Broker", digest=""))
    body = BrokerCommitted(offset=10, broker_id=1, broker_epoch=5, fenced=True, incarnation="x")
    h.add(PEER, body)
    assert verdict(h, "QC-31").violations[0].evidence is Evidence.SELF


def test_without_a_word_of_an_election_qc_31_judges_a_period_from_the_first_vote() -> None:
    for given in ({"epoch": 1}, {"epoch": 3}, {"after_ms": LEASE_MS}):
        h = HistoryBuilder()
        fenced_in_silence(h, **given)
        assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_fencing_of_the_former_controller_or_of_a_new_process_keeps_qc_31() -> None:
    for given in ({"epoch": 1}, {"after_ms": LEASE_MS}, {"incarnation": "y"}):
        h = HistoryBuilder()
        fenced_by_record(h, **given)
        assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_deleted_broker_that_registers_anew_keeps_qc_31() -> None:
    """Its process is the same, so its new registration has the former incarnation."""
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    expire(h, OLD, epoch=1)
    h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    h.add(PEER, BrokerDeleted(offset=9, broker_id=1))
    record(h, 5, fenced=False, process=OLD)  # replayed again, by a node that restarted
    h.add(PEER, MetadataCommitted(offset=10, epoch=2, kind="Broker", digest=""))
    h.add(
        PEER,
        BrokerCommitted(offset=10, broker_id=1, broker_epoch=10, fenced=True, incarnation="x"),
    )
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_fencing_of_a_broker_that_stops_keeps_qc_31() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    h.add(BROKER, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1))
    fenced_by_record(h)
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_stays_silent_for_a_period_keeps_qc_31() -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h.after(LEASE_MS - 1))
    record(h, 10, fenced=True)
    found = verdict(h, "QC-31")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.SELF)


def test_a_lease_of_the_new_controller_keeps_qc_31() -> None:
    h = HistoryBuilder()
    taken_over(h)
    grant(h)
    expire(h)  # later: the controller had its heartbeat
    assert verdict(h, "QC-31").evidence is Evidence.PEER


def test_a_broker_that_was_fenced_already_does_not_exercise_qc_31() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=True)
    h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    grant(h)
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_qc_31_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    taken_over(h)
    grant(h)
    assert verdict(h, "QC-31", complete=False).verdict is Outcome.UNKNOWN


# -------------------------------------------------------------------- what does not count, bounds


@pytest.mark.parametrize(("after_ms", "outcome"), [(2700, Outcome.HOLDS), (2699, Outcome.VIOLATED)])
def test_a_tenth_of_the_period_is_allowed_for_clock_differences(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h.after(after_ms - 1))
    assert verdict(h, "QC-31").verdict is outcome


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(2700, Outcome.NOT_EXERCISED), (2699, Outcome.VIOLATED)]
)
def test_a_record_that_fences_is_early_within_the_same_bound(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    fenced_by_record(h, after_ms=after_ms - 2)
    assert verdict(h, "QC-31").verdict is outcome


def test_the_proof_of_qc_31_is_the_election_and_the_end_of_the_lease() -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h)
    record(h, 10, fenced=True)
    _, elected, expired, fenced = (event.ref for event in h.events())
    (found,) = verdict(h, "QC-31").violations
    assert (found.at, found.because) == (fenced, (elected, expired))
    h = HistoryBuilder()
    fenced_by_record(h)
    (found,) = verdict(h, "QC-31").violations
    elected, _, fenced = (event.ref for event in h.events()[2:])
    assert (found.at, found.because) == (fenced, (elected,))


def test_an_answer_to_a_heartbeat_names_the_period_as_well() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    tell(h, "ACTIVE")
    h.add(NEW, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    h.add(PEER, MetadataCommitted(offset=10, epoch=2, kind="Broker", digest=""))
    record(h, 10, fenced=True)
    assert verdict(h, "QC-31").verdict is Outcome.VIOLATED


def test_a_second_election_in_the_same_epoch_starts_no_new_period() -> None:
    h = HistoryBuilder()
    taken_over(h)
    h.after(2000)
    h.add(OLD, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    expire(h.after(800))
    assert verdict(h, "QC-31").verdict is Outcome.HOLDS


def test_a_deleted_broker_is_owed_nothing_more() -> None:
    h = HistoryBuilder()
    taken_over(h)
    h.add(PEER, BrokerDeleted(offset=9, broker_id=1))
    grant(h)
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_broker_whose_lease_has_ended_exercises_qc_31_once() -> None:
    h = HistoryBuilder()
    taken_over(h)
    expire(h.after(LEASE_MS))
    grant(h)
    assert verdict(h, "QC-31").exercised == 1


def test_a_broker_fenced_by_the_former_controller_is_owed_nothing_more() -> None:
    h = HistoryBuilder()
    taken_over(h)
    record(h, 8, fenced=True)  # written before the election, and replayed after it
    expire(h)
    assert verdict(h, "QC-31").verdict is Outcome.NOT_EXERCISED


def test_a_process_that_started_after_one_that_stopped_is_owed_its_period() -> None:
    h = HistoryBuilder()
    h.add(BROKER, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1))
    fenced_by_record(h, incarnation="y")
    h.add(
        PEER,
        BrokerCommitted(offset=11, broker_id=1, broker_epoch=11, fenced=False, incarnation="y"),
    )
    h.add(OLD, ControllerElected(epoch=3, log_end=12, last_epoch=2))
    h.add(PEER, MetadataCommitted(offset=12, epoch=3, kind="Broker", digest=""))
    h.add(
        PEER, BrokerCommitted(offset=12, broker_id=1, broker_epoch=11, fenced=True, incarnation="y")
    )
    assert verdict(h, "QC-31").verdict is Outcome.VIOLATED
