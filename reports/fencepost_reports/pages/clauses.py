"""What the page of a clause says: its promise, how it is judged, and its runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fencepost import Clause, Rule
from fencepost.reporting import Outcome, Promises, docstring
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.overview import WORST, Overview, Subject


class Judge(NamedTuple):
    """A rule: its name, and how it judges, in paragraphs."""

    name: str
    how: Sequence[str]


class Tested(NamedTuple):
    """A test that exercised a clause, in so many runs."""

    test: str
    runs: int


class Verdicts(NamedTuple):
    """The verdicts on a clause in the runs of a subject: each, the worst first, with its runs."""

    subject: Subject
    counts: Sequence[tuple[str, int]]


@final
@dataclass(frozen=True, slots=True)
class ClausePage:
    """All of it. `promise` is None for a clause of no installed plugin."""

    id: str
    promise: Clause | None
    rules: Sequence[Judge]
    verdicts: Sequence[Verdicts]
    violated: Sequence[RunSummary]
    undecided: Sequence[RunSummary]
    tests: Sequence[Tested]


def clause_pages(all: Overview, promises: Promises) -> Mapping[str, ClausePage]:
    """The contents of the page of each clause that a run has a verdict on, by its place."""
    rules: dict[str, list[Judge]] = {}
    for rule in promises.rules:
        rules.setdefault(rule.clause, []).append(_judge(rule))
    return {
        clause.page: ClausePage(
            id=clause.id,
            promise=promises.clauses.get(clause.id),
            rules=rules.get(clause.id, ()),
            verdicts=_verdicts(clause.counts),
            violated=clause.violated,
            undecided=[run for run in all.runs if run.verdicts.get(clause.id) == Outcome.UNKNOWN],
            tests=_tests(clause.id, all.runs),
        )
        for clause in all.clauses
    }


def _judge(rule: Rule[Any]) -> Judge:
    kind = type(rule)
    text = docstring(kind).removeprefix(f"{rule.clause}. ")
    paragraphs = [" ".join(one.split()) for one in text.split("\n\n")]
    return Judge(f"{kind.__module__}.{kind.__qualname__}", [one for one in paragraphs if one])


def _verdicts(counts: Mapping[Subject, Counter[str]]) -> Sequence[Verdicts]:
    return [
        Verdicts(subject, [(verdict, found[verdict]) for verdict in WORST if found[verdict]])
        for subject, found in sorted(counts.items())
    ]


def _tests(clause: str, runs: Iterable[RunSummary]) -> Sequence[Tested]:
    """The tests in whose runs it was exercised, those of most runs first."""
    shown = (Outcome.HOLDS, Outcome.VIOLATED)
    found = Counter(
        run.about.test
        for run in runs
        if run.about is not None and run.about.test and run.verdicts.get(clause) in shown
    )
    return [Tested(*one) for one in sorted(found.items(), key=lambda one: (-one[1], one[0]))]
