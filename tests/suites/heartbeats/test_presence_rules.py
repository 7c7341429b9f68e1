"""The rules of the controller's metadata over ZooKeeper, and of which process is a broker.

Each rule has histories that keep the promise, break it, and do not exercise it.
"""

from __future__ import annotations

import pytest

from fencepost import Cause, Event, FaultHealed, FaultInjected, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_clusters.zookeeper.events import SessionExpired
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControllerBegan,
    ControllerEnded,
    ControllerState,
    ControlRequestAnswered,
    ControlRequestSent,
    FollowerFetched,
    PartitionCommitted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, BROKER, OTHER, SERVER = "broker-1#1", "broker-2#1", "broker-3#1", "zookeeper-1#1"


def whole_verdict(h: HistoryBuilder, clause: str) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(), "legacy").verdicts[clause]


def verdict(h: HistoryBuilder, clause: str) -> Outcome:
    return whole_verdict(h, clause).verdict


def begin(h: HistoryBuilder) -> None:
    """Begins the term of a controller that has declared brokers 2 and 3 active."""
    began = ControllerBegan(
        epoch=1, broker_id=1, first=True, heartbeat_timeout_ms=2000, session_timeout_ms=3000
    )
    h.add(CONTROLLER, began)
    for process, broker in ((BROKER, 2), (OTHER, 3)):
        h.add(
            process,
            BrokerRegistered(
                broker_id=broker,
                broker_epoch=10 * broker,
                session=10 * broker,
                version=5,
                overwrote=False,
            ),
        )
        declare(h, broker, "Active")


def declare(
    h: HistoryBuilder,
    broker: int,
    new: ControllerState,
    epoch: int = -1,
    process: str = CONTROLLER,
) -> None:
    h.add(
        process,
        BrokerDeclared(
            broker_id=broker,
            incarnation_id=epoch if epoch > 0 else 10 * broker,
            old="Initial",
            new=new,
            reason="heartbeat",
            version=5,
            silent_ms=0,
            timeout_ms=2000,
            controller_epoch=1,
        ),
    )


def send(h: HistoryBuilder, number: int, brokers: tuple[int, ...] = (), attempt: int = 1) -> Event:
    return h.add(
        CONTROLLER,
        ControlRequestSent(
            api="UpdateMetadata",
            broker_id=3,
            broker_epoch=30,
            controller_epoch=1,
            correlation=number,
            partitions=(),
            attempt=attempt,
            brokers=brokers,
        ),
    )


def answer(h: HistoryBuilder, number: int, brokers: tuple[int, ...] = ()) -> None:
    h.add(
        OTHER,
        ControlRequestAnswered(
            api="UpdateMetadata",
            client=CONTROLLER,
            broker_id=3,
            controller_id=1,
            controller_epoch=1,
            seen_epoch=1,
            request_epoch=30,
            broker_epoch=30,
            error="NONE",
            partitions=(),
            brokers=brokers,
        ),
        cause=Cause(process=CONTROLLER, seq=number, request=True),
    )


def lead(h: HistoryBuilder, leader: int, epoch: int, offset: int) -> None:
    h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            isr=(2, 3),
            replicas=(2, 3),
            role="controller",
        ),
    )


# ------------------------------------------------------------------------------------------ HB-03


def test_metadata_without_the_inactive_broker_hold_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    send(h, 1, (1, 3))
    answer(h, 1, (1, 3))
    assert verdict(h, "HB-03") is Outcome.HOLDS


def test_metadata_in_which_a_broker_reads_the_inactive_broker_break_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    send(h, 1, (1, 3))
    answer(h, 1, (1, 2, 3))
    assert verdict(h, "HB-03") is Outcome.VIOLATED


def test_an_inactive_broker_that_is_elected_leader_breaks_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    lead(h, 3, 1, 5)
    declare(h, 2, "Inactive")
    lead(h, 2, 2, 6)
    assert verdict(h, "HB-03") is Outcome.VIOLATED


def test_a_broken_hb_03_names_the_declaration_that_the_broker_is_inactive() -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    declaration = h.events()[-1]
    send(h, 1, (1, 3))
    answer(h, 1, (1, 2, 3))
    assert whole_verdict(h, "HB-03").violations[0].because == (declaration.ref,)


def test_metadata_that_are_sent_once_the_queue_is_empty_again_are_judged_by_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1, (1, 2, 3))
    answer(h, 1, (1, 2, 3))
    h.after(200)
    declare(h, 2, "Inactive")
    send(h, 2, (1, 2, 3))
    answer(h, 2, (1, 2, 3))
    assert verdict(h, "HB-03") is Outcome.VIOLATED


