"""ETCD-01 against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import ONE, THREE, TWO, broken, hears, leads, unknown, verdict
from tests.suites.partition_histories import stated

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome


def test_two_leaders_of_one_term_break_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    leads(h, TWO, "b2", 2)
    assert stated(broken(h, "ETCD-01"), "process", "term", "other") == (TWO, "term 2", ONE)


def test_a_peer_that_names_another_leader_breaks_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    hears(h, THREE, "c3", "b2", 2)
    assert stated(broken(h, "ETCD-01"), "process", "leader") == (THREE, "b2")


def test_two_processes_of_one_member_that_lead_a_term_break_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    duplicate = "etcd-1-duplicate#1"
    leads(h, duplicate, "a1", 2)
    assert stated(broken(h, "ETCD-01"), "process", "term", "other") == (duplicate, "term 2", ONE)


def test_peers_that_name_two_leaders_of_one_term_break_etcd_01() -> None:
    h = HistoryBuilder()
    first = hears(h, TWO, "b2", "a1", 2)
    hears(h, THREE, "c3", "b2", 2)
    found = broken(h, "ETCD-01")
    assert stated(found, "process", "leader", "term") == (THREE, "b2", "term 2")
    assert stated(found, "other_leader") == "a1"
    assert "other" not in found.facts
    assert found.because == (first.ref,)


def test_the_first_event_that_names_the_leader_is_the_proof() -> None:
    h = HistoryBuilder()
    first = leads(h, ONE, "a1", 2)
    hears(h, TWO, "b2", "a1", 2)
    leads(h, THREE, "c3", 2)
    assert broken(h, "ETCD-01").because == (first.ref,)


def test_a_leader_that_names_itself_is_evidence_by_itself_and_a_peer_by_a_peer() -> None:
    for process, member, evidence in ((ONE, "a1", Evidence.SELF), (TWO, "b2", Evidence.PEER)):
        h = HistoryBuilder()
        hears(h, process, member, "a1", 2)
        assert verdict(h, "ETCD-01").evidence is evidence
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    assert verdict(h, "ETCD-01").evidence is Evidence.SELF


def test_leaders_of_different_terms_at_one_time_keep_etcd_01() -> None:
    h = HistoryBuilder()
    hears(h, TWO, "b2", "a1", 2)
    leads(h, ONE, "a1", 2)
    leads(h, TWO, "b2", 3)
    hears(h, THREE, "c3", "b2", 3)
    found = verdict(h, "ETCD-01")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_etcd_01_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    assert unknown(h, "ETCD-01", complete=False)
