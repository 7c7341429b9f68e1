"""A node's word counts against itself, though no other event tells what it knew (HB-01, HB-12,
HB-14, HB-18, HB-20)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    answered,
    began,
    judged,
    registered,
    sent,
    verdict,
    whole_verdict,
)

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome


@pytest.mark.parametrize(
    ("incarnation", "error", "active", "broken"),
    [
        (19, "NONE", True, True),
        (20, "NONE", True, False),
        (21, "NONE", True, False),
        (19, "INVALID_INCARNATION_ID", True, False),
        (19, "NOT_CONTROLLER", False, False),
    ],
)
def test_a_controller_that_accepts_a_lower_incarnation_than_it_says_that_it_knows_breaks_hb_12(
    incarnation: int, error: str, active: bool, broken: bool
) -> None:
    h = HistoryBuilder()
    answered(h, incarnation=incarnation, known=20, error=error, active=active)
    found = whole_verdict(h, "HB-12")
    assert (found.verdict is Outcome.VIOLATED) is broken
    assert [one.evidence for one in found.violations] == [Evidence.SELF] * broken


@pytest.mark.parametrize(("later", "broken"), [(19, True), (20, False), (21, False)])
def test_a_controller_that_accepts_a_lower_incarnation_than_it_has_accepted_breaks_hb_12(
    later: int, broken: bool
) -> None:
    """It says the second time that it knows that one, and declares nothing."""
    h = HistoryBuilder()
    began(h)
    answered(h, incarnation=20, known=20)
    answered(h, incarnation=later, known=later)
    assert (verdict(h, "HB-12") is Outcome.VIOLATED) is broken
    began(h, epoch=2)
    answered(h, incarnation=18, known=18)
    assert (verdict(h, "HB-12") is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(
    ("target", "state", "known", "broken"),
    [
        (2, "Stopping", 20, True),
        (3, "Active", 20, True),
        (3, "Stopping", 20, False),
        # It has not read a registration, or another one's, and settles on what it knows.
        (2, "Initial", 20, False),
        (2, "Inactive", 20, False),
        (2, "Stopping", 10, False),
    ],
)
def test_a_controller_that_answers_with_the_other_state_than_the_target_breaks_hb_14(
    target: int, state: str, known: int, broken: bool
) -> None:
    h = HistoryBuilder()
    answered(h, target=target, state=state, known=known)
    assert (verdict(h, "HB-14") is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(
    ("incarnation", "error", "broken"),
    [
        (19, "NONE", True),
        (21, "NONE", True),
        (20, "NONE", False),
        (19, "INVALID_INCARNATION_ID", False),
    ],
)
def test_a_controller_that_judges_for_another_incarnation_than_it_says_that_it_knows_breaks_hb_18(
    incarnation: int, error: str, broken: bool
) -> None:
    h = HistoryBuilder()
    judged(h, incarnation=incarnation, error=error)
    assert (verdict(h, "HB-18") is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(("accepted", "broken"), [(21, True), (20, False), (19, False)])
def test_a_controller_that_judges_for_a_lower_incarnation_than_it_has_accepted_breaks_hb_18(
    accepted: int, broken: bool
) -> None:
    h = HistoryBuilder()
    began(h)
    answered(h, incarnation=accepted, known=accepted)
    judged(h)
    assert (verdict(h, "HB-18") is Outcome.VIOLATED) is broken
    h = HistoryBuilder()
    began(h)
    answered(h, incarnation=accepted, known=accepted)
    began(h, epoch=2)
    judged(h)
    assert verdict(h, "HB-18") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("isr", "broken"), [("2,3", False), ("3", True), ("", True)])
def test_a_controller_that_grants_an_isr_without_the_broker_that_asks_as_its_leader_breaks_hb_20(
    isr: str, broken: bool
) -> None:
    """Nothing is told of the partition: it grants only what a leader asks."""
    h = HistoryBuilder()
    began(h)
    judged(h, isr=isr)
    assert (verdict(h, "HB-20") is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(("incarnation", "broken"), [(20, False), (19, True), (21, True)])
def test_a_broker_that_sends_another_incarnation_than_it_registered_breaks_hb_01(
    incarnation: int, broken: bool
) -> None:
    h = HistoryBuilder()
    registered(h, epoch=20)
    sent(h, incarnation=incarnation)
    assert (verdict(h, "HB-01") is Outcome.VIOLATED) is broken
