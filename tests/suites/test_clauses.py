"""The clauses and their rules: every required one exists, once, and has the same name
everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost import Defect
from fencepost.plugins.manager import load
from fencepost_clusters.reference.defects.catalogue import CLASSIC_DEFECTS, DEFECTS, LEGACY_DEFECTS
from fencepost_suites import plugin, rules
from fencepost_suites.plugin import DECLARED

OWED = {
    *("QC-07", "QC-08", "QC-09", "QC-13", "QC-14", "QC-16", "QC-17", "QC-18", "QC-19", "QC-20"),
    *("QC-21", "QC-22", "QC-28", "QC-30", "QC-35", "QC-36", "REG-02", "REG-03", "REG-05"),
    *("QC-01", "QC-02", "QC-03", "QC-04", "QC-05", "QC-24", "QC-29", "QC-31"),
    *("REG-01", "REG-06", "REG-07", "REG-08", "REG-09"),
    *("QC-06", "QC-10", "QC-11", "QC-12", "QC-15", "QC-23", "QC-27", "QC-33", "QC-34", "REG-04"),
    *("QC-25", "QC-37"),
    *("RP-04", "RP-05", "RP-06", "RP-07", "RP-09", "RP-10", "RP-13", "RP-15", "RP-18", "RP-24"),
    *("RP-27", "RP-32"),
    *("RP-14", "RP-16", "RP-17", "RP-22", "RP-23", "RP-30", "RP-34"),
    *("RP-01", "RP-02", "RP-03", "RP-20", "RP-21", "RP-25", "RP-28", "RP-33", "QC-26"),
    *("QC-32", "RP-08", "RP-11", "RP-12", "RP-19", "RP-26", "RP-29", "RP-31"),
    *(f"HB-{number:02}" for number in range(1, 30)),
    *("BE-01", "BE-02", "BE-03", "BE-04", "BE-05", "BE-06", "BE-07", "BE-08", "BE-09", "BE-10"),
}
ANOMALIES = {
    f"JEPSEN-{name}"
    for name in (
        *("lost-write", "duplicate", "inconsistent-offsets", "nonmonotonic-poll", "poll-skip"),
        *("unseen", "aborted-read", "nonmonotonic-send", "lost-write-acks1", "G1c-realtime"),
    )
}
OURS = {"AVAIL-writable", "AVAIL-readable", "AVAIL-fenced", "AVAIL-recovered"}
"""The promises of no document and of no other tool."""
ELSEWHERE = ("AVAIL-stopped",)
"""The clauses of another package for which there is a rule here, with better evidence."""


BY_DISKS = ("QC-07", "RP-05", "RP-12", "RP-27")
"""The clauses with a second rule, about what disks hold after a run."""
BY_PEERS = ("QC-06", "QC-06", "REG-07", "RP-06", "RP-10", "RP-10", "RP-10")
"""The clauses with a second rule, or a third, about what other nodes say of a record."""

BY_NAMES = ("JEPSEN-G1c-realtime", "JEPSEN-duplicate")
"""The clauses with a second rule, about the names of messages."""


def test_every_required_clause_has_one_rule_and_some_another() -> None:
    judged = [rule.clause for rule in rules.ALL]
    assert sorted(judged) == sorted(
        [*OWED, *ANOMALIES, *OURS, *BY_DISKS, *BY_PEERS, *BY_NAMES, *ELSEWHERE]
    )


def test_the_clauses_of_the_documents_are_counted_apart() -> None:
    sources = {clause.id: clause.source for clause in DECLARED.clauses}
    assert {name for name, source in sources.items() if source == "availability"} == OURS
    assert {name for name, source in sources.items() if source == "jepsen-anomalies"} == ANOMALIES
    assert len(sources.keys() - OURS - ANOMALIES) == len(OWED) == 119


def test_every_rule_judges_a_clause_with_a_sentence() -> None:
    known = load().clauses
    assert all(known[rule.clause].says.endswith(".") for rule in rules.ALL)


def test_clauses_are_named_once() -> None:
    names = [clause.id for clause in DECLARED.clauses]
    assert len(set(names)) == len(names)


def test_the_clauses_of_a_document_bind_planes_and_those_of_clients_every_system() -> None:
    for clause in DECLARED.clauses:
        assert bool(clause.planes) is (clause.id not in ANOMALIES | OURS)
        over_zookeeper = clause.source.startswith(("kip-343", "kip-380"))
        assert (clause.planes == ("legacy",)) is over_zookeeper


def test_the_clauses_of_kafkas_clients_do_not_apply_to_etcd() -> None:
    loaded = load().clauses
    assert all(loaded[name].binds("kraft") for name in ANOMALIES | OURS)
    assert not any(loaded[name].binds("raft") for name in ANOMALIES | OURS)


def test_a_defect_breaks_clauses_that_are_judged() -> None:
    assert {clause for defect in DEFECTS for clause in defect.breaks} <= OWED


@pytest.mark.parametrize(
    ("plane", "defects"),
    [("quorum", DEFECTS), ("legacy", LEGACY_DEFECTS), ("classic", CLASSIC_DEFECTS)],
    ids=("quorum", "legacy", "classic"),
)
def test_a_clause_that_a_defect_can_break_has_a_defect_on_each_plane(
    plane: str, defects: Sequence[Defect]
) -> None:
    broken = {clause for defect in defects for clause in defect.breaks}
    wanted = {clause.id for clause in DECLARED.clauses if clause.defect and plane in clause.planes}
    assert wanted - broken == set()


def test_the_plugin_offers_both() -> None:
    assert plugin.fencepost_clauses() == DECLARED.clauses
    assert plugin.fencepost_rules() == rules.ALL
