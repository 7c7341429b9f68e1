"""Asks the checks of a run: again until each holds or its bound is over, and bounded in time.

One call may hang, as on a socket of an app that answers nothing. So it is interrupted by a timer
of the kernel (SIGALRM) when its bound is over, as pytest-timeout does, whose own timer is kept.
What it prints goes to standard error: standard output may be a command's own.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import Literal, NamedTuple

from fencepost.events import CheckJudged
from fencepost.model.check import Check
from fencepost.model.clock import MS, SECOND
from fencepost.model.errors import FencepostError, Inconclusive, Violation
from fencepost.model.runtime import Runtime, let_pass_until

_BETWEEN_MS = 500
"""How long is waited before a check that does not hold is asked again."""
_MOST_OF_AN_ERROR = 1000
"""How many characters of its error the event of a check has, at most."""


class _Answer(NamedTuple):
    outcome: Literal["held", "violated", "unknown"]
    error: str = ""


class _TooLate(BaseException):
    """The timer of a call; no check catches it by `except Exception`."""


def ask(checks: Sequence[Check], run: object, runtime: Runtime) -> None:
    """Asks each check about the run, one after the other, and records what it said."""
    for one in checks:
        began_ns = runtime.now_ns()
        answer = _until_it_holds(one, run, runtime)
        took_ms = (runtime.now_ns() - began_ns) // MS
        error = answer.error[:_MOST_OF_AN_ERROR]
        runtime.record(
            CheckJudged(check=one.id, outcome=answer.outcome, took_ms=took_ms, error=error)
        )


def _until_it_holds(check: Check, run: object, runtime: Runtime) -> _Answer:
    deadline_ns = runtime.now_ns() + int(check.within_s * SECOND)
    while True:
        answer = _once(check, run)
        now_ns = runtime.now_ns()
        # What raised something else will most likely raise it again: the code is wrong.
        if answer.outcome != "violated" or now_ns >= deadline_ns:
            return answer
        let_pass_until(runtime, min(deadline_ns, now_ns + _BETWEEN_MS * MS))


def _once(check: Check, run: object) -> _Answer:
    try:
        with _limited(check.within_s), redirect_stdout(sys.stderr):
            answered = check.ask(run)
    except AssertionError as failed:
        return _Answer("violated", _words(failed))
    except _TooLate:
        return _Answer("unknown", f"it did not answer within {check.within_s:g} s")
    except (FencepostError, Violation) as failed:
        # A condition that the check waited for in vain is its answer; a machine that failed is not.
        waited = isinstance(failed, Violation) and not isinstance(failed, Inconclusive)
        return _Answer("violated" if waited else "unknown", str(failed))
    except Exception as failed:  # a user's own code may raise anything
        return _Answer("unknown", f"it raised {type(failed).__name__}: {_words(failed)}")
    # `return x == y` says nothing by an exception. Only False itself is a "no": None is no answer.
    return _Answer("violated", "it returned False") if answered is False else _Answer("held")


def _words(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raises `_TooLate` in the block when the time is over; without a bound outside the main
    thread, where no handler of signals can be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, over)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        rest_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # another timer was running, which goes on
            took_s = limit_s - rest_s
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - took_s), every_s)
