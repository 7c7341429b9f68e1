"""How commands about many runs end: what is new, what held, where to go on, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fencepost.campaigns import endings
from fencepost.campaigns.compare import Compared, Trial
from fencepost.campaigns.conformance import Matrix, MatrixRow, _row, undecided
from fencepost.campaigns.defects import FalseAlarm, Results
from fencepost.commands import compare, conformance, defects, replay, run
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.findings import Evidence
from fencepost.judging.verdicts import Judgement, Outcome, Verdict
from fencepost.model.errors import EnvironmentFailed, Inconclusive, Violation
from fencepost.model.system.shape import Shape
from fencepost.runs.run import RunResult
from fencepost.testing.test_run import ResultCollector

HELD, BROKEN, OPEN = Outcome.HOLDS, Outcome.VIOLATED, Outcome.UNKNOWN
IDLE, OTHER = Outcome.NOT_EXERCISED, Outcome.NOT_APPLICABLE


def test_a_clause_held_if_it_held_wherever_it_was_exercised() -> None:
    runs = [
        {"A": HELD, "B": HELD, "C": HELD, "D": IDLE, "E": OTHER},
        {"A": IDLE, "B": BROKEN, "C": OPEN, "D": IDLE, "E": OTHER},
    ]
    assert endings.what_held(runs) == (
        "1 of 4 clauses held; violated: B; undecided: C; never exercised: D"
    )
    assert endings.what_held(runs[:1], " here") == "3 of 4 clauses held here; never exercised: D"
    assert endings.what_held([{"E": OTHER}]) == ""


@pytest.mark.parametrize(
    ("numbers", "words"), [([3, 4, 5, 9], "3 to 5, 9"), ([1, 2], "1, 2"), ([7], "7"), ([], "")]
)
def test_numbers_in_ranges(numbers: list[int], words: str) -> None:
    assert endings.in_ranges(numbers) == words


def row(clause: str, verdict: Outcome, known: tuple[str, ...] = ()) -> MatrixRow:
    return MatrixRow(
        clause=clause,
        system="apache/kraft@4.3.1",
        runtime="process",
        verdict=verdict,
        exercised=1,
        evidence=None,
        tests=("suites/test_a.py::test_held", "suites/test_a.py::test_one"),
        violated_by=("suites/test_a.py::test_one",),
        known=known,
        reason="no answer" if verdict is OPEN else "",
    )


def test_the_end_of_a_conformance() -> None:
    rows = [row("A", HELD), row("B", BROKEN), row("C", BROKEN, ("a-finding",)), row("D", OPEN)]
    places = {"suites/test_a.py::test_one": "/here/suites/test_a.py::test_one"}
    matrix = Matrix(rows, None, ("t::two",), places, seed=7)
    shape = Shape({"broker": 4}, {"password": "x", "n": "1"}, ("lost",))
    again = conformance.again_of([Matrix((), None), matrix], shape)
    assert list(conformance.ending(rows, ["t::two"], (), 1, again)) == [
        "NEW: B is violated by apache/kraft@4.3.1 on process in suites/test_a.py::test_one",
        "1 of 4 clauses held on apache/kraft@4.3.1, process; violated: B, C; undecided: D",
        "undecided: D: no answer",
        "again: fencepost run --system apache/kraft@4.3.1 --runtime process --seed 7 --count "
        "broker=4 --setting 'password=<redacted>' --setting n=1 --defects lost "
        "/here/suites/test_a.py::test_one",
        "1 clause violated anew, 1 clause violated as known, 1 clause undecided, 1 test failed: "
        "exit code 1",
    ]
    assert list(conformance.ending([row("A", HELD)], (), (), 0)) == [
        "1 of 1 clause held on apache/kraft@4.3.1, process",
        "nothing new: exit code 0",
    ]
    assert list(conformance.ending((), (), [EnvironmentFailed("no disk")], 4)) == [
        "nothing was judged, 1 suite not judged whole: exit code 4"
    ]
    inconclusive = [Inconclusive("a fault missed")]
    assert list(conformance.ending([row("A", HELD)], (), inconclusive, 3))[-1] == (
        "1 suite not judged whole: exit code 3"
    )


def trial(system: str, verdicts: dict[str, Outcome], faults: int = 3, **more: str) -> Trial:
    return Trial(
        system=system,
        number=0,
        run=f"run-{system}",
        verdicts=verdicts,
        known={},
        violated={c: f"{c} broke" for c, one in verdicts.items() if one is BROKEN},
        unknown={c: "no answer" for c, one in verdicts.items() if one is OPEN},
        faults=faults,
        without_receipt=0,
        **more,
    )


def test_the_end_of_a_comparison() -> None:
    trials = [trial("old", {"A": BROKEN, "B": HELD}), trial("new", {"A": HELD, "B": HELD})]
    assert list(compare.ending(Compared(["old", "new"], trials))) == [
        "the systems differ (*: their intervals of 95% have nothing in common) in none",
        "NEW: A is violated by old, schedule 0: A broke",
        "1 of 2 clauses held on old; violated: A",
        "2 of 2 clauses held on new",
        "why: fencepost report run-old      again: fencepost replay run-old",
        "1 clause violated: exit code 1",
    ]


def test_an_inconclusive_comparison_says_why_and_where_to_go_on() -> None:
    trials = [trial("old", {"A": OPEN, "B": OPEN}), trial("new", {"A": HELD, "B": HELD})]
    assert list(compare.ending(Compared(["old", "new"], trials)))[1:] == [
        "undecided on old: A, B: no answer",
        "0 of 2 clauses held on old; undecided: A, B",
        "2 of 2 clauses held on new",
        "why: fencepost report run-old      again: fencepost replay run-old",
        "2 undecided: exit code 3",
    ]
    unbroken = [trial("old", {"A": HELD}, faults=0), trial("new", {"A": HELD}, faults=0)]
    assert list(compare.ending(Compared(["old", "new"], unbroken)))[-1] == (
        "no fault was injected in any run, so nothing was tried: exit code 3"
    )
    cut = trial("old", {"A": OPEN}, trouble="a node ended")
    assert list(compare.ending(Compared(["old", "new"], [cut, trials[1]])))[-2:] == [
        "why: fencepost report run-old      again: fencepost replay run-old",
        "1 undecided, 1 run cut short: exit code 3",
    ]


def test_the_end_of_a_search_for_defects() -> None:
    results = Results(clean_seeds=10)
    assert list(defects._ending(results, "reference/quorum", 0)) == ["nothing new: exit code 0"]
    results.healthy += [{"A": HELD, "B": IDLE, "C": OTHER}, {"A": HELD, "B": HELD, "C": OTHER}]
    assert list(defects._ending(results, "reference/quorum", 0)) == [
        "2 of 2 clauses held in the healthy runs",
        "nothing new: exit code 0",
    ]
    results.healthy.clear()
    results.false_alarms.append(FalseAlarm(seed=7, clause="A", message="it broke", run="run-7"))
    assert list(defects._ending(results, "reference/quorum", 1)) == [
        "why: fencepost report run-7      again: fencepost replay run-7",
        "1 false alarm: exit code 1",
    ]


def test_the_reason_for_the_exit_code_of_a_replay() -> None:
    new = Verdict(BROKEN, 1, None, "it holds", violated=1)
    broken = RunResult(RunFolder(Path("run")), Judgement({"A": new}), RunEnd(True, 0))
    clean = RunResult(RunFolder(Path("run")), Judgement({}), RunEnd(True, 0))
    assert replay.reason_of([clean], None) == "nothing new: exit code 0"
    assert replay.reason_of([clean, broken], Violation("A: it broke")) == (
        "1 clause violated anew: exit code 1"
    )
    assert replay.reason_of([clean], Inconclusive("a fault missed\nits log")) == (
        "a fault missed: exit code 3"
    )


def unknown(follows: str = "") -> Verdict:
    return Verdict(OPEN, 0, None, "it holds", reason="the run ended first", follows=follows)


def replayed(*verdicts: Verdict) -> RunResult:
    named = {f"A-{number}": one for number, one in enumerate(verdicts)}
    return RunResult(RunFolder(Path("run")), Judgement(named), RunEnd(True, 0))


def test_an_undecided_replay_is_no_pass() -> None:
    failure = replay._failure([replayed(), replayed(unknown(), unknown())])
    assert isinstance(failure, Inconclusive)
    assert replay.reason_of([replayed(unknown(), unknown())], failure) == (
        "undecided: A-0, A-1: the run ended first: exit code 3"
    )
    assert replay._failure([replayed(unknown(follows="B"))]) is None


def test_the_clauses_of_a_run_that_are_undecided_are_named_with_their_reasons() -> None:
    rows = [row("A", HELD), row("B", OPEN), replace(row("C", OPEN), follows="D")]
    assert undecided(rows) == {"B": "no answer"}
    assert run.reason_of(3, rows, ResultCollector()) == "1 clause undecided: exit code 3"


def test_what_is_undecided_in_one_test_is_undecided_though_another_shows_it() -> None:
    held = Verdict(HELD, 1, Evidence.PEER, "it holds")
    joined = _row("A", "system", "process", [("t::one", {"A": held}), ("t::two", {"A": unknown()})])
    assert (joined.verdict, joined.reason, joined.follows) == (OPEN, "the run ended first", "")


def test_a_violation_that_a_test_expects_is_said_as_expected() -> None:
    broken = {"A": Verdict(BROKEN, 1, None, "it holds", violated=1)}
    expecting = _row("A", "s", "process", [("t::weak", broken)], expecting={"t::weak"})
    assert not expecting.is_new
    assert run.reason_of(0, [expecting], ResultCollector()) == (
        "1 clause violated as expected: exit code 0"
    )
    assert list(conformance.ending([expecting], (), (), 0)) == [
        "expected: A is violated in t::weak",
        "0 of 1 clause held on s, process; violated: A",
        "1 clause violated as expected: exit code 0",
    ]
    both = [("t::weak", broken), ("t::other", broken)]
    elsewhere = _row("A", "s", "process", both, expecting={"t::weak"})
    assert elsewhere.is_new
    assert elsewhere.violated_by == ("t::other",)
    assert run.reason_of(1, [elsewhere], ResultCollector()) == "1 clause violated anew: exit code 1"
