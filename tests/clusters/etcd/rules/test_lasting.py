"""ETCD-07 against violations, near misses and histories that show nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from etcd_histories import ONE, TWO, A, B, broken, holds, idle, lease, refused, release, take
from tests.suites.partition_histories import stated

from fencepost import HARNESS, FaultInjected
from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.events import LeaseInvoked, LockInvoked

TTL_S = 60
LOCK = "lock"


def held() -> HistoryBuilder:
    """Client a has the lock, and has renewed its lease for a minute."""
    h = HistoryBuilder()
    lease(h, A, 1, "grant", ttl_s=TTL_S)
    take(h, A, 1, token=5)
    lease(h, A, 1, "renew", ttl_s=TTL_S)
    return h


def taken(h: HistoryBuilder, later_ms: int = 10, token: int = 6) -> HistoryBuilder:
    """Client b takes it."""
    lease(h.after(later_ms), B, 2, "grant", ttl_s=TTL_S)
    take(h, B, 2, token=token)
    return h


def test_a_lock_that_is_taken_from_a_holder_whose_lease_lasts_breaks_etcd_07() -> None:
    found = broken(taken(held()), "ETCD-07")
    assert stated(found, "client", "lock", "token") == (B, LOCK, 6)
    assert stated(found, "holder", "other_token") == (A, 5)


@pytest.mark.parametrize(("left_ms", "kept"), [(2_000, False), (900, True)])
def test_a_lease_lasts_from_the_sending_of_its_last_answered_renewal(
    left_ms: int, kept: bool
) -> None:
    h = taken(held(), TTL_S * 1_000 - left_ms)
    assert idle(h, "ETCD-07") is kept


def asks_to_revoke(h: HistoryBuilder) -> None:
    h.add(A, LeaseInvoked(operation="r", lease=1, action="revoke", slot="etcd-1"))


def asks_to_release(h: HistoryBuilder) -> None:
    h.add(A, LockInvoked(operation="r", lock=LOCK, action="release", lease=1, slot="etcd-1"))


def releases(h: HistoryBuilder) -> None:
    release(h, A, 1, 5)


@pytest.mark.parametrize("gives_up", [asks_to_revoke, asks_to_release, releases])
def test_a_holder_that_may_have_given_the_lock_up_has_lost_nothing(
    gives_up: Callable[[HistoryBuilder], None],
) -> None:
    h = held()
    gives_up(h)
    assert idle(taken(h), "ETCD-07")


def test_an_answer_that_is_recorded_late_takes_nothing_from_the_newer_holder() -> None:
    assert idle(taken(held(), token=4), "ETCD-07")


@pytest.mark.parametrize(("members", "kept"), [((ONE,), False), ((ONE, TWO), True)])
def test_what_a_majority_lost_with_its_disks_is_promised_to_nobody(
    members: tuple[str, ...], kept: bool
) -> None:
    h = held()
    for number, one in enumerate(members):
        h.add(HARNESS, FaultInjected(
            fault_id=f"wipe-{number}", fault="wipe_disk", targets=(one,), receipt=True, evidence="",
        ))  # fmt: skip
    assert idle(taken(h), "ETCD-07") is kept


def test_a_take_that_is_refused_while_the_lease_lasts_exercises_etcd_07() -> None:
    h = held()
    refused(h, B, 2, 1, 5)
    assert holds(h, "ETCD-07")
