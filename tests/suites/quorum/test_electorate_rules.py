"""The rules of the quorum's identities, each with a violation and a near miss."""

from __future__ import annotations

import pytest

from fencepost import (
    Evidence,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    PromiseObserved,
)
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    LeaseGranted,
    ProbeCompleted,
    QuorumLearned,
    RequestRefused,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
ONE, FOUR = "controller-1#1", "controller-4#1"
BROKER, PROBE = "broker-1#1", "clients/probe-1#1"
HERE, THERE, GONE = "controller-1:9093", "controller-4:9093", "controller-9:9093"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def begin(h: HistoryBuilder, process: str, node: int) -> None:
    h.add(process, NodeStarted(role="controller", node_id=node, incarnation="x", log_end=0))


def spawn(h: HistoryBuilder, process: str, node: int) -> None:
    """The harness starts a controller, which never says so."""
    slot = process.partition("#")[0]
    body = ProcessSpawned(started=process, slot=slot, role="controller", node_id=node, pid=1)
    h.add("harness", body)


def refuse(h: HistoryBuilder, broker: int, error: str, controller: int = 101) -> None:
    h.add(
        BROKER,
        HeartbeatRefused(broker_id=broker, broker_epoch=-1, error=error, controller=controller),
    )


# ------------------------------------------------------------------------------------------ QC-03


def test_a_broker_registered_under_a_controllers_id_breaks_qc_03() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    h.add(
        ONE, BrokerCommitted(offset=4, broker_id=101, broker_epoch=4, fenced=True, incarnation="y")
    )
    found = verdict(h, "QC-03")
    assert (found.verdict, found.violations[0].evidence) == (Outcome.VIOLATED, Evidence.PEER)


def test_a_controller_that_begins_under_a_brokers_id_breaks_qc_03() -> None:
    h = HistoryBuilder()
    h.add(ONE, BrokerCommitted(offset=4, broker_id=1, broker_epoch=4, fenced=True, incarnation="y"))
    begin(h, FOUR, 1)
    assert verdict(h, "QC-03").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("said", [None, 102], ids=["silent", "another id"])
def test_a_controllers_id_is_that_under_which_the_harness_started_it(said: int | None) -> None:
    h = HistoryBuilder()
    spawn(h, ONE, 101)
    if said is not None:
        begin(h, ONE, said)
    h.add(
        ONE, BrokerCommitted(offset=4, broker_id=101, broker_epoch=4, fenced=True, incarnation="y")
    )
    assert verdict(h, "QC-03").verdict is Outcome.VIOLATED


def test_a_refused_registration_keeps_qc_03() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    refuse(h, 101, "INVALID_REQUEST")
    assert verdict(h, "QC-03").verdict is Outcome.HOLDS
    assert verdict(h, "QC-03", complete=False).verdict is Outcome.UNKNOWN


def test_a_refusal_for_another_reason_does_not_exercise_qc_03() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    refuse(h, 101, "NOT_CONTROLLER")
    refuse(h, 1, "INVALID_REQUEST")
    assert verdict(h, "QC-03").verdict is Outcome.NOT_EXERCISED


def accept(h: HistoryBuilder, broker: int, error: str = "NONE") -> None:
    body = HeartbeatAnswered(
        client="broker-9#1",
        broker_id=broker,
        incarnation="y",
        request_epoch=-1,
        broker_epoch=4,
        error=error,
        next_state="FENCED",
        lease_start_ms=0,
        lease_end_ms=3000,
        lease_period_ms=3000,
        controller_epoch=1,
        active_controller=101,
        active=True,
    )
    h.add(ONE, body)


@pytest.mark.parametrize(
    ("broker", "error", "outcome"),
    [
        (101, "NONE", Outcome.VIOLATED),
        (-3, "NONE", Outcome.VIOLATED),
        (1, "NONE", Outcome.NOT_EXERCISED),
        (101, "INVALID_REQUEST", Outcome.NOT_EXERCISED),
    ],
)
def test_a_broker_that_is_answered_under_an_id_that_it_cannot_have_breaks_qc_03(
    broker: int, error: str, outcome: Outcome
) -> None:
    """No node has replayed its record."""
    h = HistoryBuilder()
    begin(h, ONE, 101)
    accept(h, broker, error)
    accept(h, broker, error)
    found = verdict(h, "QC-03")
    assert found.verdict is outcome
    if outcome is Outcome.VIOLATED:
        assert (found.violated, found.violations[0].evidence) == (1, Evidence.SELF)


