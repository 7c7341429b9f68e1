"""Checks are asked until they hold, and a wrong or a slow one decides nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.echo_run import simulated_run

import fencepost
from fencepost import Check, CheckJudged, Inconclusive, UsageError, Violation
from fencepost.runs import checks
from fencepost.runs.project import checks_in

Judged = Callable[[Check], CheckJudged]


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    """Asks a check in a run in virtual time."""
    with simulated_run(tmp_path / "run") as runtime:

        def ask(check: Check) -> CheckJudged:
            checks.ask([check], None, runtime)
            body = runtime.events()[-1].body
            assert isinstance(body, CheckJudged)
            return body

        yield ask


def test_a_check_is_asked_again_until_it_holds(judged: Judged) -> None:
    asked: list[int] = []

    @fencepost.check("it comes true", within_s=10)
    def comes_true(run: Any) -> None:
        asked.append(1)
        assert len(asked) > 3, "not yet"

    body = judged(comes_true)
    assert (body.check, body.outcome, body.error) == ("CHECK-comes-true", "held", "")
    assert (len(asked), body.took_ms) == (4, 1500)


def test_one_that_never_holds_is_violated_with_its_own_words(judged: Judged) -> None:
    @fencepost.check("never", within_s=2)
    def never(run: Any) -> None:
        raise AssertionError("2 of 7 lost\nmore")

    body = judged(never)
    assert (body.outcome, body.error, body.took_ms) == ("violated", "2 of 7 lost", 2000)


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (KeyError("orders"), "unknown"),
        (Inconclusive("orders could not be read"), "unknown"),
        (UsageError("there is no topic"), "unknown"),
        (Violation("waited in vain"), "violated"),
    ],
)
def test_an_error_that_is_no_answer_decides_nothing(
    judged: Judged, raised: Exception, outcome: str
) -> None:
    @fencepost.check("raises", within_s=1)
    def raises(run: Any) -> None:
        raise raised

    body = judged(raises)
    assert body.outcome == outcome
    assert str(raised) in body.error


def test_false_is_no_and_what_it_prints_goes_to_standard_error(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    @fencepost.check("says no", within_s=0.5)
    def says_no(run: Any) -> bool:
        print("asked")
        return False

    assert judged(says_no).outcome == "violated"
    out, err = capsys.readouterr()
    assert (out, "asked" in err) == ("", True)


def test_one_that_hangs_is_cut_short_and_an_earlier_timer_goes_on(judged: Judged) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 3600)
    try:

        @fencepost.check("hangs", within_s=0.2)
        def hangs(run: Any) -> None:
            time.sleep(60)  # noqa: TID251 - it hangs

        body = judged(hangs)
        assert body.outcome == "unknown"
        assert "0.2 s" in body.error
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_check_needs_a_sentence_and_time() -> None:
    for says, within_s in (("", 1.0), ("it holds", 0.0)):
        with pytest.raises(UsageError):
            fencepost.check(says, within_s=within_s)


GOOD = """
import fencepost

@fencepost.check("it holds")
def holds(run):
    pass
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "no file of checks"), ("x = 1", "has no check"), ("x = 1 / 0", "ZeroDivisionError")],
)
def test_a_file_of_checks_that_cannot_be_used_is_refused(
    tmp_path: Path, text: str | None, says: str
) -> None:
    file = tmp_path / "checks.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=says):
        checks_in([str(file)])


def test_the_checks_of_a_file_are_found(tmp_path: Path) -> None:
    file = tmp_path / "checks.py"
    file.write_text(GOOD)
    (found,) = checks_in([str(file)])
    assert (found.id, found.says) == ("CHECK-holds", "it holds")
