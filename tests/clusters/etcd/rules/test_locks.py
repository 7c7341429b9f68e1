"""ETCD-05 and ETCD-06, each against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import (
    A,
    B,
    answer_store,
    answer_take,
    ask_for_lock,
    ask_store,
    broken,
    held_by,
    holds,
    idle,
    refused,
    store,
    take,
    unknown,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import Event
from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.clients.locks import OLD_TOKEN
from fencepost_clusters.etcd.events import LockCompleted, LockInvoked


def test_a_token_that_does_not_grow_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    take(h, B, 2, token=4)
    assert stated(broken(h, "ETCD-05"), "token", "other_token") == (4, 5)


def test_one_token_for_two_holders_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    take(h, B, 2, token=5)
    assert stated(broken(h, "ETCD-05"), "token", "other_lease") == (5, "lease 1")


def test_a_lease_that_gets_a_smaller_token_than_before_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    take(h, A, 1, token=4)
    assert stated(broken(h, "ETCD-05"), "token", "other_token") == (4, 5)


def test_a_client_that_finds_its_own_key_has_the_token_already() -> None:
    h = HistoryBuilder()
    first = take(h, A, 1, token=5)
    take(h, A, 1, token=5)
    assert idle(h, "ETCD-05")
    take(h, B, 2, token=4)
    assert broken(h, "ETCD-05").because == (first.ref,)


def test_a_single_take_and_takes_that_were_refused_exercise_nothing() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    refused(h, B, 2, 1, 5)
    assert idle(h, "ETCD-05")


def test_a_take_that_was_recorded_late_keeps_etcd_05() -> None:
    h = HistoryBuilder()
    h.add(A, LockInvoked(operation="a", lock="lock", action="take", lease=1, slot="etcd-1"))
    take(h, B, 2, token=7)
    h.add(
        A,
        LockCompleted(operation="a", lock="lock", action="take", lease=1, outcome="ok", token=5),
    )
    take(h, A, 3, token=9)
    assert holds(h, "ETCD-05")


def test_a_holder_that_only_a_refusal_names_breaks_etcd_05_by_a_smaller_token() -> None:
    """Its own answer was lost: the client that finds its key is the only one that tells."""
    h = HistoryBuilder()
    first = take(h, A, 1, token=9)
    refused(h, B, 3, 2, 4)
    found = broken(h, "ETCD-05")
    assert stated(found, "token", "other_token", "lease") == (4, 9, "lease 2")
    assert found.because == (first.ref,)


def test_a_token_that_a_refusal_names_for_another_lease_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    refused(h, B, 3, 2, 5)
    assert stated(broken(h, "ETCD-05"), "token", "lease", "other_lease") == (
        5,
        "lease 2",
        "lease 1",
    )


def test_a_take_after_a_holder_that_only_a_refusal_names_needs_a_greater_token() -> None:
    for token, keeps in ((6, True), (4, False)):
        h = HistoryBuilder()
        refused(h, B, 3, 2, 5)
        take(h, A, 1, token=token)
        assert holds(h, "ETCD-05") is keeps


def test_a_refusal_that_was_asked_for_before_the_next_take_keeps_etcd_05() -> None:
    """Its answer names the former holder, and comes late."""
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    name = ask_for_lock(h, B, 3)
    take(h, A, 2, token=9)
    answer_take(h, B, name, 3, **held_by(1, 5))
    assert holds(h, "ETCD-05")


def test_etcd_05_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    assert unknown(h, "ETCD-05", complete=False)


def test_a_write_of_an_old_holder_breaks_etcd_06_in_any_order_of_the_events() -> None:
    takes = ((B, 7, 20), (A, 5, 21))
    for order in (takes, takes[::-1]):
        h = HistoryBuilder()
        for client, token, revision in order:
            store(h, client, token, revision)
        assert stated(broken(h, "ETCD-06"), "token", "revision", "other_token") == (5, 21, 7)


def test_an_old_holder_that_wrote_before_or_was_refused_keeps_etcd_06() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    store(h, A, 5, 19)
    store(h, A, 5, 21, outcome="failed", newer_token=7, error=OLD_TOKEN)
    assert holds(h, "ETCD-06")


def test_a_write_after_a_refusal_that_names_a_newer_token_breaks_etcd_06() -> None:
    """The answer to the newer holder's write was lost: the refusal is the proof that the store took
    it."""
    h = HistoryBuilder()
    store(h, B, 7, outcome="unknown", error="timed out")
    proof = store(h, A, 5, 20, outcome="failed", newer_token=7, error=OLD_TOKEN)
    store(h, A, 5, 21)
    found = broken(h, "ETCD-06")
    assert stated(found, "token", "revision", "other_token") == (5, 21, 7)
    assert found.because == (proof.ref,)


def test_a_write_before_a_refusal_that_names_a_newer_token_keeps_etcd_06() -> None:
    for revision in (19, 20):
        h = HistoryBuilder()
        store(h, A, 5, 20, outcome="failed", newer_token=7, error=OLD_TOKEN)
        store(h, A, 5, revision)
        assert holds(h, "ETCD-06")


def test_etcd_06_is_undecided_if_the_end_of_the_old_holders_write_is_not_known() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    store(h, A, 5, outcome="unknown", error="timed out")
    assert unknown(h, "ETCD-06")


def test_a_write_of_an_old_holder_that_was_never_sent_leaves_nothing_open() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    store(h, A, 5, outcome="failed", error="ConnectionRefusedError")
    assert idle(h, "ETCD-06")


def test_a_refusal_that_names_no_newer_token_exercises_nothing() -> None:
    h = HistoryBuilder()
    store(h, A, 7, 20)
    store(h, A, 7, 21, outcome="failed", newer_token=7, error=OLD_TOKEN)
    assert idle(h, "ETCD-06")


def test_a_write_of_the_newest_holder_may_end_unknown() -> None:
    h = HistoryBuilder()
    store(h, A, 7, 20)
    store(h, A, 7, outcome="unknown", error="timed out")
    assert idle(h, "ETCD-06")


def in_doubt(h: HistoryBuilder, client: str, token: int) -> None:
    store(h, client, token, outcome="unknown", error="timed out")


def refuse(h: HistoryBuilder, client: str, token: int, newer: int, revision: int = 21) -> Event:
    return store(h, client, token, revision, outcome="failed", newer_token=newer, error=OLD_TOKEN)


def test_a_later_refusal_shows_that_an_old_holders_write_of_unknown_end_had_no_effect() -> None:
    for revision, shown in ((21, True), (-1, False)):
        h = HistoryBuilder()
        store(h, B, 7, 20)
        in_doubt(h, A, 5)
        refuse(h, A, 4, 7, revision)
        assert holds(h, "ETCD-06") is shown
        assert unknown(h, "ETCD-06") is not shown


def test_a_refusal_that_was_asked_for_before_shows_nothing_of_a_write_of_unknown_end() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    refuse(h, A, 5, 7)
    early = ask_store(h, A, 4)
    in_doubt(h, A, 5)
    answer_store(h, A, early, 4, 21, outcome="failed", newer_token=7, error=OLD_TOKEN)
    assert unknown(h, "ETCD-06")
    refuse(h, A, 5, 7)
    assert holds(h, "ETCD-06")


def test_a_write_of_unknown_end_before_a_newer_one_leaves_nothing_open() -> None:
    h = HistoryBuilder()
    in_doubt(h, A, 5)
    store(h, B, 7, 20)
    assert idle(h, "ETCD-06")


def test_a_write_that_took_effect_before_a_newer_one_was_sent_is_in_order() -> None:
    h = HistoryBuilder()
    refuse(h, B, 3, 5, 19)
    store(h, A, 5, -1)
    store(h, B, 7, 20)
    assert holds(h, "ETCD-06")


def test_a_refusal_that_names_a_token_below_one_that_was_taken_before_breaks_etcd_06() -> None:
    for named in (5, 3):
        h = HistoryBuilder()
        newest = store(h, B, 9, 20)
        store(h, B, 7, 19)
        refusal = refuse(h, A, 4, named)
        found = broken(h, "ETCD-06")
        assert stated(found, "token", "newer_token", "other_token") == (4, named, 9)
        assert (found.at, found.because) == (refusal.ref, (newest.ref,))
        assert verdict(h, "ETCD-06").exercised == 0


def test_a_refusal_that_was_asked_for_before_the_newer_write_ended_may_name_an_older_token() -> (
    None
):
    h = HistoryBuilder()
    name = ask_store(h, A, 4)
    store(h, B, 9, 20)
    answer_store(h, A, name, 4, 19, outcome="failed", newer_token=5, error=OLD_TOKEN)
    assert holds(h, "ETCD-06")


def test_a_refusal_that_names_no_token_or_that_no_event_asked_for_accuses_nobody() -> None:
    h = HistoryBuilder()
    store(h, B, 9, 20)
    refuse(h, A, 4, -1)
    answer_store(h, A, "not recorded", 4, 19, outcome="failed", newer_token=5, error=OLD_TOKEN)
    assert holds(h, "ETCD-06")


def test_a_refusal_that_names_an_older_token_at_a_later_revision_breaks_etcd_06() -> None:
    """No event need have asked for it: the revisions are the order."""
    for told_late in (False, True):
        h = HistoryBuilder()
        if not told_late:
            store(h, B, 9, 20)
        answer_store(h, A, "not recorded", 4, 21, outcome="failed", newer_token=5, error=OLD_TOKEN)
        if told_late:
            store(h, B, 9, 20)
        assert stated(broken(h, "ETCD-06"), "token", "revision", "other_token") == (5, 21, 9)


def test_writes_of_one_holder_may_be_recorded_in_any_order() -> None:
    h = HistoryBuilder()
    store(h, A, 5, 21)
    store(h, A, 5, 20)
    store(h, B, 7, 22)
    assert idle(h, "ETCD-06")


def test_two_writes_at_one_revision_hide_no_third_one_and_prove_no_order() -> None:
    h = HistoryBuilder()
    newer = store(h, B, 7, 20)
    store(h, A, 5, 20)
    assert idle(h, "ETCD-06")
    store(h, A, 6, 21)
    found = broken(h, "ETCD-06")
    assert stated(found, "token", "revision") == (6, 21)
    assert stated(found, "other_token", "other_revision") == (7, 20)
    assert found.because == (newer.ref,)


def test_a_write_whose_answer_names_no_revision_is_in_no_order() -> None:
    for revision in (-1, 0):
        h = HistoryBuilder()
        store(h, A, 5, 21)
        store(h, B, 7, revision)
        assert idle(h, "ETCD-06")
        store(h, B, 7, 22)
        store(h, A, 5, revision)
        assert unknown(h, "ETCD-06")
