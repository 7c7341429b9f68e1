"""Receipts: measurements that are, and that are not, evidence of a link's change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fencepost import HEALTHY, Link, LinkState
from fencepost.injection.probes import ProbeAnswer
from fencepost.injection.receipts import Trial, added_ms, bulk, judge, judge_use

LINK = Link("broker-1", "broker-2", 9092)
QUICK = ProbeAnswer(True, 1.0)
SILENT = ProbeAnswer(False, 110.0)
CUT_UP = LinkState(cut_upstream=True)
CUT_DOWN = LinkState(cut_downstream=True)
CUT = LinkState(cut_upstream=True, cut_downstream=True)
GOOD_CUT = Trial(
    link=LINK,
    old=HEALTHY,
    new=CUT_UP,
    before=QUICK,
    after=SILENT,
    vanished={"upstream": 29, "downstream": 0},
    open_before=1,
)
GOOD_DOWN = replace(GOOD_CUT, new=CUT_DOWN, vanished={"upstream": 0, "downstream": 14})


def test_a_cut_with_silence_and_vanished_bytes_has_its_receipt() -> None:
    receipt = judge([GOOD_CUT], [], [], unasked=0)
    assert receipt.true
    assert "answered within 1.0 ms before, not within 110 ms after" in receipt.evidence
    assert "29 bytes vanished upstream" in receipt.evidence


def test_a_downstream_cut_shows_in_the_answer_that_vanished() -> None:
    assert judge([GOOD_DOWN], [], [], unasked=0).true


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (replace(GOOD_CUT, after=QUICK), "still answers"),
        (replace(GOOD_CUT, before=SILENT), "nothing answered before"),
        (replace(GOOD_CUT, vanished={"upstream": 0, "downstream": 0}), "vanish upstream"),
        (replace(GOOD_DOWN, vanished={"upstream": 29, "downstream": 0}), "vanish downstream"),
        # Another toxiproxy counts from 0: the one before it ended during the measurement.
        (replace(GOOD_CUT, vanished={"upstream": -10, "downstream": 0}), "vanish upstream"),
        (replace(GOOD_CUT, open_before=0), "no connection was open"),
    ],
)
def test_a_cut_that_missed_has_none_and_says_why(trial: Trial, why: str) -> None:
    receipt = judge([trial], [], [], unasked=0)
    assert not receipt.true
    assert why in receipt.evidence


def test_one_missed_link_spoils_the_receipt_and_is_named() -> None:
    other = Link("broker-1", "broker-3", 9092)
    receipt = judge([GOOD_CUT, replace(GOOD_CUT, link=other, after=QUICK)], [], [], unasked=0)
    assert not receipt.true
    assert "broker-1 -> broker-3:9092: it still answers" in receipt.evidence
    assert "broker-2" not in receipt.evidence


@pytest.mark.parametrize(
    ("trials", "question"),
    [
        (
            [replace(GOOD_CUT, open_before=0)],
            "is that link idle, or do the nodes not dial the addresses of `place.hosts`?",
        ),
        (
            [replace(GOOD_CUT, before=ProbeAnswer(False, 5), open_before=0)],
            "does the system's probe ask what its nodes answer, at `place.address`?",
        ),
        ([GOOD_CUT, replace(GOOD_CUT, before=ProbeAnswer(False, 5))], ""),
        ([replace(GOOD_CUT, after=QUICK)], ""),
    ],
    ids=["idle", "unanswered", "only one unanswered", "answers still"],
)
def test_a_miss_asks_what_a_plugin_s_author_may_have_forgotten(
    trials: Sequence[Trial], question: str
) -> None:
    receipt = judge(trials, [], [], unasked=0)
    assert not receipt.true
    assert receipt.question == question


def test_links_without_processes_are_not_idle() -> None:
    assert judge_use({}).question == ""
    assert judge_use({GOOD_CUT.link: 0}).idle


def test_one_idle_link_among_busy_ones_is_not_a_miss() -> None:
    idle = replace(GOOD_CUT, link=Link("broker-1", "broker-3", 9092), open_before=0)
    assert judge([GOOD_CUT, idle], [], [], unasked=0).true


def test_toxics_other_than_wanted_spoil_the_receipt() -> None:
    receipt = judge([GOOD_CUT], ["broker-1 -> broker-2 has []"], [], unasked=0)
    assert not receipt.true
    assert "toxiproxy disagrees" in receipt.evidence


def test_a_second_cut_over_a_first_needs_no_answer_before() -> None:
    both = replace(GOOD_CUT, old=CUT_UP, new=CUT, before=None)
    receipt = judge([both], [], [], unasked=0)
    assert receipt.true
    assert "cut before already" in receipt.evidence


def test_a_healed_link_answers() -> None:
    healed = replace(GOOD_CUT, old=CUT_UP, new=HEALTHY, before=None, after=QUICK, open_before=0)
    assert judge([healed], [], [], unasked=0).true
    assert not judge([replace(healed, after=SILENT)], [], [], unasked=0).true


@pytest.mark.parametrize(
    ("old", "new", "after", "said"),
    [
        (CUT, CUT, SILENT, "did not answer within 110 ms, and 29 bytes vanished upstream"),
        (CUT, CUT_UP, SILENT, "did not answer within 110 ms, and 29 bytes vanished upstream"),
        (CUT, LinkState(latency_ms=50), ProbeAnswer(True, 101), "took 101 ms or more to answer:"),
    ],
    ids=["cut still", "cut still one way", "slow still"],
)
def test_a_heal_that_leaves_the_effect_of_another_fault_is_said_as_one(
    old: LinkState, new: LinkState, after: ProbeAnswer, said: str
) -> None:
    """It read as a cut: "answered within 0.0 ms before, not within 110 ms after"."""
    trial = replace(GOOD_CUT, old=old, new=new, before=None, after=after)
    healed = replace(GOOD_CUT, old=CUT_UP, new=HEALTHY, before=None, after=QUICK)
    receipt = judge([healed, trial], [], [], unasked=0)
    assert receipt.true
    assert said in receipt.evidence
    assert "still, by another fault" in receipt.evidence
    assert "before" not in receipt.evidence
    assert "1 link answered within 1.0 ms, without any toxic" in receipt.evidence


def test_a_delay_counts_both_ways_and_jitter_against_it() -> None:
    assert added_ms(LinkState(latency_ms=50)) == 100
    assert added_ms(LinkState(latency_ms=50, jitter_ms=20)) == 60
    assert added_ms(LinkState(jitter_ms=20)) == 0


def test_a_rate_is_shown_by_a_question_of_a_quarter_second() -> None:
    assert bulk(LinkState(rate_kb=100)) == 25_000
    assert added_ms(LinkState(rate_kb=100)) == 250
    assert bulk(LinkState(rate_kb=100_000)) == 32_000
    assert bulk(HEALTHY) == 0


@pytest.mark.parametrize(
    ("state", "after", "why"),
    [
        (LinkState(latency_ms=50), ProbeAnswer(True, 101), ""),
        (LinkState(latency_ms=50), ProbeAnswer(True, 40), "took 40.0 ms"),
        (LinkState(latency_ms=50), ProbeAnswer(False, 2100), "no answer at all"),
        (LinkState(latency_ms=60_000), ProbeAnswer(False, 5000), ""),
        (LinkState(latency_ms=1), ProbeAnswer(True, 3), "too short to be measured"),
        (LinkState(rate_kb=100), ProbeAnswer(True, 260), ""),
        (LinkState(rate_kb=100), ProbeAnswer(True, 20), "took 20.0 ms"),
        (LinkState(rate_kb=100_000), ProbeAnswer(True, 2), "too short to be measured"),
    ],
    ids=str,
)
def test_a_slow_link_shows_in_how_long_an_answer_takes(
    state: LinkState, after: ProbeAnswer, why: str
) -> None:
    trial = replace(GOOD_CUT, new=state, after=after, vanished={"upstream": 0, "downstream": 0})
    receipt = judge([trial], [], [], unasked=0)
    assert receipt.true is not bool(why)
    assert why in receipt.evidence


def test_a_connection_that_passes_no_link_spoils_the_receipt_beside_honest_ones() -> None:
    receipt = judge([GOOD_CUT], [], [], unasked=0, direct={LINK: 2})
    assert not receipt.true
    assert receipt.evidence == (
        "broker-1 -> broker-2:9092: 2 connections of broker-1 pass no link, and dial the address "
        "of broker-2 itself"
    )
