"""ETCD-01 against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import ONE, THREE, TWO, hears, leads, unknown, verdict, violation

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome


def test_two_leaders_of_one_term_break_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    leads(h, TWO, "b2", 2)
    assert "term 2" in violation(h, "ETCD-01")


def test_a_peer_that_names_another_leader_breaks_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    hears(h, THREE, "c3", "b2", 2)
    assert "names b2" in violation(h, "ETCD-01")


def test_two_processes_of_one_member_that_lead_a_term_break_etcd_01() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    leads(h, "etcd-1-duplicate#1", "a1", 2)
    assert "etcd-1-duplicate#1 leads" in violation(h, "ETCD-01")


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