def test_an_error_that_has_nothing_to_do_with_the_id_does_not_exercise_qc_03() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    refuse(h, 101, "STALE_BROKER_EPOCH")
    assert verdict(h, "QC-03").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("process", "outcome"),
    [
        pytest.param(FOUR, Outcome.VIOLATED, id="of another slot"),
        pytest.param("controller-1#2", Outcome.NOT_EXERCISED, id="of the same slot"),
        pytest.param("controller-1-duplicate#1", Outcome.NOT_EXERCISED, id="by a fault"),
    ],
)
def test_two_controllers_have_two_ids(process: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    begin(h, process, 101)
    assert verdict(h, "QC-03").verdict is outcome


@pytest.mark.parametrize(
    ("broker", "outcome"), [(-1, Outcome.VIOLATED), (0, Outcome.NOT_EXERCISED)]
)
def test_no_id_is_negative(broker: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        BrokerCommitted(offset=4, broker_id=broker, broker_epoch=4, fenced=True, incarnation="y"),
    )
    assert verdict(h, "QC-03").verdict is outcome


# ----------------------------------------------------------------------------------- QC-05, QC-29


def learn(h: HistoryBuilder, process: str, endpoint: str, *bootstrap: str) -> None:
    node = 100 + int(endpoint[11])
    h.add(process, QuorumLearned(voters=(node,), endpoints=(endpoint,), bootstrap=bootstrap))


def registered(h: HistoryBuilder) -> None:
    """The registration of the broker is committed."""
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    h.add(ONE, BrokerCommitted(offset=4, broker_id=1, broker_epoch=4, fenced=True, incarnation="x"))


def test_a_quorum_that_no_controller_knows_breaks_qc_05() -> None:
    h = HistoryBuilder()
    learn(h, ONE, HERE)
    learn(h, BROKER, THERE, HERE)
    assert verdict(h, "QC-05").violations[0].evidence is Evidence.PEER


def test_a_broker_that_registers_with_one_good_address_keeps_qc_05() -> None:
    h = HistoryBuilder()
    learn(h, ONE, HERE)
    learn(h, BROKER, HERE, HERE, GONE)
    registered(h)
    assert verdict(h, "QC-05").verdict is Outcome.HOLDS
    assert verdict(h, "QC-05", complete=False).verdict is Outcome.UNKNOWN


def test_a_broker_that_was_given_all_addresses_does_not_exercise_qc_05() -> None:
    h = HistoryBuilder()
    learn(h, ONE, HERE)
    learn(h, BROKER, HERE, HERE)
    registered(h)
    assert verdict(h, "QC-05").verdict is Outcome.NOT_EXERCISED


def cut(h: HistoryBuilder, slot: str) -> None:
    fault = FaultInjected(
        fault_id="cut-1",
        fault="cut",
        targets=(slot, "controller-1"),
        receipt=True,
        evidence="measured",
        directions=(f"{slot} -> controller-1",),
    )
    h.add("harness", fault)


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        pytest.param("nothing", Outcome.VIOLATED, id="for good"),
        pytest.param("learns", Outcome.NOT_EXERCISED, id="until it learns the next one"),
        pytest.param("ends", Outcome.NOT_EXERCISED, id="until it ends"),
        pytest.param("broker-1", Outcome.NOT_EXERCISED, id="it is cut off"),
        pytest.param("broker-2", Outcome.VIOLATED, id="another one is cut off"),
    ],
)
def test_a_broker_may_have_a_quorum_that_was_replaced_for_half_a_minute(
    then: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    learn(h, ONE, HERE)
    learn(h, ONE, THERE)
    learn(h, BROKER, HERE, HERE)
    if then == "learns":
        learn(h.after(29_000), BROKER, THERE, HERE)
    elif then == "ends":
        h.after(29_000).add(
            "harness", ProcessExited(ended=BROKER, exit_code=0, signal=9, expected=True)
        )
    elif then != "nothing":
        cut(h, then)
    h.after(60_000)
    assert verdict(h, "QC-05").verdict is outcome


@pytest.mark.parametrize(("ms", "violated"), [(30_000, 0), (30_001, 1)])
def test_that_half_a_minute_is_exact(ms: int, violated: int) -> None:
    h = HistoryBuilder()
    learn(h, ONE, HERE)
    learn(h, ONE, THERE)
    learn(h, BROKER, HERE, HERE)
    h.after(ms - 1)
    learn(h, BROKER, THERE, HERE)
    assert verdict(h, "QC-05").violated == violated


def replaced(h: HistoryBuilder, address: str = THERE) -> None:
    """Controller 104 is the active one, at an address that the broker was not configured with."""
    begin(h, FOUR, 104)
    learn(h, FOUR, address)
    learn(h, BROKER, HERE, HERE)
    h.add(FOUR, ControllerElected(epoch=2, log_end=9, last_epoch=1))


def test_a_broker_that_never_asks_the_new_controller_breaks_qc_29() -> None:
    h = HistoryBuilder()
    replaced(h)
    refuse(h, 1, "NOT_CONTROLLER")
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    assert verdict(h, "QC-29").violations[0].evidence is Evidence.PEER


def test_a_broker_that_asked_without_an_answer_does_not_break_qc_29() -> None:
    h = HistoryBuilder()
    replaced(h)
    refuse(h, 1, "NOT_CONTROLLER")
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
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


def grant(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            ends_at_ns=h.now_ns,
            controller_epoch=2,
        ),
    )


