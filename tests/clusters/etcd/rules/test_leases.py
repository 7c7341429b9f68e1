"""ETCD-04 against violations, near misses and undecided histories."""

from __future__ import annotations

from etcd_histories import (
    ONE,
    THREE,
    TWO,
    A,
    B,
    answer_take,
    ask_for_lock,
    broken,
    hears,
    held_and_abandoned,
    held_by,
    holds,
    idle,
    leads,
    lease,
    refused,
    release,
    take,
    unknown,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import HARNESS, FaultHealed, FaultInjected, ProcessAsked, Stalled
from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.events import LeaseInvoked
from fencepost_clusters.etcd.rules.keys import KEPT
from fencepost_clusters.etcd.rules.leases import ExpiredKeysAreGone


def test_a_key_that_outlives_its_lease_by_more_than_the_bound_breaks_etcd_04() -> None:
    h = HistoryBuilder()
    renewal = held_and_abandoned(h)
    h.after(5_000)
    refused(h, B, 2, 1, 5)
    found = broken(h, "ETCD-04")
    assert stated(found, "lock", "late_ms", "ttl_s") == ("lock", 3001, 2)
    assert found.because == (renewal.ref,)


def test_a_key_that_is_gone_late_but_within_the_bound_keeps_etcd_04() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(4_999)
    refused(h, B, 2, 1, 5)
    take(h, B, 2, token=7)
    assert holds(h, "ETCD-04")
    assert not verdict(h, "ETCD-04").excused


def test_an_answer_counts_from_when_the_client_asked() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(4_000)
    name = ask_for_lock(h, B, 2)
    h.after(4_000)
    answer_take(h, B, name, 2, **held_by(1, 5))
    assert idle(h, "ETCD-04")


def test_an_answer_to_a_take_that_no_event_tells_of_proves_no_time() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(9_000)
    answer_take(h, B, "not recorded", 2, **held_by(1, 5))
    assert idle(h, "ETCD-04")


def test_a_lock_that_was_released_proves_nothing_about_leases() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    release(h, A, 1, token=5)
    take(h, B, 2, token=7)
    assert idle(h, "ETCD-04")


def test_a_take_exercises_etcd_04_only_once_the_former_holders_lease_had_run_out() -> None:
    for after_ms, ran_out in ((1_998, False), (1_999, True)):
        h = HistoryBuilder()
        held_and_abandoned(h)
        h.after(after_ms)
        take(h, B, 2, token=7)
        assert verdict(h, "ETCD-04").exercised == int(ran_out)


def test_a_take_that_was_asked_for_before_the_lease_ran_out_exercises_nothing() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    name = ask_for_lock(h, B, 2)
    h.after(2_500)
    answer_take(h, B, name, 2, token=7)
    assert idle(h, "ETCD-04")


def test_a_take_after_the_former_holders_lease_was_revoked_exercises_etcd_04() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    lease(h, A, 1, "revoke", ttl_s=0)
    take(h, B, 2, token=7)
    assert holds(h, "ETCD-04")


def test_a_take_exercises_nothing_if_it_is_not_known_when_the_former_holders_lease_began() -> None:
    for granted in (True, False):
        h = HistoryBuilder()
        if granted:
            lease(h, A, 1, "grant", outcome="unknown", ttl_s=-1)
        take(h, A, 1, token=5)
        h.after(9_000)
        take(h, B, 2, token=7)
        assert idle(h, "ETCD-04")


# ------------------------------------------------------------------------------------- renewals


def unended_renewal(h: HistoryBuilder) -> None:
    """A renewal that never ends, as of a client that was killed."""
    h.add(A, LeaseInvoked(operation="open", lease=1, action="renew", slot="etcd-1"))


def test_a_renewal_of_unknown_end_may_take_effect_for_a_minute() -> None:
    for after_ms, wrong in ((64_999, False), (65_000, True)):
        h = HistoryBuilder()
        held_and_abandoned(h)
        lease(h, A, 1, "renew", outcome="unknown", ttl_s=-1)
        h.after(after_ms)
        refused(h, B, 2, 1, 5)
        assert idle(h, "ETCD-04") is not wrong
    assert stated(broken(h, "ETCD-04"), "late_ms", "ttl_s") == (3001, 2)


def test_a_renewal_without_an_end_may_take_effect_for_a_minute_from_its_begin() -> None:
    for after_ms, wrong in ((64_999, False), (65_000, True)):
        h = HistoryBuilder()
        held_and_abandoned(h)
        unended_renewal(h)
        h.after(after_ms)
        refused(h, B, 2, 1, 5)
        assert idle(h, "ETCD-04") is not wrong
    assert stated(broken(h, "ETCD-04"), "late_ms", "ttl_s") == (3001, 2)


def test_renewals_that_are_answered_later_do_not_shorten_what_an_unknown_one_may_do() -> None:
    for after_ms, wrong in ((0, False), (56_000, False), (60_000, True)):
        h = HistoryBuilder()
        held_and_abandoned(h)
        lease(h, A, 1, "renew", outcome="unknown", ttl_s=-1)
        h.after(5_000)
        lease(h, A, 1, "renew")
        lease(h, A, 1, "renew")
        h.after(after_ms)
        refused(h, B, 2, 1, 5)
        assert idle(h, "ETCD-04") is not wrong


def test_an_answer_ends_what_an_open_renewal_may_do() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    lease(h, A, 1, "renew")
    h.after(5_000)
    refused(h, B, 2, 1, 5)
    assert verdict(h, "ETCD-04").violated == 1


def test_a_lease_whose_grant_was_not_answered_is_not_judged() -> None:
    h = HistoryBuilder()
    lease(h, A, 1, "grant", outcome="failed", ttl_s=-1)
    h.after(9_000)
    refused(h, B, 2, 1, 5)
    assert idle(h, "ETCD-04")


def test_the_key_of_a_revoked_lease_breaks_etcd_04_at_once_whatever_renewals_did() -> None:
    for renewed in ("ok", "unknown"):
        h = HistoryBuilder()
        held_and_abandoned(h)
        lease(h, A, 1, "renew", outcome=renewed, ttl_s=2 if renewed == "ok" else -1)
        revoked = lease(h, A, 1, "revoke", ttl_s=0)
        refused(h, B, 2, 1, 5)
        found = broken(h, "ETCD-04")
        assert stated(found, "lock") == "lock"
        assert "late_ms" not in found.facts
        assert found.because == (revoked.ref,)


def test_a_client_that_asked_before_the_lease_was_revoked_may_find_its_key() -> None:
    for early in (0, -1):
        h = HistoryBuilder()
        held_and_abandoned(h)
        if early:
            lease(h, A, 1, "revoke", ttl_s=0)
            h.after(early)
        name = ask_for_lock(h, B, 2)
        if not early:
            lease(h, A, 1, "revoke", ttl_s=0)
        answer_take(h, B, name, 2, **held_by(1, 5))
        assert idle(h, "ETCD-04")


def test_a_lease_that_is_granted_again_after_it_was_revoked_may_have_its_key() -> None:
    for ended in ("ok", "unknown", ""):
        h = HistoryBuilder()
        held_and_abandoned(h)
        lease(h, A, 1, "revoke", ttl_s=0)
        if ended:
            lease(h, A, 1, "grant", outcome=ended, ttl_s=2 if ended == "ok" else -1)
        else:
            h.add(A, LeaseInvoked(operation="open", lease=1, action="grant", slot="etcd-1"))
        h.after(1_000)
        refused(h, B, 2, 1, 5)
        assert idle(h, "ETCD-04")
        lease(h, A, 1, "revoke", ttl_s=0)
        refused(h, B, 2, 1, 5)
        assert "late_ms" not in broken(h, "ETCD-04").facts


def test_a_renewal_that_finds_no_lease_does_not_prove_that_its_key_is_gone() -> None:
    # A member that leads no longer, and does not know it, may not have heard of the grant.
    h = HistoryBuilder()
    held_and_abandoned(h)
    lease(h, A, 1, "renew", outcome="failed", ttl_s=0)
    refused(h, B, 2, 1, 5)
    assert idle(h, "ETCD-04")
    h.after(5_000)
    refused(h, B, 2, 1, 5)
    assert stated(broken(h, "ETCD-04"), "ttl_s") == 2


# ------------------------------------------------------------------------------------- elections


def test_a_new_leader_gives_a_lease_its_whole_time_again_whichever_member_logs_it() -> None:
    for by_peer in (False, True):
        h = HistoryBuilder()
        held_and_abandoned(h)
        h.after(1_900)
        if by_peer:
            hears(h, THREE, "c3", "b2", 3)
        else:
            leads(h, TWO, "b2", 3)
        h.after(4_800)
        refused(h, B, 2, 1, 5)
        take(h, B, 2, token=7)
        assert holds(h, "ETCD-04")


def test_a_member_that_hears_of_the_same_leader_again_gives_no_time() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    held_and_abandoned(h)
    h.after(4_000)
    hears(h, THREE, "c3", "a1", 2)
    h.after(1_000)
    refused(h, B, 2, 1, 5)
    assert stated(broken(h, "ETCD-04"), "ttl_s") == 2


def test_a_member_that_invents_a_term_hides_no_later_election() -> None:
    h = HistoryBuilder()
    hears(h, THREE, "c3", "c3", 99)
    held_and_abandoned(h)
    h.after(1_900)
    leads(h, TWO, "b2", 3)
    h.after(4_800)
    refused(h, B, 2, 1, 5)
    assert idle(h, "ETCD-04")


# --------------------------------------------------------------------------- pauses and stalls


def paused(h: HistoryBuilder, process: str, receipt: bool = True, began_at_ns: int = 0) -> None:
    body = FaultInjected(
        fault_id="f1", fault="pause", targets=(process,), receipt=receipt, evidence="state T",
        began_at_ns=began_at_ns, effects=(f"stops {process.partition('#')[0]}",),
    )  # fmt: skip
    h.add("harness", body)


def resumed(h: HistoryBuilder) -> None:
    h.add("harness", FaultHealed(fault_id="f1", receipt=True, evidence="state S"))


def test_a_leader_that_is_paused_is_excused_until_the_bound_after_its_pause() -> None:
    for since_ms, excused in ((0, 1), (2_999, 1), (3_000, 0)):
        h = HistoryBuilder()
        leads(h, ONE, "a1", 2)
        held_and_abandoned(h)
        paused(h, ONE)
        h.after(9_000)
        resumed(h)
        h.after(since_ms)
        refused(h, B, 2, 1, 5)
        found = verdict(h, "ETCD-04")
        assert (found.excused, found.violated) == (excused, 1 - excused)
        assert not excused or why(found, "leader") == ONE


def test_a_leader_that_was_asked_to_end_hands_its_leadership_over_meanwhile() -> None:
    """Where a member is cut off, that took 7 s, in which proposals were dropped."""
    for process, excused in ((ONE, 1), (TWO, 0)):
        h = HistoryBuilder()
        leads(h, ONE, "a1", 2)
        held_and_abandoned(h)
        h.add("harness", ProcessAsked(asked=process, signal="SIGTERM"))
        h.after(9_000)
        refused(h, B, 2, 1, 5)
        found = verdict(h, "ETCD-04")
        assert (found.excused, found.violated) == (excused, 1 - excused)


def test_a_client_that_is_answered_before_the_harness_has_recorded_the_resumption() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    held_and_abandoned(h)
    paused(h, ONE)
    h.after(9_000)
    refused(h, B, 2, 1, 5)
    resumed(h)
    assert verdict(h, "ETCD-04").excused == 1


def test_a_pause_excuses_only_what_was_not_yet_late_when_it_began() -> None:
    for early_ms, excused in ((0, 1), (1, 1), (-1, 0)):
        h = HistoryBuilder()
        leads(h, ONE, "a1", 2)
        due_ns = held_and_abandoned(h).at_ns + 5_000_000_000
        h.after(8_000)
        paused(h, ONE, began_at_ns=due_ns - early_ms * 1_000_000)
        refused(h, B, 2, 1, 5)
        assert verdict(h, "ETCD-04").excused == excused


def test_a_pause_whose_begin_is_not_known_counts_from_its_record() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    held_and_abandoned(h)
    h.after(8_000)
    paused(h, ONE)
    refused(h, B, 2, 1, 5)
    assert verdict(h, "ETCD-04").violated == 1


def test_a_pause_of_another_member_or_one_without_a_receipt_excuses_nothing() -> None:
    for process, receipt in ((TWO, True), (ONE, False)):
        h = HistoryBuilder()
        leads(h, ONE, "a1", 2)
        held_and_abandoned(h)
        paused(h, process, receipt)
        h.after(9_000)
        refused(h, B, 2, 1, 5)
        assert verdict(h, "ETCD-04").violated == 1


def test_a_leader_that_was_replaced_excuses_nothing_by_its_pause() -> None:
    h = HistoryBuilder()
    leads(h, ONE, "a1", 2)
    held_and_abandoned(h)
    paused(h, ONE)
    leads(h, TWO, "b2", 3)
    h.after(9_000)
    refused(h, B, 2, 1, 5)
    assert verdict(h, "ETCD-04").violated == 1


def test_a_fault_that_is_no_pause_may_heal_without_a_trace() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    resumed(h)
    h.after(2_000)
    take(h, B, 2, token=7)
    assert holds(h, "ETCD-04")


def test_etcd_04_is_undecided_if_processes_stalled_for_more_than_a_tenth_of_the_lease() -> None:
    for stalled_ms, undecided in ((200, False), (201, True)):
        h = HistoryBuilder()
        held_and_abandoned(h)
        h.after(5_100)
        h.add(HARNESS, Stalled(stalled_ns=stalled_ms * 1_000_000))
        refused(h, B, 2, 1, 5)
        assert unknown(h, "ETCD-04") is undecided


def test_etcd_04_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    held_and_abandoned(h)
    h.after(2_000)
    take(h, B, 2, token=7)
    assert unknown(h, "ETCD-04", complete=False)


def test_a_run_of_many_leases_is_judged_in_little_memory() -> None:
    h = HistoryBuilder()
    for number in range(KEPT + 2):
        lease(h, A, number, "grant")
    h.after(9_000)
    for number in range(KEPT + 2):
        refused(h, B, KEPT + 3, number, 5)
    rule = ExpiredKeysAreGone()
    state = rule.start((), {})
    for event in h.events():
        rule.step(state, event, event.body)
    assert (len(state.leases), len(state.suspects), len(state.asked)) == (KEPT, KEPT, 0)
