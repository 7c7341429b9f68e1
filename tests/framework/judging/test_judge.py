"""The judge: verdicts from findings, and rules that crash without harm to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace as replace_fields

from fencepost import (
    MS,
    Cause,
    Clause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultInjected,
    FaultTookEffect,
    Finding,
    Findings,
    Key,
    LinkFailed,
    PhaseStarted,
    Rule,
    RunEnd,
    Shared,
    Stalled,
    Undecided,
    UsageError,
    Violated,
    on,
)
from fencepost import judged as deadlines
from fencepost.judging.judge import Judge
from fencepost.judging.verdicts import VIOLATIONS_KEPT, Tally, read_verdicts, write_verdicts
from fencepost.testing import HistoryBuilder, Judgement, Outcome, judge

AT = Cause("p", 0)


class Said(Struct, frozen=True, tag="test.said"):
    """An event of a plugin: a word, about a subject."""

    word: str
    subject: str = "a"


@dataclass
class Count:
    words: int = 0


class Listens(Rule[Count]):
    """A rule whose findings are named by the events."""

    clause = "X-1"
    state = Count

    def __init__(self, clause: str = "X-1", reads: frozenset[type[Struct]] = frozenset()) -> None:
        super().__init__(clause)
        self.reads = reads
        self.seen: list[str] = []

    @staticmethod
    def keys(event: Event) -> Iterable[Key]:
        assert isinstance(event.body, Said)
        if event.body.word == "keyless":
            raise LookupError("no key")
        return ((event.body.subject,),)

    @on(Said)
    def _said(self, state: Count, event: Event, body: Said) -> Findings:
        word = body.word
        self.seen.append(word)
        findings: dict[str, Finding] = {
            "self": Exercised(event.ref, Evidence.SELF),
            "peer": Exercised(event.ref, Evidence.PEER),
            "broken": Violated(event.ref, Evidence.PEER, "it broke"),
            "open": Undecided("the evidence ends here"),
            "excused": Excused(
                event.ref, "p was late while pause-1 acted upon it", why={"fault": "pause-1"}
            ),
        }
        if word == "crash":
            raise ValueError("boom")
        state.words += 1
        return (findings[word],) if word in findings else ()

    def end(self, state: Count, end: RunEnd) -> Findings:
        return (Violated(AT, Evidence.SELF, "three"),) if state.words == 3 else ()


CLAUSES = {
    "X-1": Clause("X-1", "seed", ("quorum",), "It is kept."),
    "X-2": Clause("X-2", "seed", (), "So is this."),
}


def judged(*words: str, complete: bool = True, plane: str = "quorum") -> Judgement:
    h = HistoryBuilder()
    for word in words:
        h.add("p", Said(word))
    return judge(h.events(), [Listens()], CLAUSES, h.end(complete), plane)


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ((), Outcome.NOT_EXERCISED),
        (("other",), Outcome.NOT_EXERCISED),
        (("excused",), Outcome.NOT_EXERCISED),
        (("self", "excused"), Outcome.HOLDS),
        (("self",), Outcome.HOLDS),
        (("self", "open"), Outcome.UNKNOWN),
        (("self", "open", "broken", "crash"), Outcome.VIOLATED),
        (("self", "crash"), Outcome.UNKNOWN),
        (("keyless",), Outcome.UNKNOWN),
        (("other", "other", "other"), Outcome.VIOLATED),
    ],
)
def test_findings_make_a_verdict(words: tuple[str, ...], outcome: Outcome) -> None:
    assert judged(*words).verdicts["X-1"].verdict is outcome


class Stateless(Rule[None]):
    """It keeps nothing, and waits for an event at the end."""

    clause = "X-1"

    @on(Said)
    def _said(self, state: None, event: Event, body: Said) -> Findings:
        return ()

    def end(self, state: None, end: RunEnd) -> Findings:
        return (Undecided("the evidence ends here"),)


def test_none_is_a_state_as_any_other() -> None:
    h = HistoryBuilder()
    h.add("p", Said("other"))
    h.add("p", Said("other"))
    verdict = judge(h.events(), [Stateless()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert (verdict.verdict, verdict.reason) == (Outcome.UNKNOWN, "the evidence ends here")


@pytest.mark.parametrize("word", ["self", "broken", "other"])
def test_a_verdict_counts_what_was_excused_and_names_the_fault(word: str) -> None:
    verdict = judged("excused", word, "excused").verdicts["X-1"]
    assert verdict.excused == 2
    assert verdict.reason == "2 excused: p was late while pause-1 acted upon it"


@pytest.mark.parametrize(
    ("words", "outcome"), [(("self",), Outcome.UNKNOWN), (("broken",), Outcome.VIOLATED)]
)
def test_a_history_that_is_not_complete_shows_only_what_was_broken(
    words: tuple[str, ...], outcome: Outcome
) -> None:
    assert judged(*words, complete=False).verdicts["X-1"].verdict is outcome


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ((), Outcome.UNKNOWN),
        (("self",), Outcome.HOLDS),
        (("self", "open"), Outcome.UNKNOWN),
        (("self", "crash"), Outcome.UNKNOWN),
        (("self", "broken"), Outcome.VIOLATED),
        (("excused",), Outcome.UNKNOWN),
    ],
)
def test_a_run_that_is_cut_short_keeps_what_waits_for_nothing(
    words: tuple[str, ...], outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for word in words:
        h.add("p", Said(word))
    cut_short = RunEnd(False, 81_300 * MS, began_at_ns=1_000 * MS)
    verdict = judge(h.events(), [Listens()], CLAUSES, cut_short, "quorum").verdicts["X-1"]
    assert verdict.verdict is outcome
    assert ("until 80.3 s" in verdict.reason) is (outcome is Outcome.HOLDS)


def test_missing_events_of_one_kind_leave_open_what_rules_read_of_them() -> None:
    h = HistoryBuilder()
    h.add("p", Said("self"))
    end = replace(h.end(), gaps=(("test.said", "a word was not heard"),))

    class Phases(Rule[None]):
        clause = "X-1"

        @on(PhaseStarted)
        def _began(self, state: None, event: Event, body: PhaseStarted) -> Findings:
            return ()

    rules = [Phases(), Listens("X-2")]
    verdicts = judge(h.events(), rules, CLAUSES, end, "quorum").verdicts
    assert verdicts["X-1"].verdict is Outcome.NOT_EXERCISED
    assert verdicts["X-2"].verdict is Outcome.UNKNOWN
    assert verdicts["X-2"].reason == "the history is not complete: a word was not heard"


def test_the_strongest_evidence_is_shown_and_all_are_counted() -> None:
    verdict = judged("self", "peer").verdicts["X-1"]
    assert (verdict.exercised, verdict.evidence) == (2, Evidence.PEER)


def test_a_clause_of_another_plane_is_not_applicable() -> None:
    assert judged("broken", plane="kraft").verdicts["X-1"].verdict is Outcome.NOT_APPLICABLE


def test_a_clause_without_planes_binds_every_system() -> None:
    found = judge([], [Listens("X-2")], CLAUSES, RunEnd(True, 0), "kraft")
    assert found.verdicts["X-2"].verdict is Outcome.NOT_EXERCISED


def test_a_crashed_rule_is_named_and_its_neighbours_live() -> None:
    h = HistoryBuilder()
    for word in ("crash", "self", "crash"):
        h.add("p", Said(word))
    broken, neighbour = Listens("X-1"), Listens("X-2", frozenset({PhaseStarted}))
    events = [e for e in h.events() if isinstance(e.body, Said) and e.body.word != "crash"]
    found = judge(h.events(), [broken], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert "Listens failed on test.said p@0: ValueError: boom" in found.reason
    assert broken.seen == ["crash"], "it is given nothing after it has failed"
    assert judge(events, [neighbour], CLAUSES, h.end(), "quorum").verdicts["X-2"].exercised == 1


def test_what_a_rule_finds_of_an_event_after_it_has_crashed_on_it_does_not_count() -> None:
    class TwoKeys(Rule[Count]):
        clause = "X-1"

        @staticmethod
        def keys(event: Event) -> Iterable[Key]:
            return (("first",), ("second",))

        def start(self, key: Key, shared: Shared) -> Count:
            return Count(words=len(str(key[0])))

        @on(Said)
        def _said(self, state: Count, event: Event, body: Said) -> Findings:
            if state.words == len("first"):
                raise ValueError("boom")
            return (Violated(event.ref, Evidence.PEER, "it broke"),)

    h = HistoryBuilder()
    h.add("p", Said("one"))
    found = judge(h.events(), [TwoKeys()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert (found.verdict, found.violated) == (Outcome.UNKNOWN, 0)


def test_rules_that_share_their_keys_are_asked_once() -> None:
    asked: list[Event] = []

    def by_subject(event: Event) -> Iterable[Key]:
        asked.append(event)
        return ((event.kind,),)

    class Shares(Rule[Count]):
        keys = staticmethod(by_subject)
        state = Count

        def __init__(self, clause: str) -> None:
            super().__init__(clause)
            self.seen: list[int] = []

        @on(Said)
        def _said(self, state: Count, event: Event, body: Said) -> Findings:
            self.seen.append(state.words)
            state.words += 1
            return ()

    h = HistoryBuilder()
    h.add("p", Said("one"))
    h.add("p", Said("two"))
    one, two = Shares("X-1"), Shares("X-2")
    judge(h.events(), [one, two], CLAUSES, h.end(), "quorum")
    assert (len(asked), one.seen, two.seen) == (2, [0, 1], [0, 1])


def test_one_of_two_rules_that_share_their_keys_may_crash() -> None:
    h = HistoryBuilder()
    h.add("p", Said("crash"))
    h.add("p", Said("self"))
    crashing, sound = Listens("X-1"), Listens("X-2")

    class Sound(Rule[None]):
        clause = "X-2"

        @on(Said)
        def _said(self, state: None, event: Event, body: Said) -> Findings:
            return (Exercised(event.ref, Evidence.SELF),)

    found = judge(h.events(), [crashing, Sound()], CLAUSES, h.end(), "quorum").verdicts
    assert found["X-1"].verdict is Outcome.UNKNOWN
    assert (found["X-2"].verdict, found["X-2"].exercised) == (Outcome.HOLDS, 2)
    assert sound.seen == []


@pytest.mark.parametrize(
    ("receipt", "word", "outcome"),
    [
        (True, "other", Outcome.NOT_EXERCISED),
        (False, "other", Outcome.UNKNOWN),
        (False, "self", Outcome.HOLDS),
        (False, "broken", Outcome.VIOLATED),
    ],
)
def test_a_fault_that_missed_makes_clauses_unknown_that_nothing_else_exercised(
    receipt: bool, word: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(
        "harness",
        FaultInjected(
            fault_id="cut-1",
            fault="cut",
            targets=("broker-1",),
            receipt=receipt,
            evidence="no link was used",
        ),
    )
    h.add("p", Said(word))
    found = judge(h.events(), [Listens()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert found.verdict is outcome
    assert ("cut-1" in found.reason) is (outcome is Outcome.UNKNOWN)


def test_a_fault_whose_receipt_comes_later_did_not_miss() -> None:
    h = HistoryBuilder()
    for fault_id in ("hold-1", "hold-2"):
        h.add(
            "harness",
            FaultInjected(
                fault_id=fault_id,
                fault="hold",
                targets=("broker-1",),
                receipt=False,
                evidence="nothing matched",
            ),
        )
    h.add("harness", FaultTookEffect(fault_id="hold-1", evidence="1 taken"))
    found = judge(h.events(), [Listens()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert found.verdict is Outcome.UNKNOWN
    assert "hold-2" in found.reason
    assert "hold-1" not in found.reason


def test_the_first_violations_are_kept_and_all_are_counted() -> None:
    found = judged(*["broken"] * (VIOLATIONS_KEPT + 5)).verdicts["X-1"]
    assert found.violated == VIOLATIONS_KEPT + 5
    assert [one.at.seq for one in found.violations] == list(range(VIOLATIONS_KEPT))


def test_a_violation_is_unknown_if_a_link_may_have_failed_before_it_was_found() -> None:
    for broken_at, outcome in ((0, Outcome.VIOLATED), (2, Outcome.UNKNOWN), (4, Outcome.UNKNOWN)):
        h, since_ns = HistoryBuilder(), 0
        for step in range(5):
            h.add("p", Said("broken" if step == broken_at else "self"))
            since_ns = h.now_ns if step == 1 else since_ns
            if step == 3:
                h.add("harness", LinkFailed(link="a -> b", what="it is gone", since_ns=since_ns))
        found = judge(h.events(), [Listens()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
        assert found.verdict is outcome
        assert found.violated == (outcome is Outcome.VIOLATED)
        assert ("a -> b failed without a fault" in found.reason) is (outcome is Outcome.UNKNOWN)


@pytest.mark.parametrize(("late_ms", "outcome"), [(1, Outcome.VIOLATED), (9, Outcome.UNKNOWN)])
def test_a_deadline_that_passed_before_a_link_failed_stays_violated(
    late_ms: int, outcome: Outcome
) -> None:
    class Slow(Listens):
        def end(self, state: Count, end: RunEnd) -> Findings:
            to_ns = h.events()[0].at_ns + late_ms * 1_000_000
            broken = Violated(AT, Evidence.SELF, "it came too late")
            late = Deadline(broken, ("p",), to_ns - 10, to_ns, bound_ns=1, omission=False)
            return deadlines([late], end)

    h = HistoryBuilder()
    h.add("p", Said("self"))
    failed = LinkFailed(link="a -> b", what="it is gone", since_ns=h.after(4).now_ns)
    h.after(20).add("harness", failed)
    found = judge(h.events(), [Slow()], CLAUSES, h.end(), "quorum").verdicts["X-1"]
    assert found.verdict is outcome


def test_tallies_merge_to_what_one_would_have_been() -> None:
    one, two, both = Tally(), Tally(), Tally()
    for position in range(30):
        part = two if position % 3 else one
        for tally in (part, both):
            tally.add(Violated(Cause("p", position), Evidence.SELF, "x"), position)
            tally.add(Exercised(Cause("p", position), Evidence.SELF), position)
            tally.add(Excused(Cause("p", position), "x"), position)
    one.merge(two)
    assert one == both


def test_events_may_come_in_parts_and_the_end_from_a_function() -> None:
    h = HistoryBuilder()
    for _ in range(3):
        h.add("p", Said("self"))
    judging = Judge([Listens()], CLAUSES, "quorum")
    for event in h.events():
        judging.take([event])
    judging.take([])
    assert judging.end(h.end()) == judge(h.events(), [Listens()], CLAUSES, h.end, "quorum")


def test_a_rule_for_a_clause_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no clause named 'X-11'; did you mean 'X-1'"):
        Judge([Listens("X-11")], CLAUSES, "quorum")


def test_verdicts_are_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    found = judged("self", "broken").verdicts
    write_verdicts(path, found)
    assert read_verdicts(path) == found
    written = msgspec.json.decode(path.read_bytes())["X-1"]
    assert (written["evidence"], written["violations"][0]["evidence"]) == ("peer", "peer")
    path.write_text("{}x")
    with pytest.raises(UsageError, match="cannot be read"):
        read_verdicts(path)
    path.unlink()
    with pytest.raises(UsageError, match="was not judged"):
        read_verdicts(path)


def test_verdicts_keep_what_was_not_judged_with_its_facts(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    found = judged("excused", "open", "excused").verdicts
    verdict = found["X-1"]
    assert [one.why for one in verdict.excuses] == [{"fault": "pause-1"}]
    assert [one.message for one in verdict.undecided] == ["the evidence ends here"]
    write_verdicts(path, found)
    assert read_verdicts(path) == found
    written = msgspec.json.decode(path.read_bytes())
    for name in ("excuses", "undecided"):
        del written["X-1"][name]
    path.write_bytes(msgspec.json.encode(written))
    before = replace_fields(verdict, excuses=(), undecided=())
    assert read_verdicts(path) == {**found, "X-1": before}, "of a version that kept none"


def test_a_history_by_hand_numbers_each_process_and_lists_its_stalls() -> None:
    h = HistoryBuilder(start_ms=5)
    h.add("p", Said("one"))
    h.add("q", Said("one"))
    stalled = h.after(10).add("p", Stalled(stalled_ns=4_000_000))
    assert [(e.process, e.node_seq, e.at_ns) for e in h.events()] == [
        ("p", 0, 5_000_000),
        ("q", 0, 6_000_000),
        ("p", 1, 17_000_000),
    ]
    assert h.end().stalls == (("p", stalled.at_ns - 4_000_000, stalled.at_ns),)
    assert not h.end(complete=False).complete
