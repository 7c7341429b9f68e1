"""What a violation is about: facts, and the sentence that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import (
    Cause,
    Evidence,
    Excused,
    Facts,
    Reason,
    Scope,
    Undecided,
    process_scope,
    slot_scope,
    violated,
)
from fencepost.judging.about import scopes_of, sentence_of
from fencepost.judging.verdicts import Broken, Outcome, Verdict, read_verdicts, write_verdicts

FACTS: Facts = {
    "process": process_scope("server-1#2"),
    "slot": slot_scope("server-1"),
    "leases": (Scope("lease", "7"), Scope("lease", "8")),
    "term": 17,
    "share": 0.5,
    "error": "{busy}",
    "early": True,
    "members": (1, 2),
    "none": (),
    "since_ns": 5_200_000_000,
}


def test_a_sentence_is_made_of_the_facts_that_its_template_names() -> None:
    template = "{process} of {slot} held {leases} in {term}: {error} after {since_ns}, {members}"
    assert sentence_of(template, FACTS) == (
        "server-1#2 of server-1 held [7, 8] in 17: {busy} after 5.2 s, [1, 2]"
    )
    with pytest.raises(KeyError, match="ter"):
        sentence_of("{ter}", FACTS)


def test_a_reason_has_the_facts_of_the_one_that_it_names() -> None:
    cut = Reason.of("{fault} cut off {process}", fault="cut-1", process=process_scope("server-2#1"))
    elected = cut.within("{controller} led as {why}", controller=process_scope("server-3#1"))
    assert elected.words == "server-3#1 led as cut-1 cut off server-2#1"
    assert elected.facts == {**cut.facts, "controller": process_scope("server-3#1")}


def test_what_is_not_judged_keeps_the_facts_of_the_violation_and_of_the_reason_apart() -> None:
    """Both may name a process, and not the same one."""
    late = violated(
        Cause("server-1#2", 7), Evidence.PEER, "{process} was late", process=process_scope("a#1")
    )
    cut = Reason.of("{fault} stopped {process}", fault="pause-1", process=process_scope("b#1"))
    for found in (Excused.of(late, cut), Undecided.of(late, cut)):
        assert (found.at, found.message) == (late.at, "a#1 was late; pause-1 stopped b#1")
        assert (found.facts, found.why) == (late.facts, cut.facts)
    assert Undecided.of(late) == Undecided(late.message, late.at, facts=late.facts)
    assert Undecided.since(cut) == Undecided(cut.words, why=cut.facts)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{sentinel} names {master} in {epoch}", "sentinel-2 names redis 1 in 7"),
        ("{sentinel} names Redis {master}", "sentinel-2 names Redis 1"),
        ("{sentinel} names redis-{master}", "sentinel-2 names redis-1"),
        ("the master {master} is named", "the master 1 is named"),
        ("of the redises {servers}, {master}", "of the redises [1, 2], redis 1"),
        ("{master} and {role}", "redis 1 and leader"),
    ],
)
def test_a_scope_without_a_letter_comes_with_its_kind_unless_words_say_it(
    template: str, sentence: str
) -> None:
    """A reader of "sentinel-2 names 1" does not know what 1 is."""
    facts: Facts = {
        "sentinel": Scope("sentinel", "sentinel-2"),
        "master": Scope("redis", "1"),
        "servers": (Scope("redis", "1"), Scope("redis", "2")),
        "role": Scope("leader", ""),
        "epoch": 7,
    }
    assert sentence_of(template, facts) == sentence


def test_scopes_are_what_events_name() -> None:
    words = [one.words for one in scopes_of(FACTS)]
    assert words == ["process server-1#2", "slot server-1", "lease 7", "lease 8"]
    assert Scope("leader", "").words == "leader"


def test_facts_of_every_type_are_read_back_from_a_file(tmp_path: Path) -> None:
    made = violated(Cause("a", 1), Evidence.PEER, "{process}", **FACTS)
    broken = Broken(made.at, made.evidence, made.message, facts=made.facts)
    verdict = Verdict(Outcome.VIOLATED, 1, Evidence.PEER, "", violated=1, violations=(broken,))
    path = tmp_path / "verdicts.json"
    write_verdicts(path, {"X-01": verdict})
    assert read_verdicts(path) == {"X-01": verdict}
