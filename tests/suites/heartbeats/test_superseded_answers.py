"""Rules about a controller that lost ZooKeeper or was paused (KIP-343)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    CONTROLLER,
    SECOND,
    answered,
    began,
    declared,
    judged,
    stored,
    term_began,
    verdict,
)

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerEnded


@pytest.mark.parametrize(
    ("silent_ms", "expected"), [(4000, Outcome.NOT_EXERCISED), (6000, Outcome.VIOLATED)]
)
def test_a_controller_without_zookeeper_leaves_its_late_declarations_to_its_successor(
    silent_ms: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    began(h, session_timeout_ms=3000)
    declared(h)
    answered(h)
    h.after(silent_ms)
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session"))
    assert verdict(h, "HB-09") is expected


@pytest.mark.parametrize(("known", "expected"), [(20, Outcome.HOLDS), (30, Outcome.NOT_EXERCISED)])
def test_an_answer_after_the_bounce_was_handled_shows_the_adoption(
    known: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    term_began(h)
    declared(h, new="Absent", old="Active", reason="bounced")
    declared(h, old="Absent", reason="bounced", incarnation=30)
    answered(h, incarnation=30, known=known)
    assert verdict(h, "HB-13") is expected


@pytest.mark.parametrize("clause", ["HB-19", "HB-21"])
@pytest.mark.parametrize(
    ("seen", "expected"), [(True, Outcome.NOT_EXERCISED), (False, Outcome.VIOLATED)]
)
def test_an_answer_after_its_leader_epoch_holds_if_another_process_has_read_its_isr(
    seen: bool, expected: Outcome, clause: str
) -> None:
    """A controller stood still between its write and its answer; its successor has read the
    ISR that it wrote."""
    h = HistoryBuilder()
    term_began(h)
    if seen:
        stored(h, isr=(2, 3), epoch=4, offset=50, process=SECOND)
    stored(h, isr=(3,), leader=3, epoch=5, offset=60, process=SECOND)
    judged(h, isr="2,3", epoch=4)
    assert verdict(h, clause) is expected


@pytest.mark.parametrize("clause", ["HB-19", "HB-21"])
def test_an_isr_that_only_the_answering_process_has_recorded_is_no_evidence(clause: str) -> None:
    h = HistoryBuilder()
    term_began(h)
    stored(h, isr=(2, 3), epoch=4, offset=50, process=CONTROLLER)
    stored(h, isr=(3,), leader=3, epoch=5, offset=60, process=SECOND)
    judged(h, isr="2,3", epoch=4)
    assert verdict(h, clause) is Outcome.VIOLATED
