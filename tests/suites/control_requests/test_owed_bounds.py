"""What a controller owes to a broker's process: exact bounds, and when nothing more is due."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    FORMER,
    MS,
    NEW,
    NEXT,
    OLD,
    OWN,
    again,
    answer,
    bounced,
    declare,
    outcome,
    register,
    send,
    stop,
    verdict,
)
from tests.suites.control_requests.earlier_release_histories import (
    begin,
    compare,
    heal,
    inject,
    late,
)
from tests.suites.partition_histories import stated

from fencepost import NodeStopped
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerStateChanged, SessionChanged, TopicCommitted

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
ISOLATED = ("broker-1", "broker-2", "broker-3", "zookeeper-1")
"""The nodes that a fault names if it isolates one of them."""


def comes(h: HistoryBuilder, since_ns: int, ms: int) -> None:
    """An event that many milliseconds after a time."""
    h.after((since_ns - h.now_ns) // MS + ms)
    compare(h)


# ------------------------------------------------------------------------------------------ BE-05


@pytest.mark.parametrize(("ms", "expected"), [(6_000, NOT_EXERCISED), (6_001, VIOLATED)])
@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_registration_must_be_found_within_six_seconds(
    ms: int, expected: Outcome, epoch: int
) -> None:
    h = begin()
    register(h, NEW, epoch, version=4)
    comes(h, h.events()[-1].at_ns, ms)
    found = verdict(h, "BE-05")
    assert (found.verdict, found.excused) == (expected, 0)
    assert all(stated(one, "epoch") == epoch for one in found.violations)


def test_a_missed_bounce_breaks_be_05_once() -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    late(late(h))
    assert verdict(h, "BE-05").violated == 1


@pytest.mark.parametrize(
    ("process", "new", "expected"),
    [
        (CONTROLLER, "Initial", HOLDS),
        (NEXT, "Initial", VIOLATED),
        (CONTROLLER, "Absent", VIOLATED),
    ],
)
def test_only_the_controller_can_declare_that_a_process_is_there(
    process: str, new: str, expected: Outcome
) -> None:
    h = bounced()
    declare(h, "Active", "Absent", FORMER, "bounced", process=process)
    declare(h, "Absent", new, OWN, "bounced", process=process)
    h.after(7_000)
    declare(h, "Active", "Stopping", FORMER, "heartbeat")
    assert outcome(h, "BE-05") is expected


@pytest.mark.parametrize(
    ("target", "process", "expected"),
    [
        (NEW, CONTROLLER, NOT_EXERCISED),
        (CONTROLLER, CONTROLLER, VIOLATED),
        (NEW, NEXT, VIOLATED),
        ("", CONTROLLER, VIOLATED),
    ],
)
def test_a_process_that_was_paused_after_it_registered_may_be_gone_again(
    target: str, process: str, expected: Outcome
) -> None:
    """Its session ends meanwhile, and its registration with that: a controller that is elected then
    finds none. Without a fault that is the controller's word alone."""
    h = bounced()
    if target:
        inject(h, target)
    h.after(3_000)
    declare(h, "Absent", "Absent", -1, "controller_elected", process=process)
    h.after(7_000)
    declare(h, "Active", "Stopping", FORMER, "heartbeat")
    assert outcome(h, "BE-05") is expected


def test_a_process_that_registers_anew_after_it_was_seen_to_go_must_be_found_again() -> None:
    h = begin()
    compare(h, deleted=(1,))
    again(h, OLD, -1, version=4)
    assert outcome(late(h), "BE-05") is VIOLATED


@pytest.mark.parametrize("end", ["stops", "session ended", "taken over", "asked to stop"])
def test_nothing_is_due_to_a_process_that_is_no_broker_any_more(end: str) -> None:
    h = bounced()
    if end == "stops":
        h.add(NEW, NodeStopped(reason="signal"))
    elif end == "session ended":
        h.add(NEW, SessionChanged(session=1, state="ended"))
    elif end == "taken over":
        h.add(
            NEW,
            BrokerStateChanged(
                broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=OWN, reason="taken_over"
            ),
        )
    else:
        stop(h, NEW)
    h.after(7_000)
    declare(h, "Active", "Stopping", FORMER, "heartbeat")
    assert outcome(h, "BE-05") is NOT_EXERCISED


@pytest.mark.parametrize(("ms", "expected"), [(18_000, NOT_EXERCISED), (18_001, VIOLATED)])
def test_a_registration_during_a_fault_is_excused_for_a_session_timeout(
    ms: int, expected: Outcome
) -> None:
    h = begin()
    inject(h, *ISOLATED)
    register(h, NEW, -1, version=4)
    comes(h, h.events()[-1].at_ns, ms)
    assert outcome(h, "BE-05") is expected


@pytest.mark.parametrize(("ms", "expected"), [(-1, VIOLATED), (0, NOT_EXERCISED)])
def test_a_registration_before_a_fault_is_excused_while_the_fault_lasts(
    ms: int, expected: Outcome
) -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    h.after(ms)
    inject(h, *ISOLATED)
    for _ in range(4):
        late(h)
    assert outcome(h, "BE-05") is expected


@pytest.mark.parametrize(("ms", "expected"), [(6_000, NOT_EXERCISED), (6_001, VIOLATED)])
def test_a_registration_is_due_again_six_seconds_after_a_fault(ms: int, expected: Outcome) -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    inject(h, *ISOLATED)
    late(h)
    heal(h)
    comes(h, h.events()[-1].at_ns, ms)
    assert outcome(h, "BE-05") is expected


# ------------------------------------------------------------------------------------------ BE-06


def test_a_process_that_registers_anew_must_receive_everything_again() -> None:
    h = bounced()
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "UpdateMetadata", OWN))
    again(h, NEW, OWN + 10)
    declare(h, "Absent", "Active", OWN + 10, "registered")
    answer(h, send(h, "LeaderAndIsr", OWN + 10, number=2))
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN + 10, "heartbeat")
    assert outcome(h, "BE-06") is VIOLATED


@pytest.mark.parametrize(("deleted", "expected"), [(True, NOT_EXERCISED), (False, VIOLATED)])
def test_a_broker_whose_only_topic_was_deleted_is_owed_nothing(
    deleted: bool, expected: Outcome
) -> None:
    h = begin()
    h.add(CONTROLLER, TopicCommitted(offset=8, topic="orders", topic_id="", deleted=deleted))
    register(h, NEW, -1, version=4)
    compare(h, bounced=(1,))
    assert outcome(late(h), "BE-06") is expected
