"""`fencepost bisect`: the first of several systems, such as builds of one, in which the schedule of
a recorded run breaks a promise.

The systems are given from the oldest to the newest. The newest must break the promise and the
oldest must keep it, so these two are tried first; then the one in the middle of what lies between
them, again and again: of a hundred systems nine are tried.

A real cluster does not do the same each time. A system is tried until one run breaks the promise,
or as often as is wanted. So "breaks" is shown by a run, and "keeps" is only likely: what breaks in
half of the runs is kept in three of them once in eight times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from fencepost.campaigns.compare import Trial, follow, followed, said_of
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import UsageError
from fencepost.plugins.manager import Plugins
from fencepost.runs.run import RunSpec


@final
@dataclass(frozen=True, slots=True)
class Bisect:
    """What to search: the spec of each system, from the oldest to the newest; the recorded run; its
    clauses, of which any is to be broken; and in how many runs a system must keep them."""

    specs: Sequence[RunSpec]
    recorded: RunFolder
    clauses: Sequence[str]
    times: int
    keep: bool = False


@final
@dataclass(slots=True)
class Bisected:
    """What the runs have shown so far."""

    systems: Sequence[str]
    clauses: Sequence[str]
    trials: list[Trial] = field(default_factory=list)

    def broken(self) -> Mapping[int, bool | None]:
        """The place of each system that was tried -> whether it broke the promise; None if none of
        its runs decided that."""
        found: dict[int, bool | None] = {}
        for number, system in enumerate(self.systems):
            outcomes = [
                one.verdicts.get(clause)
                for one in self.trials
                if one.system == system
                for clause in self.clauses
            ]
            if outcomes:
                kept = False if Outcome.HOLDS in outcomes else None
                found[number] = True if Outcome.VIOLATED in outcomes else kept
        return found

    def first(self) -> int | None:
        """The place of the first system that breaks the promise, once that is known."""
        known = self.broken()
        breaks = min((n for n, one in known.items() if one), default=None)
        return breaks if breaks is not None and known.get(breaks - 1) is False else None

    def shown(self) -> Trial | None:
        """The run that shows it: of the first system that breaks the promise, so far."""
        breaks = min((n for n, one in self.broken().items() if one), default=-1)
        of = [one for one in self.trials if breaks >= 0 and one.system == self.systems[breaks]]
        return next((one for one in of if breaks_any(one, self.clauses)), None)


def next_to_try(known: Mapping[int, bool | None], count: int) -> int | None:
    """The place of the system to try next, of so many; None if there is none.

    `known`: whether those that were tried broke the promise. Nothing is left to try if one of them
    did not decide it, or the newest keeps it, or the oldest breaks it.
    """
    for end, breaks in ((count - 1, True), (0, False)):
        if end not in known:
            return end
        if known[end] is not breaks:
            return None
    if None in known.values():
        return None
    keeps = max(n for n, one in known.items() if not one)
    breaks_at = min(n for n, one in known.items() if one)
    return (keeps + breaks_at) // 2 if breaks_at - keeps > 1 else None


def breaks_any(trial: Trial, clauses: Collection[str]) -> bool:
    """Whether a run broke any of these clauses."""
    return any(trial.verdicts.get(one) is Outcome.VIOLATED for one in clauses)


def bisect(
    wanted: Bisect,
    plugins: Plugins,
    out: Path,
    report: Callable[[str], None],
    into: Bisected,
) -> None:
    """Conducts the runs, and adds each to `into` at once, so that it outlives an error in a later
    one.

    Raises UsageError before anything is started, for systems that the schedule does not fit, a
    folder without a schedule or no clause; EnvironmentFailed for software that cannot be fetched.
    """
    if not wanted.clauses:
        raise UsageError(
            f"the run in {wanted.recorded.path} broke no promise: name one by --clause"
        )
    specs, planned = followed(wanted.specs, wanted.recorded)
    for spec in specs:
        spec.fetch()
    while (place := next_to_try(into.broken(), len(specs))) is not None:
        for number in range(wanted.times):
            trial = follow(specs[place], plugins, out, number, planned, keep=wanted.keep)
            into.trials.append(trial)
            report(said_of(trial))
            if breaks_any(trial, wanted.clauses) or not trial.started:
                break