def test_metadata_that_name_a_broker_that_is_active_again_do_not_break_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    declare(h, 2, "Active")
    send(h, 1, (1, 2, 3))
    answer(h, 1, (1, 2, 3))
    lead(h, 2, 1, 5)
    assert verdict(h, "HB-03") is Outcome.NOT_EXERCISED


def test_a_leader_that_becomes_inactive_is_not_elected_by_a_change_of_its_isr() -> None:
    h = HistoryBuilder()
    begin(h)
    lead(h, 2, 1, 5)
    declare(h, 2, "Inactive")
    lead(h, 2, 1, 6)
    assert verdict(h, "HB-03") is Outcome.NOT_EXERCISED


def test_metadata_that_waited_in_the_queue_do_not_exercise_hb_03() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1, (1, 2, 3))
    declare(h, 2, "Inactive")
    answer(h, 1, (1, 2, 3))
    send(h, 2, (1, 2, 3))
    answer(h, 2, (1, 2, 3))
    assert verdict(h, "HB-03") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-24


def take_over(h: HistoryBuilder) -> None:
    h.add(
        "broker-2-duplicate#1",
        BrokerRegistered(broker_id=2, broker_epoch=90, session=90, version=5, overwrote=True),
    )


def fetch(h: HistoryBuilder, epoch: int) -> None:
    h.add(
        OTHER,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=1,
            follower=2,
            client=BROKER,
            broker_epoch=epoch,
            offset=5,
        ),
    )


def test_a_fetch_of_the_newest_process_holds_hb_24() -> None:
    h = HistoryBuilder()
    begin(h)
    take_over(h)
    fetch(h, 90)
    assert verdict(h, "HB-24") is Outcome.HOLDS


def test_a_fetch_of_the_overwritten_process_breaks_hb_24() -> None:
    h = HistoryBuilder()
    begin(h)
    take_over(h)
    fetch(h, 90)
    h.after(2000)
    fetch(h, 20)
    assert verdict(h, "HB-24") is Outcome.VIOLATED


def test_only_the_first_counted_fetch_of_the_newer_process_exercises_hb_24() -> None:
    h = HistoryBuilder()
    begin(h)
    take_over(h)
    fetch(h, 90)
    fetch(h, 90)
    assert whole_verdict(h, "HB-24").exercised == 1


def test_without_a_second_process_hb_24_is_not_exercised() -> None:
    h = HistoryBuilder()
    begin(h)
    fetch(h, 20)
    assert verdict(h, "HB-24") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-25


def test_an_update_that_is_answered_at_a_later_attempt_holds_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    send(h, 2, attempt=2)
    answer(h, 2)
    assert verdict(h, "HB-25") is Outcome.HOLDS


def test_a_request_after_an_update_without_an_answer_breaks_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    send(h, 2)
    assert verdict(h, "HB-25") is Outcome.VIOLATED


def test_an_update_to_a_broker_that_became_inactive_need_not_be_repeated() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    declare(h, 3, "Inactive")
    declare(h, 3, "Active")
    send(h, 2)
    assert verdict(h, "HB-25") is Outcome.NOT_EXERCISED


def test_a_controller_that_is_elected_again_need_not_repeat_an_update_of_its_former_term() -> None:
    """It sends all metadata in new requests."""
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    begin(h)
    send(h, 2)
    assert verdict(h, "HB-25") is Outcome.NOT_EXERCISED


def test_an_update_that_is_answered_at_once_does_not_exercise_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    answer(h, 1)
    send(h, 2)
    assert verdict(h, "HB-25") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("end", ["", "inactive", "deposed"])
def test_an_update_that_is_not_sent_again_breaks_hb_25(end: str) -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    h.after(60_000)
    if end == "inactive":
        declare(h, 3, "Inactive")
    elif end == "deposed":
        h.add(CONTROLLER, ControllerEnded(epoch=1, reason="deposed"))
    else:
        declare(h, 2, "Active")
    assert verdict(h, "HB-25") is Outcome.VIOLATED


def test_an_update_that_is_sent_again_without_an_answer_does_not_exercise_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    for attempt in range(1, 31):
        send(h, attempt, attempt=attempt)
        h.after(2000)
    assert verdict(h, "HB-25") is Outcome.NOT_EXERCISED


def test_another_request_that_is_called_a_second_attempt_breaks_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1, (1, 2, 3))
    send(h, 2, (1, 3), attempt=2)
    assert verdict(h, "HB-25") is Outcome.VIOLATED


