"""The applicability of each clause to Apache Kafka: every clause has an entry that says how it
applies, and only the same promise is judged."""

from __future__ import annotations

import pytest

from fencepost import Applicability, Promise
from fencepost.plugins.manager import load
from fencepost_suites import plugin, rules
from fencepost_suites.clauses import applicability, clauses

OWN = tuple(f"KR-{number:02}" for number in range(1, 12))
LEAST = 20
"""The least number of characters of an entry's `how`."""


KAFKAS = ("kraft", "zookeeper")


def on(plane: str) -> list[Applicability]:
    return [mark for mark in applicability() if mark.plane == plane]


@pytest.mark.parametrize("plane", KAFKAS)
def test_every_clause_has_one_applicability(plane: str) -> None:
    assert sorted(mark.clause for mark in on(plane)) == sorted(c.id for c in clauses())
    assert {mark.plane for mark in applicability()} == {*KAFKAS, "raft"}
    assert plugin.fencepost_applicability() == applicability()


def test_an_applicability_says_how_or_why() -> None:
    for mark in applicability():
        assert len(mark.how) >= LEAST or mark.clause.startswith("JEPSEN"), mark
        assert not mark.how.endswith("."), mark


def test_a_changed_promise_names_a_clause_that_exists() -> None:
    known = load().clauses
    for mark in applicability():
        named = {
            word.strip("(),:;") for word in mark.how.split() if word.startswith(("KR-", "(KR-"))
        }
        assert named <= set(known), mark
    assert set(OWN) <= set(known)


@pytest.mark.parametrize("plane", KAFKAS)
def test_only_the_same_promise_is_judged_there(plane: str) -> None:
    plugins = load()
    judged = {rule.clause for rule in rules.ALL}
    for mark in on(plane):
        clause = plugins.clause(mark.clause)
        assert clause.binds(plane) is (mark.promise is Promise.SAME)
        assert clause.binds("quorum") or clause.planes in (("legacy",), ("classic",))
        assert mark.promise is not Promise.SAME or mark.clause in judged
        if not clause.binds(plane):
            assert clause.unbound(plane) == f"{mark.promise}: {mark.how}"


def test_kafkas_own_promises_bind_kafka_alone() -> None:
    for name in OWN:
        clause = load().clause(name)
        assert clause.binds("kraft")
        assert not clause.binds("quorum")