def test_a_lease_of_a_controller_at_a_configured_address_does_not_exercise_qc_29() -> None:
    h = HistoryBuilder()
    replaced(h, HERE)
    grant(h)
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


def test_each_broker_exercises_qc_29_once_in_a_controllers_term() -> None:
    h = HistoryBuilder()
    replaced(h)
    grant(h)
    grant(h)
    assert verdict(h, "QC-29").exercised == 1


def test_a_lease_of_the_new_controller_keeps_qc_29() -> None:
    h = HistoryBuilder()
    replaced(h)
    grant(h)
    assert verdict(h, "QC-29").verdict is Outcome.HOLDS
    assert verdict(h, "QC-29", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------- QC-01, QC-24


def test_a_tests_observation_of_a_configuration_judges_its_clause() -> None:
    for clause in ("QC-01", "QC-24"):
        h = HistoryBuilder()
        assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED
        h.add(
            "harness", PromiseObserved(clause=clause, held=True, evidence="refused", seen_by="self")
        )
        assert verdict(h, clause).verdict is Outcome.HOLDS
        h.add(
            "harness", PromiseObserved(clause=clause, held=False, evidence="taken", seen_by="self")
        )
        assert verdict(h, clause).verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ QC-02


def together(h: HistoryBuilder, broker: int) -> None:
    h.add(BROKER, NodeStarted(role="controller", node_id=101, incarnation="x", log_end=0))
    h.add(BROKER, NodeStarted(role="broker", node_id=broker, incarnation="x", log_end=0))


def admitted(h: HistoryBuilder) -> None:
    h.add(
        ONE,
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation="x",
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=True,
        ),
    )


def test_one_id_for_both_nodes_of_a_process_breaks_qc_02() -> None:
    h = HistoryBuilder()
    together(h, 101)
    assert verdict(h, "QC-02").verdict is Outcome.VIOLATED


def test_a_broker_admitted_beside_a_controller_keeps_qc_02() -> None:
    h = HistoryBuilder()
    together(h, 1)
    admitted(h)
    admitted(h)
    found = verdict(h, "QC-02")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)
    assert verdict(h, "QC-02", complete=False).verdict is Outcome.UNKNOWN


def test_a_broker_alone_does_not_exercise_qc_02() -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    admitted(h)
    assert verdict(h, "QC-02").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-04


def command(h: HistoryBuilder, outcome: str, error: str = "") -> None:
    h.add(
        PROBE,
        ProbeCompleted(
            operation="p",
            api="CreateTopics",
            broker=101,
            slot="controller-1",
            topic="x",
            partition=-1,
            outcome=outcome,
            error=error,
            records=0,
            base_offset=-1,
            sent_at_ns=h.now_ns - 2_000_000,
        ),
    )


def forbid(h: HistoryBuilder, reason: str = "unauthorized") -> None:
    error = "CLUSTER_AUTHORIZATION_FAILED"
    h.add(
        ONE,
        RequestRefused(
            api="CreateTopics",
            topic="",
            partition=-1,
            client=PROBE,
            requester=-1,
            error=error,
            reason=reason,
            state="active",
        ),
    )


def test_a_controller_that_obeys_any_client_breaks_qc_04() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    command(h, "answered")
    assert verdict(h, "QC-04").violations[0].evidence is Evidence.CLIENT


def test_a_controller_that_is_silent_about_its_start_breaks_qc_04_all_the_same() -> None:
    h = HistoryBuilder()
    spawn(h, ONE, 101)
    command(h, "answered")
    assert verdict(h, "QC-04").verdict is Outcome.VIOLATED


def test_a_controller_that_wants_rights_keeps_qc_04() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    forbid(h)
    command(h, "refused", "CLUSTER_AUTHORIZATION_FAILED")
    assert verdict(h, "QC-04").verdict is Outcome.HOLDS
    assert verdict(h, "QC-04", complete=False).verdict is Outcome.UNKNOWN


def test_a_refusal_for_another_reason_does_not_exercise_qc_04() -> None:
    h = HistoryBuilder()
    begin(h, ONE, 101)
    forbid(h, "not_controller")
    command(h, "refused", "NOT_CONTROLLER")
    assert verdict(h, "QC-04").verdict is Outcome.NOT_EXERCISED
