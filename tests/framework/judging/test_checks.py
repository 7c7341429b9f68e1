"""A check of the user's as a clause: judged by its one event."""

from __future__ import annotations

from fencepost import CheckJudged, RunStarted
from fencepost.judging.checks import clauses_of, rules_of
from fencepost.judging.verdicts import Verdict
from fencepost.testing import HistoryBuilder, Outcome, judge

ONE, OTHER = "CHECK-all-billed", "CHECK-none-twice"
CHECKS = {ONE: "no order is lost", OTHER: "none is billed twice"}
BEGAN = RunStarted(system="any/any", runtime="process", seed=1)


def verdicts(*judged: CheckJudged) -> dict[str, Verdict]:
    built = HistoryBuilder()
    built.add("harness", BEGAN)
    for body in judged:
        built.add("harness", body)
    found = judge(built.events(), rules_of(CHECKS), clauses_of(CHECKS), built.end(), "any")
    return dict(found.verdicts)


def said(check: str, outcome: str, error: str = "") -> CheckJudged:
    return CheckJudged(check=check, outcome=outcome, took_ms=5, error=error)  # type: ignore[arg-type]


def test_each_check_is_a_clause_with_its_sentence() -> None:
    found = verdicts(said(ONE, "held"), said(OTHER, "violated", "o-7 twice"))
    assert (found[ONE].verdict, found[ONE].sentence) == (Outcome.HOLDS, "no order is lost")
    assert found[OTHER].verdict is Outcome.VIOLATED
    facts = found[OTHER].violations[0].facts
    assert (facts["check"], facts["error"]) == (OTHER, "o-7 twice")


def test_one_that_could_not_be_asked_decides_nothing() -> None:
    found = verdicts(said(ONE, "unknown", "it raised KeyError: 'x'"))
    assert found[ONE].verdict is Outcome.UNKNOWN
    assert [one.why["error"] for one in found[ONE].undecided] == ["it raised KeyError: 'x'"]
    assert found[OTHER].verdict is Outcome.UNKNOWN, "it was never asked"
