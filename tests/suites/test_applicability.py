"""The applicability of each clause to Apache Kafka: every clause has an entry that says how it
applies, and only the same promise is judged."""

from __future__ import annotations

import pytest

from fencepost import Applicability, Promise
from fencepost.plugins.manager import load
from fencepost_clusters.apache_kafka import plugin as kafka
from fencepost_clusters.etcd import plugin as etcd
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

APPLICABILITY = (*kafka.DECLARED.applicability, *etcd.DECLARED.applicability)
OWN = ("KR-01", "KR-02", *(f"KR-{number:02}" for number in range(4, 12)))
LEAST = 20
"""The least number of characters of an entry's `how`."""


KAFKAS = ("kraft", "zookeeper", "attached")


def on(plane: str) -> list[Applicability]:
    return [mark for mark in APPLICABILITY if mark.plane == plane]


@pytest.mark.parametrize("plane", KAFKAS)
def test_every_clause_has_one_applicability(plane: str) -> None:
    assert sorted(mark.clause for mark in on(plane)) == sorted(c.id for c in DECLARED.clauses)
    assert {mark.plane for mark in APPLICABILITY} == {*KAFKAS, "raft"}


def test_an_applicability_says_how_or_why() -> None:
    for mark in APPLICABILITY:
        assert len(mark.how) >= LEAST or mark.clause.startswith("JEPSEN"), mark
        assert not mark.how.endswith("."), mark


def test_a_changed_promise_names_a_clause_that_exists() -> None:
    known = load().clauses
    for mark in APPLICABILITY:
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
        assert clause.binds(plane) is (mark.promise in (Promise.SAME, Promise.WITNESSED))
        assert clause.binds("quorum") or clause.planes in (("legacy",), ("classic",))
        assert mark.promise is not Promise.SAME or mark.clause in judged
        if not clause.binds(plane):
            assert clause.unbound(plane) == f"{mark.promise}: {mark.how}"


def test_a_promise_that_other_events_show_is_judged_by_rules_that_name_the_plane() -> None:
    plugins = load()
    for mark in on("kraft"):
        clause = plugins.clause(mark.clause)
        judging = [
            rule
            for rule in plugins.rules
            if rule.clause == clause.id and clause.judged_by(rule, "kraft")
        ]
        if mark.promise is Promise.WITNESSED:
            assert judging, mark
            assert all(rule.planes == ("kraft",) for rule in judging)
            assert plugins.clause(mark.formerly) is clause
        others = [rule for rule in plugins.rules if rule.clause == clause.id and not rule.planes]
        for plane in clause.planes:
            assert all(clause.judged_by(rule, plane) for rule in others)
            assert not any(clause.judged_by(rule, plane) for rule in judging if rule.planes)


def test_kafkas_own_promises_bind_kafka_alone() -> None:
    for name in OWN:
        clause = load().clause(name)
        assert clause.binds("kraft")
        assert not clause.binds("quorum")
