"""The rules of fencing at their exact bounds, and what does not count for them."""

from __future__ import annotations

import pytest
from tests.suites.brokers.fencing_histories import (
    BROKER,
    CONTROLLER,
    DUPLICATE,
    LEADER,
    active,
    beat,
    change,
    count,
    probe,
    serve,
    store,
    taken_over,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, ChangeAnswered, HeartbeatRefused, RequestRefused


def start(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))


def refuse_follower(h: HistoryBuilder, follower: int, process: str = BROKER) -> None:
    h.add(
        process,
        RequestRefused(
            api="Fetch",
            topic="orders",
            partition=0,
            client=BROKER,
            requester=follower,
            error="NOT_LEADER_OR_FOLLOWER",
            reason="fenced",
            state="FENCED",
        ),
    )


def refuse_heartbeat(h: HistoryBuilder, process: str, error: str) -> None:
    h.add(process, HeartbeatRefused(broker_id=1, broker_epoch=5, error=error, controller=101))


def accept_change(h: HistoryBuilder, offset: int) -> None:
    h.add(
        CONTROLLER,
        ChangeAnswered(
            api="AlterIsr",
            client=BROKER,
            error="NONE",
            offset=offset,
            high_watermark=13,
            controller_epoch=1,
        ),
    )


# ------------------------------------------------------------------------------------------ QC-17


@pytest.mark.parametrize(("old", "new"), [("INITIAL", "FENCED"), ("ACTIVE", "SHUTDOWN")])
def test_only_a_broker_that_was_active_and_is_fenced_owes_qc_17_a_refusal(
    old: str, new: str
) -> None:
    h = HistoryBuilder()
    start(h)
    change(h, old, new)
    store(h)
    probe(h, "answered", sent_ms=2)
    assert verdict(h, "QC-17").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_is_active_again_may_answer() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    change(h, "FENCED", "ACTIVE")
    probe(h, "answered", sent_ms=5)
    store(h)
    assert verdict(h, "QC-17").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(-2, Outcome.NOT_EXERCISED), (-1, Outcome.VIOLATED)]
)
def test_a_write_counts_as_new_from_the_fence_on(after_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(after_ms)
    store(h)
    found = verdict(h, "QC-17")
    assert found.verdict is outcome
    assert all(stated(one, "stored", "fenced") == (True, True) for one in found.violations)


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(998, Outcome.NOT_EXERCISED), (999, Outcome.VIOLATED)]
)
def test_a_fetch_counts_as_new_once_the_longest_wait_is_over(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(after_ms)
    serve(h)
    found = verdict(h, "QC-17")
    assert found.verdict is outcome
    assert all(stated(one, "stored", "fenced") == (False, True) for one in found.violations)


@pytest.mark.parametrize(
    ("after_ms", "outcome"), [(3098, Outcome.NOT_EXERCISED), (3099, Outcome.VIOLATED)]
)
def test_a_broker_may_take_100_ms_to_notice_the_end_of_its_lease(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active(h)
    h.after(after_ms)
    store(h)
    assert verdict(h, "QC-17").verdict is outcome


@pytest.mark.parametrize(
    ("sent_ms", "outcome"), [(3, Outcome.NOT_EXERCISED), (4, Outcome.VIOLATED)]
)
def test_a_probe_counts_if_it_was_sent_after_the_fence(sent_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    probe(h, "answered", sent_ms=sent_ms)
    assert verdict(h, "QC-17").verdict is outcome


@pytest.mark.parametrize("follower", [0, 2])
def test_a_refused_follower_is_no_client(follower: int) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    refuse_follower(h, follower)
    assert verdict(h, "QC-17").verdict is Outcome.NOT_EXERCISED


# ----------------------------------------------------------------------------------------- REG-05


@pytest.mark.parametrize(
    ("sent_ms", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)
def test_a_probe_counts_if_it_was_sent_after_the_start(sent_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    start(h)
    probe(h, "answered", sent_ms=sent_ms)
    assert verdict(h, "REG-05").verdict is outcome


def test_a_starting_broker_breaks_reg_05_by_a_write_and_by_a_fetch() -> None:
    h = HistoryBuilder()
    start(h)
    store(h)
    serve(h)
    assert [stated(one, "stored") for one in verdict(h, "REG-05").violations] == [True, False]


# ------------------------------------------------------------------------------------------ QC-19


def test_a_controller_that_has_replayed_nothing_may_accept_any_process() -> None:
    h = HistoryBuilder()
    start(h)
    beat(h, "old")
    assert verdict(h, "QC-19").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("registered", ["", "another"])
def test_a_process_whose_registration_no_node_has_replayed_has_lost_no_id(registered: str) -> None:
    h = HistoryBuilder()
    start(h)
    if registered:
        h.add(
            CONTROLLER,
            BrokerCommitted(
                offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation=registered
            ),
        )
    refuse_heartbeat(h, BROKER, "DUPLICATE_BROKER_REGISTRATION")
    assert verdict(h, "QC-19").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("process", "error", "exercised"),
    [
        (BROKER, "STALE_BROKER_EPOCH", 1),
        (BROKER, "NOT_CONTROLLER", 0),
        (DUPLICATE, "STALE_BROKER_EPOCH", 0),
    ],
)
def test_a_heartbeat_exercises_qc_19_if_the_loser_is_refused_for_its_registration(
    process: str, error: str, exercised: int
) -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    refuse_heartbeat(h, process, error)
    assert verdict(h, "QC-19").exercised == exercised


@pytest.mark.parametrize("informed", [True, False])
def test_a_refused_fetch_exercises_qc_19_once_its_node_knows_the_newer_process(
    informed: bool,
) -> None:
    h = HistoryBuilder()
    taken_over(h, *([LEADER] if informed else []))
    refuse_follower(h, 1, LEADER)
    assert verdict(h, "QC-19").exercised == informed


def test_a_broker_with_the_id_0_loses_its_id_as_any_other() -> None:
    h = HistoryBuilder()
    for offset, process, incarnation in ((5, BROKER, "old"), (9, DUPLICATE, "new")):
        h.add(process, NodeStarted(role="broker", node_id=0, incarnation=incarnation, log_end=0))
        h.add(
            LEADER,
            BrokerCommitted(
                offset=offset,
                broker_id=0,
                broker_epoch=offset,
                fenced=False,
                incarnation=incarnation,
            ),
        )
    refuse_follower(h, 0, LEADER)
    assert verdict(h, "QC-19").exercised == 1


@pytest.mark.parametrize(("offset", "violated"), [(0, False), (8, False), (9, True)])
def test_an_isr_change_counts_unless_its_record_came_before_the_takeover(
    offset: int, violated: bool
) -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    accept_change(h, offset)
    assert (verdict(h, "QC-19").verdict is Outcome.VIOLATED) == violated


def test_the_newer_process_counts_everywhere() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER, LEADER)
    beat(h, "new")
    count(h, DUPLICATE)
    assert verdict(h, "QC-19").verdict is Outcome.NOT_EXERCISED