def test_only_the_controllers_own_declaration_ends_its_queue() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    declare(h, 3, "Inactive", process=BROKER)
    send(h, 2)
    assert verdict(h, "HB-25") is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ HB-28


def expire(h: HistoryBuilder, session: str) -> None:
    h.add(SERVER, SessionExpired(session=session, timeout_ms=3000))


def test_a_broker_that_is_declared_absent_when_its_session_ends_holds_hb_28() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(100)
    declare(h, 2, "Absent")
    assert verdict(h, "HB-28") is Outcome.HOLDS


def test_a_broker_that_stays_live_without_a_session_breaks_hb_28() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(5000)
    declare(h, 3, "Active")
    assert verdict(h, "HB-28") is Outcome.VIOLATED


@pytest.mark.parametrize(("after_ms", "outcome"), [(999, Outcome.HOLDS), (1000, Outcome.VIOLATED)])
def test_a_broker_whose_session_has_ended_is_absent_within_a_second(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(after_ms)
    declare(h, 2, "Absent")
    assert verdict(h, "HB-28") is outcome


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(2500, Outcome.NOT_EXERCISED), (4500, Outcome.VIOLATED)]
)
def test_hb_28_excuses_what_fell_due_while_a_controller_may_have_been_without_zookeeper(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(after_ms)
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session"))
    assert verdict(h, "HB-28") is outcome


def cut_from_zookeeper(h: HistoryBuilder, slot: str) -> None:
    """A fault parts a broker from the one server, for longer than a second, and less than a session
    lasts."""
    spawned = ProcessSpawned(started=SERVER, slot="zookeeper-1", role="zookeeper", node_id=1, pid=1)
    h.add("harness", spawned)
    pairs = (f"{slot} -> zookeeper-1", f"zookeeper-1 -> {slot}")
    h.add(
        "harness",
        FaultInjected(
            fault_id="cut-1",
            fault="cut",
            targets=(slot, "zookeeper-1"),
            receipt=True,
            evidence="no answer",
            directions=pairs,
            effects=tuple(f"severs {pair}" for pair in pairs),
        ),
    )


@pytest.mark.parametrize(
    ("slot", "found_ms", "outcome"),
    [
        ("broker-1", 900, Outcome.NOT_EXERCISED),
        ("broker-1", 1_200, Outcome.VIOLATED),
        ("broker-2", 0, Outcome.VIOLATED),
    ],
)
def test_a_controller_that_is_cut_from_zookeeper_has_a_second_from_the_heal_on(
    slot: str, found_ms: int, outcome: Outcome
) -> None:
    """Its own session goes on, and nobody tells it that another one has ended."""
    h = HistoryBuilder()
    cut_from_zookeeper(h, slot)
    begin(h)
    expire(h, "0x14")
    h.after(1_500)
    h.add("harness", FaultHealed(fault_id="cut-1", receipt=True, evidence="answers"))
    h.after(found_ms)
    declare(h, 2, "Absent")
    found = whole_verdict(h, "HB-28")
    assert (found.verdict, found.excused) == (outcome, int(outcome is Outcome.NOT_EXERCISED))


def test_the_end_of_another_session_does_not_exercise_hb_28() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x99")
    h.after(5000)
    declare(h, 3, "Active")
    assert verdict(h, "HB-28") is Outcome.NOT_EXERCISED


def elect_other(h: HistoryBuilder) -> None:
    """Elects broker 3, which finds broker 2 active."""
    began = ControllerBegan(epoch=2, broker_id=3, first=False, heartbeat_timeout_ms=2000)
    h.add(OTHER, began)
    declare(h, 2, "Active", process=OTHER)


def test_a_broker_that_a_heartbeat_makes_live_without_a_znode_breaks_hb_28() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(100)
    declare(h, 2, "Absent")
    h.after(100)
    declare(h, 2, "Active")
    h.after(60_000)
    declare(h, 3, "Active")
    assert verdict(h, "HB-28") is Outcome.VIOLATED


def test_a_broker_that_a_later_controller_keeps_without_a_znode_breaks_hb_28() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(500)
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="deposed"))
    elect_other(h)
    h.after(60_000)
    declare(h, 3, "Active", process=OTHER)
    assert verdict(h, "HB-28") is Outcome.VIOLATED


def test_a_later_controller_has_a_second_to_find_that_a_znode_is_gone() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(500)
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="deposed"))
    h.after(5000)
    elect_other(h)
    h.after(500)
    declare(h, 2, "Absent", process=OTHER)
    assert verdict(h, "HB-28") is Outcome.HOLDS
