"""ETCD-04 against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import (
    ONE,
    TWO,
    A,
    B,
    held_and_abandoned,
    holds,
    leads,
    lease,
    refused,
    take,
    unknown,
    verdict,
    violation,
)

from fencepost import Stalled
from fencepost.testing import HistoryBuilder, Outcome


def test_a_key_that_outlives_its_lease_by_far_breaks_etcd_04() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(5_100)
    refused(h, B, 2, 1, 5)
    assert "its lease of 2 s" in violation(h, "ETCD-04")


def test_a_key_that_is_gone_late_but_within_the_bound_keeps_etcd_04() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(4_900)
    refused(h, B, 2, 1, 5)
    take(h, B, 2, token=7)
    assert holds(h, "ETCD-04")


def test_a_new_leader_gives_a_lease_its_whole_time_again() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(1_900)
    leads(h, TWO, "b2", 3)
    h.after(4_800)
    refused(h, B, 2, 1, 5)
    take(h, B, 2, token=7)
    assert holds(h, "ETCD-04")


def test_a_renewal_of_unknown_end_excuses_the_key() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    lease(h, A, 1, "renew", outcome="unknown", ttl_s=-1)
    h.after(9_000)
    refused(h, B, 2, 1, 5)
    assert verdict(h, "ETCD-04").verdict is Outcome.NOT_EXERCISED


def test_etcd_04_is_undecided_if_a_process_stalled_meanwhile() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(5_100)
    h.add(ONE, Stalled(stalled_ns=1_000_000_000))
    refused(h, B, 2, 1, 5)
    assert unknown(h, "ETCD-04")
