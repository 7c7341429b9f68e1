"""A check of the user's as a clause: it is asked while the run is there, and judged by its event.

A check is code of a test's, and knows clients and what they wrote. What it said is one event of the
history (`check.judged`), and run.json names each check with its sentence. So a folder is judged
again, and reported, where that code is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fencepost.events import CheckJudged, Event, RunStarted
from fencepost.history.run_end import RunEnd
from fencepost.judging.about import Reason
from fencepost.judging.findings import (
    NOTHING,
    Evidence,
    Exercised,
    Findings,
    Undecided,
    violated,
)
from fencepost.judging.rules import Clause, Rule, on

SOURCE = "check"
"""The source of the clauses that are checks."""


@dataclass(slots=True)
class _Asked:
    asked: bool = False


@final
class CheckRule(Rule[_Asked]):
    """What a check said; undecided if the run ended before it was asked, or it could not say."""

    state = _Asked

    @on(RunStarted)
    def began(self, state: _Asked, event: Event, body: RunStarted) -> Findings:
        """From now on the check is owed."""
        return NOTHING

    @on(CheckJudged)
    def judged(self, state: _Asked, event: Event, body: CheckJudged) -> Findings:
        """It was asked."""
        if body.check != self.clause:
            return NOTHING
        state.asked = True
        if body.outcome == "held":
            return (Exercised(event.ref, Evidence.CLIENT),)
        if body.outcome == "unknown":
            return (Undecided.since(Reason.of("{error}", error=body.error), event.ref),)
        said = "{check}: {error}" if body.error else "{check} does not hold"
        found = violated(event.ref, Evidence.CLIENT, said, check=body.check, error=body.error)
        return (found,)

    def end(self, state: _Asked, end: RunEnd) -> Findings:
        """A check that was never asked decides nothing."""
        if state.asked:
            return NOTHING
        return (Undecided.since(Reason("the run ended before it was asked")),)


def rules_of(checks: Mapping[str, str]) -> Sequence[Rule[Any]]:
    """A rule for each check of a run."""
    return [CheckRule(one) for one in checks]


def clauses_of(checks: Mapping[str, str]) -> Mapping[str, Clause]:
    """A clause for each check of a run: its id, and its sentence."""
    return {one: Clause(one, SOURCE, (), says) for one, says in checks.items()}
