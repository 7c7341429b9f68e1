"""The rules of leases at their exact bounds, and what does not count for them."""

from __future__ import annotations

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
from tests.suites.partition_histories import stated

from fencepost import (
    Evidence,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    NodeStopped,
    ProcessExited,
    Stalled,
)
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    LeaseExpired,
    QuorumLearned,
)
from fencepost_suites.brokers.exchanges import EXCHANGES_KEPT

PEER = "broker-2#1"
SILENT_MS = LEASE_MS + LEASE_MS // 4 + 500
"""How long after a broker's last heartbeat its controller must have fenced it."""


def at_ms(h: HistoryBuilder, ms: int) -> HistoryBuilder:
    """The next event comes that many milliseconds after the broker's last heartbeat or grant."""
    since_ns = max(
        event.at_ns for event in h.events() if type(event.body).__name__.startswith("Lease")
    )
    return h.after((since_ns - h.now_ns) // MS + ms)


def record(h: HistoryBuilder, offset: int, fenced: bool, process: str = ONE) -> None:
    h.add(
        process,
        BrokerCommitted(offset=offset, broker_id=1, broker_epoch=5, fenced=fenced, incarnation="x"),
    )


def die(h: HistoryBuilder, process: str = BROKER) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-9, signal=9, expected=True))


def watched(h: HistoryBuilder) -> int:
    """An active controller and an unfenced broker that died after its only heartbeat; returns when
    that came."""
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    record(h, 5, fenced=False)
    answer(h)
    return h.now_ns - MS


def until(h: HistoryBuilder, since_ns: int, ms: int) -> HistoryBuilder:
    """The next event comes that many milliseconds after a time."""
    return h.after((since_ns - h.now_ns) // MS + ms)


# ------------------------------------------------------------------------------------------ QC-13


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [(EXCHANGES_KEPT, Outcome.VIOLATED), (EXCHANGES_KEPT + 1, Outcome.NOT_EXERCISED)],
)
def test_a_lease_is_compared_with_its_answer_unless_many_came_since(
    answers: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for start_ms in range(answers):
        answer(h, start_ms=start_ms)
    grant(h, start_ms=0, length_ms=LEASE_MS + 1)
    assert verdict(h, "QC-13").verdict is outcome


@pytest.mark.parametrize(("after_ms", "outcome"), [(2700, Outcome.HOLDS), (2699, Outcome.VIOLATED)])
def test_a_lease_may_be_expired_a_tenth_too_early_for_clock_differences(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h)
    expired(h.after(after_ms - 2))
    assert verdict(h, "QC-13").verdict is outcome


@pytest.mark.parametrize(
    "given",
    [
        {"error": "STALE_BROKER_EPOCH", "length_ms": -51},
        {"next_state": "SHUTDOWN"},
        {"process": TWO},
        {"epoch": 2},
    ],
    ids=["refused", "ends", "another controller", "another term"],
)
def test_only_a_heartbeat_that_this_controller_accepted_in_its_term_renews_a_lease(
    given: dict[str, object],
) -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h, **given)
    expired(h.after(500))
    assert verdict(h, "QC-13").verdict is Outcome.HOLDS


