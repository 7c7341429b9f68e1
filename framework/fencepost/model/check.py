"""Checks of the user's own: what must hold at the end of a run, beside the clauses.

    @fencepost.check("no order is lost, and none is billed twice")
    def all_billed(run):
        orders = {one.key for one in run.clients.messages("orders")}
        bills = [one.key for one in run.clients.messages("bills")]
        assert orders <= set(bills), f"not billed: {sorted(orders - set(bills))}"
        assert len(bills) == len(set(bills))

It is asked once everything has healed and the clients have finished, while apps still work; again
until it holds, since what an app owes may take a moment; and for the last time when its bound is
over. An AssertionError then is a violation with its message; any other error leaves it undecided.
In the table, on the page and in the report it is a clause like any other, `CHECK-all-billed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

from fencepost.model.errors import UsageError

WITHIN_S: Final = 30.0
PREFIX: Final = "CHECK-"


def is_check(clause: str) -> bool:
    """Whether it is the id of a check, and so of no plugin's clause."""
    name = clause.removeprefix(PREFIX)
    return name != clause and name.replace("-", "_").isidentifier()


@final
@dataclass(frozen=True, slots=True)
class Check:
    """A check: `ask` is given the run, and raises AssertionError for as long as it does not
    hold."""

    id: str
    says: str
    ask: Callable[[Any], object]
    within_s: float = WITHIN_S

    def __call__(self, run: Any) -> object:
        """Asks it once, as the function that it was made of."""
        return self.ask(run)


def check(says: str, *, within_s: float = WITHIN_S) -> Callable[[Callable[[Any], object]], Check]:
    """Makes a check of a function that takes the run (`fencepost.testing.Run`): its `clients`, its
    `cluster`, its `apps`, and all its events by `run.runtime.events()`.

    `says` is the promise, in one sentence. `within_s` bounds how long it may take to come true
    once everything has healed, and how long one call may take. Every check of a test's module, and
    of the conftest.py files above it, is asked in each run of its tests. Raises UsageError for an
    empty sentence and a bound that is not positive.
    """
    if not says.strip() or within_s <= 0:
        raise UsageError("a check has a sentence, and a bound of more than 0 s")

    def made(function: Callable[[Any], object]) -> Check:
        return Check(f"{PREFIX}{function.__name__.replace('_', '-')}", says, function, within_s)

    return made
