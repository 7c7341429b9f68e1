"""What the rules say of a behaviour, and the smallest behaviour of which they say too little or too
much."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fencepost.judging.folder import Promises
from fencepost.judging.judge import judge
from fencepost.judging.verdicts import Outcome
from formal_model.behaviours import Behaviour
from formal_model.histories import history

PLANE = "quorum"
FAST_MS, SLOW_MS = 10, 1_500
"""How long a step takes. The model knows no time, so any would do; but while steps are fast, no
bound that a rule sets is over, and nobody is accused of being late."""
LASTING = frozenset({"RP-06"})
"""Clauses that forgive what lasts a second. A behaviour whose steps are slow is one, too, and these
notice what it breaks."""


class Wrong(StrEnum):
    """How the rules are wrong about a behaviour."""

    ACCUSED = "accused"
    """The model breaks nothing, and a clause is violated."""
    MISSED = "missed"
    """Something that is committed is lost, or may be by the next election, and no clause is
    violated."""


class Judged(NamedTuple):
    """The clauses that a behaviour violates, by the rules, with the first violation of each; and
    what it breaks by the model."""

    violated: dict[str, str]
    harm: frozenset[str]

    def wrong(self, broken: str) -> Wrong | None:
        if not broken and self.violated:
            return Wrong.ACCUSED
        return Wrong.MISSED if self.harm and not self.violated else None


def judged(behaviour: Behaviour, promises: Promises) -> Judged:
    violated = _violated(behaviour, promises, FAST_MS)
    if behaviour.harm and not violated:
        slow = _violated(behaviour, promises, SLOW_MS)
        violated = {clause: said for clause, said in slow.items() if clause in LASTING}
    return Judged(violated, behaviour.harm)


def _violated(behaviour: Behaviour, promises: Promises, step_ms: int) -> dict[str, str]:
    h = history(behaviour, step_ms)
    found = judge(h.events(), promises.rules, promises.clauses, h.end(), PLANE)
    return {
        clause: one.violations[0].message
        for clause, one in found.verdicts.items()
        if one.verdict is Outcome.VIOLATED
    }


def smallest(behaviour: Behaviour, promises: Promises) -> Behaviour:
    """The shortest beginning of a behaviour about which the rules are wrong in the same way.

    A step cannot be left out of the middle: what is left would be no behaviour of the model.
    """
    wrong = judged(behaviour, promises).wrong(behaviour.broken)
    begins = (behaviour.upto(count) for count in range(1, len(behaviour.steps)))
    return next(
        (one for one in begins if judged(one, promises).wrong(one.broken) is wrong), behaviour
    )