def test_the_lease_of_a_former_broker_epoch_may_expire() -> None:
    h = HistoryBuilder()
    ask(h)
    answer(h)
    h.add(
        ONE,
        LeaseExpired(
            broker_id=1,
            broker_epoch=4,
            last_heard_ns=0,
            now_ns=LEASE_MS * MS,
            lease_period_ms=LEASE_MS,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-13").verdict is Outcome.HOLDS


@pytest.mark.parametrize("differs", ["no request", "another term", "no answer", "the period"])
def test_a_grant_that_no_answer_names_is_compared_with_its_request_and_term_only(
    differs: str,
) -> None:
    h = HistoryBuilder()
    if differs != "no request":
        ask(h, start_ms=50)
    if differs != "no answer":
        answer(h, start_ms=7)
    length_ms = LEASE_MS if differs == "the period" else LEASE_MS + 1
    grant(h, start_ms=50, length_ms=length_ms, epoch=2 if differs == "another term" else 1)
    assert verdict(h, "QC-13").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("again", ["answer", "grant"])
def test_what_is_told_twice_of_one_heartbeat_counts_once(again: str) -> None:
    h = HistoryBuilder()
    ask(h)
    for _ in range(2 if again == "answer" else 1):
        answer(h)
    for _ in range(2 if again == "grant" else 1):
        grant(h)
    assert verdict(h, "QC-13").exercised == 1


def test_an_answer_that_names_no_process_is_compared_with_the_grant_of_its_start() -> None:
    h = HistoryBuilder()
    answer(h, client="")
    grant(h, length_ms=LEASE_MS + 1)
    assert verdict(h, "QC-13").verdict is Outcome.VIOLATED


# --------------------------------------------------------------------------- QC-14, the broker


@pytest.mark.parametrize(("over_ms", "outcome"), [(400, Outcome.HOLDS), (401, Outcome.VIOLATED)])
def test_a_broker_may_be_active_for_a_tenth_of_its_lease_and_100_ms_more(
    over_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active_broker(h)
    at_ms(h, LEASE_MS + over_ms)
    fence_itself(h)
    fenced = h.events()[-1].ref
    found = verdict(h, "QC-14")
    assert found.verdict is outcome
    assert found.exercised == (outcome is Outcome.HOLDS)
    # Neither side says that the lease had expired: the grant is the whole proof.
    assert [(v.at, len(v.because)) for v in found.violations] == [(fenced, 1)][: found.violated]


@pytest.mark.parametrize(("stalled_ms", "outcome"), [(900, Outcome.HOLDS), (899, Outcome.UNKNOWN)])
def test_a_stall_excuses_an_omission_if_it_covers_nine_tenths_of_the_delay(
    stalled_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active_broker(h)
    at_ms(h, LEASE_MS + 1)
    expire(h)
    until(h, h.events()[3].at_ns, LEASE_MS + 999)
    h.add(BROKER, Stalled(stalled_ns=stalled_ms * MS))
    fence_itself(h)
    assert verdict(h, "QC-14").verdict is outcome


@pytest.mark.parametrize(
    ("stalled_ms", "outcome"), [(300, Outcome.VIOLATED), (301, Outcome.UNKNOWN)]
)
def test_a_stall_of_a_tenth_of_the_lease_leaves_no_doubt(stalled_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    active_broker(h)
    at_ms(h, LEASE_MS - 1)
    h.add(BROKER, Stalled(stalled_ns=stalled_ms * MS))
    at_ms(h, LEASE_MS + 500)
    fence_itself(h)
    assert verdict(h, "QC-14").verdict is outcome


def test_a_broker_that_stops_holds_no_lease() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.add(BROKER, NodeStopped(reason="signal"))
    record(h, 9, fenced=True)
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


def test_a_lease_renewed_too_late_breaks_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS + 500)
    answer(h)
    grant(h)
    assert verdict(h, "QC-14").violations[0].evidence is Evidence.SELF


def test_a_fenced_broker_may_be_granted_a_lease_long_after_the_one_before() -> None:
    h = HistoryBuilder()
    active_broker(h)
    h.after(LEASE_MS)
    fence_itself(h)
    expire(h)
    h.after(10_000)
    record(h, 11, fenced=False)
    grant(h)
    assert verdict(h, "QC-14").verdict is Outcome.HOLDS


def test_a_broker_that_starts_fenced_does_not_exercise_qc_14() -> None:
    h = HistoryBuilder()
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="INITIAL", new="FENCED", broker_epoch=5, reason="registered"
        ),
    )
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


# ----------------------------------------------------------------------- QC-14, the controller


@pytest.mark.parametrize(
    ("silent_ms", "outcome"), [(SILENT_MS, Outcome.HOLDS), (SILENT_MS + 1, Outcome.VIOLATED)]
)
def test_a_controller_may_fence_a_silent_broker_a_quarter_of_the_lease_and_500_ms_late(
    silent_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    since_ns = watched(h)
    die(h)
    until(h, since_ns, silent_ms)
    expire(h)
    assert verdict(h, "QC-14").verdict is outcome


@pytest.mark.parametrize(
    ("silent_ms", "outcome"),
    [(SILENT_MS, Outcome.NOT_EXERCISED), (SILENT_MS + 1, Outcome.VIOLATED)],
)
def test_a_broker_silent_to_the_end_must_be_fenced_within_the_same_bound(
    silent_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    since_ns = watched(h)
    die(h)
    until(h, since_ns, silent_ms)
    assert verdict(h, "QC-14").verdict is outcome


def test_a_lease_whose_length_is_not_known_is_never_over() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    record(h, 5, fenced=False)
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("ends", ["deleted", "heard", "replayed as active"])
def test_a_broker_left_unfenced_for_too_long_breaks_qc_14_whatever_comes_then(ends: str) -> None:
    h = HistoryBuilder()
    watched(h)
    die(h)
    h.after(SILENT_MS)
    if ends == "deleted":
        h.add(ONE, BrokerDeleted(offset=8, broker_id=1))
    elif ends == "heard":
        answer(h)
    else:
        record(h, 5, fenced=False, process=TWO)  # of a node that restarted
    assert verdict(h, "QC-14").violations[0].evidence is Evidence.PEER


def test_a_record_replayed_again_gives_no_lease_a_new_period() -> None:
    h = HistoryBuilder()
    watched(h)
    die(h)
    h.after(SILENT_MS - 1000)
    record(h, 5, fenced=False, process=TWO)
    h.after(1000)
    assert verdict(h, "QC-14").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("process", "error"), [(ONE, "STALE_BROKER_EPOCH"), (TWO, "NONE")], ids=["refused", "another"]
)
def test_only_an_accepted_heartbeat_of_the_active_controller_renews_a_lease(
    process: str, error: str
) -> None:
    h = HistoryBuilder()
    watched(h)
    for _ in range(3):
        h.after(LEASE_MS)
        answer(h, process=process, error=error)
    assert verdict(h, "QC-14").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("again_ms", "outcome"), [(LEASE_MS, Outcome.HOLDS), (LEASE_MS + 1, Outcome.VIOLATED)]
)
def test_a_request_may_be_answered_again_within_a_lease(again_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    ask(h)
    since_ns = watched(h)
    die(h)
    until(h, since_ns, again_ms)
    answer(h)
    until(h, since_ns, again_ms + LEASE_MS)
    expire(h)
    assert verdict(h, "QC-14").verdict is outcome


@pytest.mark.parametrize(
    ("forgotten", "outcome"), [(True, Outcome.HOLDS), (False, Outcome.VIOLATED)]
)
def test_a_request_that_is_no_longer_kept_may_still_be_answered(
    forgotten: bool, outcome: Outcome
) -> None:
    """Another controller refuses the broker's connections at once, so that it asks again and again
    while one request is held."""
    h = HistoryBuilder()
    since_ns = watched(h)
    for start_ms in range(EXCHANGES_KEPT + 2):
        ask(h, start_ms=1000 + start_ms)
    until(h, since_ns, LEASE_MS)
    answer(h, start_ms=1000 if forgotten else 999)
    until(h, since_ns, 2 * LEASE_MS)
    expire(h)
    assert (verdict(h, "QC-14").verdict is Outcome.HOLDS) == forgotten


def test_a_heartbeat_answered_before_any_record_of_the_broker_keeps_qc_14() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    answer(h)
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("fences", "outcome"), [(True, Outcome.NOT_EXERCISED), (False, Outcome.VIOLATED)]
)
def test_a_broker_that_was_granted_its_stop_is_fenced_by_its_record(
    fences: bool, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    watched(h)
    if fences:
        record(h, 6, fenced=True)
    answer(h, next_state="SHUTDOWN")
    die(h)
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is outcome


@pytest.mark.parametrize(
    ("by", "outcome"),
    [
        pytest.param("", Outcome.NOT_EXERCISED, id="nobody tells of leases"),
        pytest.param(BROKER, Outcome.NOT_EXERCISED, id="it does"),
        pytest.param("broker-2#1", Outcome.VIOLATED, id="another one does"),
    ],
)
def test_a_broker_is_active_by_a_lease_that_it_took(by: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    if by:
        answer(h, client=by)
        grant(h, process=by)
    h.add(
        BROKER,
        BrokerStateChanged(broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=5, reason="x"),
    )
    assert verdict(h, "QC-14").verdict is outcome
    if outcome is Outcome.VIOLATED:
        assert verdict(h, "QC-14", complete=False).verdict is Outcome.UNKNOWN


def test_a_fenced_broker_that_sends_heartbeats_need_not_be_fenced_again() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    record(h, 5, fenced=True)
    answer(h, next_state="FENCED")
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


def test_a_broker_left_unfenced_breaks_qc_14_once() -> None:
    h = HistoryBuilder()
    watched(h)
    for _ in range(2):
        h.after(3 * LEASE_MS)
        answer(h)
    assert verdict(h, "QC-14").violated == 1


@pytest.mark.parametrize("process", [ONE, TWO, PEER])
def test_only_another_nodes_record_of_the_fencing_exercises_qc_14(process: str) -> None:
    h = HistoryBuilder()
    watched(h)
    expired(h)
    for _ in range(2):
        record(h, 9, fenced=True, process=process)
    assert verdict(h, "QC-14").exercised == (process != ONE)


def test_a_fencing_without_an_expired_lease_does_not_exercise_qc_14() -> None:
    h = HistoryBuilder()
    active_broker(h)
    record(h, 5, fenced=False, process=TWO)
    expired(h)
    record(h, 8, fenced=False)  # it registered anew
    record(h, 9, fenced=True, process=TWO)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


def test_a_new_controller_must_fence_a_broker_whose_expiry_the_former_one_did_not_store() -> None:
    h = HistoryBuilder()
    watched(h)
    die(h)
    h.after(LEASE_MS)
    expired(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(60_000)
    assert stated(verdict(h, "QC-14"), "process", "broker") == (TWO, "broker 1")


def test_without_its_controller_a_broker_need_not_be_fenced() -> None:
    h = HistoryBuilder()
    watched(h)
    die(h)
    die(h, ONE)
    h.after(60_000)
    assert verdict(h, "QC-14").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-36


def test_a_controller_without_a_successor_may_renew_leases_for_ever() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.after(60_000)
    answer(h)
    grant(h)
    assert verdict(h, "QC-36").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(300, Outcome.NOT_EXERCISED), (301, Outcome.VIOLATED)]
)
def test_a_tenth_of_the_lease_is_allowed_for_a_controller_to_notice_its_successor(
    after_ms: int, outcome: Outcome
) -> None:
    for renewal in (answer, grant):
        h = HistoryBuilder()
        isolated(h)
        h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
        h.after(after_ms - 1)
        renewal(h)
        assert verdict(h, "QC-36").verdict is outcome


@pytest.mark.parametrize(
    ("after_ms", "outcome"),
    [(2 * LEASE_MS, Outcome.NOT_EXERCISED), (2 * LEASE_MS + 1, Outcome.VIOLATED)],
)
def test_two_leases_are_allowed_for_a_controller_to_notice_that_its_majority_is_dead(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for process, node in ((ONE, 101), (TWO, 102)):
        h.add(process, NodeStarted(role="controller", node_id=node))
    h.add(ONE, QuorumLearned(voters=(101, 102), endpoints=(), bootstrap=()))
    isolated(h)
    die(h, TWO)
    answer(h.after(after_ms - 1))
    assert verdict(h, "QC-36").verdict is outcome


THERE, BACK = "controller-1 -> controller-2", "controller-2 -> controller-1"


def cut_off(h: HistoryBuilder, *directions: str) -> None:
    body = FaultInjected(
        fault_id="cut-1",
        fault="cut",
        targets=("controller-1", "controller-2"),
        receipt=True,
        evidence="measured",
        began_at_ns=h.now_ns,
        directions=directions,
        effects=tuple(f"severs {one}" for one in directions),
    )
    h.add("harness", body)


@pytest.mark.parametrize(
    ("directions", "after_ms", "healed_ago_ms", "violated"),
    [
        ((THERE, BACK), 2 * LEASE_MS + 1, None, 1),
        ((THERE, BACK), 2 * LEASE_MS, None, 0),
        ((THERE,), 2 * LEASE_MS + 1, None, 0),
        # It was reached again before the harness reported so.
        ((THERE, BACK), 2 * LEASE_MS + 1, 2, 0),
        ((THERE, BACK), 2 * LEASE_MS + 1, 0, 1),
    ],
)
def test_so_it_is_for_one_that_its_majority_is_cut_off_from(
    directions: tuple[str, ...], after_ms: int, healed_ago_ms: int | None, violated: int
) -> None:
    h = HistoryBuilder()
    for process, node in ((ONE, 101), (TWO, 102)):
        h.add(process, NodeStarted(role="controller", node_id=node))
    h.add(ONE, QuorumLearned(voters=(101, 102), endpoints=(), bootstrap=()))
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    cut_off(h, *directions)
    answer(h.after(after_ms - 1))
    if healed_ago_ms is not None:
        since_ns = h.now_ns - healed_ago_ms * MS
        body = FaultHealed(fault_id="cut-1", receipt=True, evidence="", began_at_ns=since_ns)
        h.add("harness", body)
    assert verdict(h, "QC-36").violated == violated


def test_a_stall_of_the_controller_that_granted_a_lease_leaves_qc_36_undecided() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(TWO, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    h.after(400)
    h.add(ONE, Stalled(stalled_ns=350 * MS))
    grant(h)
    assert verdict(h, "QC-36").verdict is Outcome.UNKNOWN


def test_a_second_election_in_the_epoch_of_a_resignation_is_no_successor() -> None:
    h = HistoryBuilder()
    isolated(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(TWO, ControllerElected(epoch=1, log_end=6, last_epoch=1))
    assert verdict(h, "QC-36").verdict is Outcome.NOT_EXERCISED
