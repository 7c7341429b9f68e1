"""APP-runs and APP-works-again: the promises of programs of the user's own."""

from __future__ import annotations

from msgspec import Struct

from fencepost import AppStarted, AppWorksAgain, ProcessExited, process_scope, slot_scope
from fencepost.judging.verdicts import Verdict
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_plugins.apps import RUNS, WORKS_AGAIN, fencepost_clauses, fencepost_rules

HARNESS, APP = "harness", "billing-1#1"
STARTED = AppStarted(app="billing", started=APP, argv=("billing",), may_end=False, works_again_ms=0)


def verdict(clause: str, *bodies: Struct) -> Verdict:
    built = HistoryBuilder()
    for body in bodies:
        built.add(HARNESS, body)
    clauses = {one.id: one for one in fencepost_clauses()}
    judged = judge(built.events(), fencepost_rules(), clauses, built.end(), "any")
    return judged.verdicts[clause]


def ended(process: str = APP, *, expected: bool = False, signal: int = 0) -> ProcessExited:
    code = 0 if signal else 3
    return ProcessExited(
        ended=process, exit_code=code, signal=signal, expected=expected, said="no more"
    )


def test_an_end_that_nobody_asked_for_breaks_it() -> None:
    found = verdict(RUNS, STARTED, ended())
    assert found.verdict is Outcome.VIOLATED
    facts = found.violations[0].facts
    assert (facts["process"], facts["exit_code"]) == (process_scope(APP), 3)
    assert facts["said"] == "no more"


def test_an_end_that_was_asked_for_exercises_it() -> None:
    assert verdict(RUNS, STARTED, ended(expected=True)).verdict is Outcome.HOLDS


def test_the_ends_of_nodes_and_workers_are_not_its_affair() -> None:
    found = verdict(RUNS, STARTED, ended("broker-1#1"), ended("clients/producer-1#1"))
    assert found.verdict is Outcome.NOT_EXERCISED


def test_a_signal_from_outside_and_a_full_disk_decide_nothing() -> None:
    lacking = ProcessExited(
        ended=APP, exit_code=1, signal=0, expected=False, lacked="no space is left"
    )
    assert verdict(RUNS, STARTED, ended(signal=9)).verdict is Outcome.UNKNOWN
    assert verdict(RUNS, STARTED, lacking).verdict is Outcome.UNKNOWN
    # A program sends SIGSEGV to itself.
    assert verdict(RUNS, STARTED, ended(signal=11)).verdict is Outcome.VIOLATED


def asked(*, works: bool) -> AppWorksAgain:
    why = "" if works else "HTTP status 503"
    return AppWorksAgain(
        app="billing", slot="billing-1", works=works, took_ms=900, bound_ms=1000, why=why
    )


def test_it_works_again_or_breaks_its_promise() -> None:
    assert verdict(WORKS_AGAIN, STARTED, asked(works=True)).verdict is Outcome.HOLDS
    assert verdict(WORKS_AGAIN, STARTED).verdict is Outcome.NOT_EXERCISED
    found = verdict(WORKS_AGAIN, STARTED, asked(works=True), asked(works=False))
    assert found.verdict is Outcome.VIOLATED
    facts = found.violations[0].facts
    assert facts["slot"] == slot_scope("billing-1")
    assert (facts["bound_ms"], facts["why"]) == (1000, "HTTP status 503")
