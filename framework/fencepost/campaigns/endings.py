"""How commands about many runs end: what held in one line, the commands to go on with, and the
reason for the exit code. The same words everywhere, so that a nightly reader finds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN


def counted(number: int, one: str, several: str = "") -> str:
    """`1 clause`, `3 clauses`."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def what_held(verdicts: Iterable[Mapping[str, Outcome]], where: str = "") -> str:
    """How many clauses held wherever they were exercised, and what became of the others, in one
    line; empty if there is no clause.

    `verdicts` are those of the runs that count, clause -> outcome; clauses that do not apply are
    left out.
    """
    outcomes: dict[str, set[Outcome]] = {}
    for one in verdicts:
        for clause, outcome in one.items():
            outcomes.setdefault(clause, set()).add(outcome)
    applying = {c: found for c, found in outcomes.items() if found != {Outcome.NOT_APPLICABLE}}
    if not applying:
        return ""
    words = {
        Outcome.VIOLATED: "violated",
        Outcome.UNKNOWN: "undecided",
        Outcome.HOLDS: "held",
        Outcome.NOT_EXERCISED: "never exercised",
    }
    became: dict[str, list[str]] = {word: [] for word in words.values()}
    for clause, found in applying.items():
        became[next(word for outcome, word in words.items() if outcome in found)].append(clause)
    held = len(became.pop("held"))
    others = [f"; {word}: {few(clauses)}" for word, clauses in became.items() if clauses]
    return "".join([f"{held} of {counted(len(applying), 'clause')} held{where}", *others])


def undecided(reasons: Mapping[str, str]) -> Iterator[str]:
    """Why clauses are undecided, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for clause, why in reasons.items():
        by_reason.setdefault(why, []).append(clause)
    for why, clauses in by_reason.items():
        yield f"undecided: {few(clauses)}: {why}"


def violated(new: int, known: int = 0, expected: int = 0) -> Sequence[str]:
    """How many clauses were violated, and which of them are no news; the reasons of `exit_reason`
    that are verdicts."""
    numbers = {"anew": new, "as known": known, "as expected": expected}
    return [f"{counted(n, 'clause')} violated {how}" for how, n in numbers.items() if n]


def exit_reason(code: int, *reasons: str) -> str:
    """Why a command ends with its exit code: `1 clause violated anew, 2 undecided: exit code 1`.
    Empty reasons are left out; only a command that ends with 0 may have none."""
    given = ", ".join(filter(None, reasons))
    assert given or code == EXIT_CLEAN, f"exit code {code} has no reason"
    return f"{given or 'nothing new'}: exit code {code}"


def go_on(run: str) -> str:
    """The commands that say why a run ended as it did, and that try it again."""
    return f"why: fencepost report {run}      again: fencepost replay {run}"


def in_ranges(numbers: Collection[int]) -> str:
    """`3 to 5, 9` of 3, 4, 5 and 9."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(
        f"{one[0]} to {one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in parts
    )


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
