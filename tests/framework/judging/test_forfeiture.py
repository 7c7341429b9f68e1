"""From the event on that takes away what a system stands on, no rule judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest
from msgspec import Struct

from fencepost import (
    Clause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Forfeiture,
    NodeStopped,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    kind_name,
    on,
)
from fencepost.judging.judge import Judge
from fencepost.judging.verdicts import Forfeited, Judgement, Verdict
from fencepost.testing import HistoryBuilder, Outcome

END = RunEnd(complete=True, ended_at_ns=9)


class Said(Struct, frozen=True, tag="test.forfeited.said"):
    """An event of a plugin: a word."""

    word: str


class Lost:
    """All is lost once that is said."""

    kinds: frozenset[type[Struct]] = frozenset({Said})

    def take(self, event: Event) -> Reason | None:
        assert isinstance(event.body, Said)
        if event.body.word == "crash":
            raise ValueError("boom")
        return Reason("its disks were lost") if event.body.word == "lost" else None


@dataclass
class Heard:
    word: str = ""


class Waits(Rule[Heard]):
    """A promise is kept by each word but `broken`. After `open` it waits for an event."""

    state = Heard

    def __init__(
        self, clause: str = "X-1", forfeiture: Callable[[], Forfeiture] | None = None
    ) -> None:
        super().__init__(clause)
        self.forfeiture = forfeiture
        self.ends: list[RunEnd] = []

    @on(Said)
    def _said(self, state: Heard, event: Event, body: Said) -> Findings:
        state.word = body.word
        if body.word == "broken":
            return (Violated(event.ref, Evidence.PEER, "it broke"),)
        return (Exercised(event.ref, Evidence.PEER),) if body.word == "kept" else ()

    def end(self, state: Heard, end: RunEnd) -> Findings:
        self.ends.append(end)
        return (Undecided("it waits for an event"),) if state.word == "open" else ()


CLAUSES = {
    "X-1": Clause("X-1", "seed", (), "It is kept."),
    "X-2": Clause("X-2", "seed", (), "So is this."),
}


def events(*words: str) -> list[Event]:
    h = HistoryBuilder()
    for word in words:
        h.add("p", Said(word))
    return list(h.events())


class Worded(Lost):
    """As forfeitures were before `Reason`: words, empty if nothing is lost."""

    def take(self, event: Event) -> Reason | None:
        return cast(Reason, "")


def judged(*words: str) -> tuple[Verdict, Verdict]:
    """The verdicts on a clause, and on that of a rule which says when all is lost."""
    judging = Judge([Waits(), Waits("X-2", Lost)], CLAUSES, "quorum")
    judging.take(events(*words))
    verdicts = judging.end(END).verdicts
    return verdicts["X-1"], verdicts["X-2"]


def test_what_comes_before_is_judged_and_what_comes_after_is_not() -> None:
    for verdict in judged("kept", "lost", "broken", "kept"):
        assert (verdict.verdict, verdict.exercised, verdict.excused) == (Outcome.HOLDS, 1, 1)
        assert verdict.reason == "1 excused: not judged from then on: its disks were lost"
    for verdict in judged("broken", "lost"):
        assert verdict.verdict is Outcome.VIOLATED


def test_what_waited_for_an_event_is_excused() -> None:
    assert judged("open")[0].verdict is Outcome.UNKNOWN
    for verdict in judged("open", "lost", "kept"):
        assert (verdict.verdict, verdict.excused) == (Outcome.NOT_EXERCISED, 1)


def test_the_run_ends_for_rules_where_all_was_lost() -> None:
    rule = Waits("X-2", Lost)
    judging = Judge([rule], CLAUSES, "quorum")
    several = events("kept", "lost", "kept")
    judging.take(several)
    judging.end(END)
    assert rule.ends == [replace(END, complete=False, ended_at_ns=several[1].at_ns)]


CUT_SHORT = RunEnd(complete=False, ended_at_ns=9)


def judgement(*bodies: Struct, end: RunEnd = CUT_SHORT) -> Judgement:
    h = HistoryBuilder()
    for body in bodies:
        h.add("broker-1#1", body)
    judging = Judge([Waits(), Waits("X-2", Lost)], CLAUSES, "quorum")
    judging.take(h.events())
    return judging.end(end)


def exited(process: str = "broker-1#1", *, expected: bool = False) -> ProcessExited:
    return ProcessExited(ended=process, exit_code=4, signal=0, expected=expected)


def test_a_run_that_is_cut_short_after_all_was_lost_is_decided() -> None:
    found = judgement(Said("kept"), Said("lost"), NodeStopped(reason="x"), exited())
    assert [one.verdict for one in found.verdicts.values()] == [Outcome.HOLDS] * 2
    assert found.forfeited == Forfeited("its disks were lost", ("broker-1#1",), 1_001_000_000)


@pytest.mark.parametrize(
    "end",
    [
        replace(CUT_SHORT, damage=("a line is torn",)),
        replace(CUT_SHORT, gaps=((kind_name(Said), "what was said first"),)),
    ],
)
def test_a_damaged_history_decides_nothing_though_all_was_lost(end: RunEnd) -> None:
    found = judgement(Said("kept"), Said("lost"), end=end)
    assert [one.verdict for one in found.verdicts.values()] == [Outcome.UNKNOWN] * 2


@pytest.mark.parametrize(
    "bodies",
    [
        (Said("lost"), exited()),  # it crashed
        (Said("lost"), NodeStopped(reason="x"), exited(expected=True)),
        (Said("lost"), NodeStopped(reason="x"), exited("broker-2#1")),
        (NodeStopped(reason="x"), exited(), Said("lost")),
    ],
)
def test_only_a_node_that_says_why_it_ends_once_all_was_lost_is_excused(
    bodies: tuple[Struct, ...],
) -> None:
    forfeited = judgement(*bodies).forfeited
    assert forfeited is not None
    assert (forfeited.reason, forfeited.ended) == ("its disks were lost", ())


def test_a_run_of_which_nothing_was_lost_is_not_forfeited() -> None:
    assert judgement(Said("kept"), NodeStopped(reason="x"), exited()).forfeited is None


def test_a_clause_of_which_nothing_was_judged_has_no_excuse() -> None:
    for verdict in judged("lost", "broken"):
        assert (verdict.verdict, verdict.excused) == (Outcome.NOT_EXERCISED, 0)


def test_a_forfeiture_that_crashes_stops_its_own_rule_alone() -> None:
    kept, crashed = judged("kept", "crash", "lost", "broken")
    assert kept.verdict is Outcome.VIOLATED
    assert crashed.verdict is Outcome.UNKNOWN


def test_a_forfeiture_that_returns_words_stops_its_own_rule_alone() -> None:
    """Its empty text, nothing is lost, forfeited the run from the first event on."""
    judging = Judge([Waits(), Waits("X-2", Worded)], CLAUSES, "quorum")
    judging.take(events("kept", "broken"))
    found = judging.end(END)
    assert found.forfeited is None
    outcomes = [found.verdicts[clause].verdict for clause in ("X-1", "X-2")]
    assert outcomes == [Outcome.VIOLATED, Outcome.UNKNOWN]


@pytest.mark.parametrize("parts", [1, 2])
def test_all_events_are_read_to_their_end(parts: int) -> None:
    """The judge passes events on to what writes them, and may get them in parts."""
    read = []

    def passing(several: Sequence[Event]) -> Iterator[Event]:
        for one in several:
            read.append(one)
            yield one

    judging = Judge([Waits("X-2", Lost)], CLAUSES, "quorum")
    all_events = events("kept", "lost", "kept", "broken")
    for _ in range(parts):
        judging.take(passing(all_events))
    assert read == all_events * parts
    assert judging.end(END).verdicts["X-2"].exercised == 1
