"""What a rule may have: handlers, objects that rules share, keepers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from fencepost import (
    Cause,
    Clause,
    Event,
    Evidence,
    Excused,
    Exercised,
    Findings,
    Held,
    Key,
    Rule,
    RunEnd,
    Shared,
    Violated,
    on,
    whole_run,
)
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost.testing.kit import findings_of

AT = Cause("p", 0)
CLAUSES = {name: Clause(name, "seed", (), "It is kept.") for name in ("X-1", "X-2")}


class Said(Struct, frozen=True, tag="ability.said"):
    word: str
    subject: str = "a"


class Sung(Struct, frozen=True, tag="ability.sung"):
    subject: str = "a"


@dataclass
class Words:
    """The words of a subject."""

    kinds: ClassVar[frozenset[type[Struct]]] = frozenset({Said})
    said: list[str] = field(default_factory=list)

    def take(self, event: Event, body: Said) -> None:
        if body.word == "fold":
            raise ValueError("boom")
        self.said.append(body.word)


def by_subject(event: Event) -> Iterable[Key]:
    body: Any = event.body
    return ((body.subject,),)


class Counts(Rule[Words]):
    """Finds a violation at the end: the words of a subject."""

    clause = "X-1"
    reads = frozenset({Sung})
    keys = staticmethod(by_subject)
    folds = (Words,)

    def start(self, key: Key, shared: Shared) -> Words:
        words: Words = shared[Words]
        return words

    @on(Said)
    def _said(self, state: Words, event: Event, body: Said) -> Findings:
        if body.word == "crash":
            raise ValueError("boom")
        return (Exercised(event.ref, Evidence.PEER),) if body.word == "peer" else ()

    def end(self, state: Words, end: RunEnd) -> Findings:
        return (Violated(AT, Evidence.SELF, " ".join(state.said)),) if state.said else ()


class Quiet:
    """Keeps what is held for a subject until its last word, `bye`; then all begins anew."""

    def __init__(self, rules: Sequence[Rule[Any]], run: Shared) -> None:
        self._rules = len(rules)
        self._held: dict[str, Held] = {}
        self._quiet: set[str] = set()

    def find(self, event: Event) -> tuple[Held, ...]:
        body: Any = event.body
        if isinstance(body, Said) and body.word == "bye":
            self._held.pop(body.subject, None)
            self._quiet.add(body.subject)
            return ()
        held = self._held.setdefault(body.subject, Held((body.subject,), self._rules))
        return (held,)

    def excused(self) -> Iterable[tuple[int, Excused]]:
        return [
            (0, Excused(AT, f"{subject} was quiet", {"subject": subject}))
            for subject in sorted(self._quiet)
        ]

    def held(self) -> Iterable[Sequence[Held]]:
        return [(held,) for held in self._held.values()]


def since_bye(clause: str) -> Rule[Words]:
    """The same, with a keeper."""
    return Counts(clause).kept(Quiet, frozenset())


def history(*words: str) -> HistoryBuilder:
    h = HistoryBuilder()
    for word in words:
        subject, _, said = word.rpartition(":")
        h.add("p", Said(said, subject or "a"))
        h.add("p", Sung(subject or "a"))
    return h


def messages(h: HistoryBuilder, *rules: Rule[Any]) -> dict[str, list[str]]:
    verdicts = judge(h.events(), rules, CLAUSES, h.end(True), "quorum").verdicts
    return {name: [one.message for one in v.violations] for name, v in verdicts.items()}


def test_a_handler_changes_the_state_and_returns_findings() -> None:
    h = history("one", "peer", "two")
    assert messages(h, Counts()) == {"X-1": ["one peer two"]}
    found = findings_of(Counts(), h.events(), h.end(True))
    assert [type(one) for one in found] == [Exercised, Violated]


def test_an_event_of_a_kind_without_a_handler_begins_no_state() -> None:
    h = HistoryBuilder()
    h.add("p", Sung())
    verdict = judge(h.events(), [Counts()], CLAUSES, h.end(True), "quorum").verdicts["X-1"]
    assert verdict.verdict is Outcome.NOT_EXERCISED


def test_a_handler_that_raises_stops_its_rule() -> None:
    h = history("one", "crash", "two")
    verdict = judge(h.events(), [Counts()], CLAUSES, h.end(True), "quorum").verdicts["X-1"]
    assert verdict.verdict is Outcome.UNKNOWN
    said, _, place = verdict.reason.partition(" (")
    assert said == "the rule Counts failed on ability.said p@2: ValueError: boom"
    assert place.startswith(f"{Path(__file__).name}, line ")


class Listens(Rule[Words]):
    """Handles nothing: what it knows at the end, its fold has taken."""

    clause = "X-2"
    keys = staticmethod(by_subject)
    folds = (Words,)

    def start(self, key: Key, shared: Shared) -> Words:
        words: Words = shared[Words]
        return words

    def end(self, state: Words, end: RunEnd) -> Findings:
        return (Violated(AT, Evidence.SELF, " ".join(state.said)),)


def test_a_rule_begins_with_the_first_event_that_its_fold_takes() -> None:
    assert Listens().kinds == {Said}
    assert messages(history("one", "two"), Listens()) == {"X-2": ["one two"]}
    h = HistoryBuilder()
    h.add("p", Sung())
    assert messages(h, Listens()) == {"X-2": []}


def test_a_fold_that_raises_stops_the_rules_that_name_it() -> None:
    class Alone(Counts):
        folds = ()

        def start(self, key: Key, shared: Shared) -> Words:
            return Words()

    h = history("one", "fold", "peer")
    rules = (Counts(), Listens(), Alone("X-3"))
    clauses = {**CLAUSES, "X-3": Clause("X-3", "seed", (), "It is kept.")}
    verdicts = judge(h.events(), rules, clauses, h.end(True), "quorum").verdicts
    found = {name: one.verdict for name, one in verdicts.items()}
    unknown = Outcome.UNKNOWN
    assert found == {"X-1": unknown, "X-2": unknown, "X-3": Outcome.HOLDS}


def test_rules_of_a_key_fold_an_event_once() -> None:
    h = history("one", "two", "b:three")
    each = {"X-1": ["one two", "three"], "X-2": ["one two", "three"]}
    found = messages(h, Counts(), Counts("X-2"))
    assert {name: sorted(several) for name, several in found.items()} == {
        name: sorted(several) for name, several in each.items()
    }


def test_a_keeper_finds_the_states_of_all_rules_that_name_it() -> None:
    h = history("one", "bye", "two", "b:three", "b:bye")
    rules = (since_bye("X-1"), since_bye("X-2"))
    assert messages(h, *rules) == {"X-1": ["two"], "X-2": ["two"]}


class WholeRun(Listens):
    """The words of the whole run."""

    keys = staticmethod(whole_run)


class Loud(Quiet):
    """The same for the one subject that spoke first, whatever a fold of the run has taken."""

    def __init__(self, rules: Sequence[Rule[Any]], run: Shared) -> None:
        super().__init__(rules, run)
        self._words: Words = run[Words]

    def find(self, event: Event) -> tuple[Held, ...]:
        return super().find(event) if len(self._words.said) == 1 else ()


def test_a_keeper_asks_what_is_folded_about_the_whole_run() -> None:
    """It has taken the event before the keeper sees it, and it is the object of the rules about
    the whole run. Its kinds are read by the rules that are kept."""
    kept = Counts("X-1").kept(Loud, frozenset(), (Words,))
    assert kept.kinds == {Said, Sung}
    h = history("one", "two", "b:three")
    assert messages(h, kept) == {"X-1": ["one"]}
    assert messages(h, kept, WholeRun()) == {"X-1": ["one"], "X-2": ["one two three"]}


def test_a_fold_of_the_run_that_raises_stops_the_rules_whose_keeper_asks_it() -> None:
    kept = Counts("X-1").kept(Loud, frozenset(), (Words,))
    h = history("one", "fold", "peer")
    verdicts = judge(h.events(), (kept, WholeRun()), CLAUSES, h.end(True), "quorum").verdicts
    assert {one.verdict for one in verdicts.values()} == {Outcome.UNKNOWN}


def test_a_keeper_excuses_what_it_stopped_to_judge() -> None:
    """By the number of the rule."""
    h = history("one", "bye", "b:three", "b:bye")
    rules = (since_bye("X-1"), since_bye("X-2"))
    verdicts = judge(h.events(), rules, CLAUSES, h.end(True), "quorum").verdicts
    assert [verdicts[name].excused for name in ("X-1", "X-2")] == [2, 0]
    assert [one.facts["subject"] for one in verdicts["X-1"].excuses] == ["a", "b"]


def test_a_subclass_adds_kinds_to_those_of_its_base() -> None:
    class Sings(Counts):
        @on(Sung)
        def _sung(self, state: Words, event: Event, body: Sung) -> Findings:
            state.said.append("la")
            return ()

    assert messages(history("one"), Sings()) == {"X-1": ["one la"]}


def test_two_methods_for_one_kind_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="Twice handles Said twice"):

        class Twice(Rule[None]):
            @on(Said)
            def _one(self, state: None, event: Event, body: Said) -> Findings:
                return ()

            @on(Sung, Said)
            def _other(self, state: None, event: Event, body: Struct) -> Findings:
                return ()
