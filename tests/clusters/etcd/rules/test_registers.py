"""ETCD-02 and ETCD-03, each against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import (
    A,
    B,
    broken,
    complete,
    get,
    holds,
    idle,
    invoke,
    put,
    refuse_swap,
    swap,
    unknown,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.rules.keys import KEPT


def test_a_state_without_a_write_at_or_after_its_revision_breaks_etcd_02() -> None:
    for revision, shown in ((5, 3), (9, 3), (9, 0)):
        h = HistoryBuilder()
        ack = put(h, A, "a:0", 5)
        get(h, "b:0", revision, shown, "x:0" if shown else "", serializable=True)
        found = broken(h, "ETCD-02")
        assert stated(found, "operation", "revision") == ("a:0", 5)
        assert stated(found, "store_revision", "shown") == (revision, shown)
        assert found.because == (ack.ref,)


def test_an_acknowledgement_that_comes_after_such_a_read_breaks_etcd_02_too() -> None:
    for revision in (5, 9):
        h = HistoryBuilder()
        invoke(h, A, "a:0", "put", value="a:0")
        get(h, "b:0", revision, 3, "x:0")
        complete(h, A, operation="a:0", action="put", revision=5, mod_revision=5, value="a:0")
        acknowledged = stated(broken(h, "ETCD-02"), "operation", "revision", "shown")
        assert acknowledged == ("a:0", 5, 3)


def test_an_acknowledgement_may_come_after_a_read_of_its_write() -> None:
    h = HistoryBuilder()
    invoke(h, A, "a:0", "put", value="a:0")
    get(h, "b:0", 9, 5, "a:0")
    complete(h, A, operation="a:0", action="put", revision=5, mod_revision=5, value="a:0")
    get(h, "b:1", 9, 5, "a:0", final=True)
    assert holds(h, "ETCD-02")


def test_two_writes_that_were_acknowledged_at_one_revision_break_etcd_02() -> None:
    h = HistoryBuilder()
    first = put(h, A, "a:0", 5)
    put(h, B, "b:0", 5)
    found = broken(h, "ETCD-02")
    assert stated(found, "operation", "other_operation", "revision") == ("b:0", "a:0", 5)
    assert "value" not in found.facts
    assert found.because == (first.ref,)


def test_writes_of_two_keys_that_were_acknowledged_at_one_revision_break_etcd_02() -> None:
    h = HistoryBuilder()
    first = put(h, A, "a:0", 5)
    put(h, B, "b:0", 6, key="r1")
    put(h, B, "b:1", 5, key="r1")
    found = broken(h, "ETCD-02")
    assert stated(found, "operation", "other_operation", "revision") == ("b:1", "a:0", 5)
    assert stated(found, "key", "other_key") == ("r1", "r0")
    assert found.because == (first.ref,)
    assert verdict(h, "ETCD-02").violated == 1


def test_writes_without_a_known_revision_are_at_no_common_revision() -> None:
    h = HistoryBuilder()
    for client, key in ((A, "r0"), (B, "r1")):
        name = f"{key}:0"
        invoke(h, client, name, "put", value=name, key=key)
        complete(h, client, name, "put", -1, outcome="unknown", error="timed out", key=key)
        get(h, f"{key}:1", 5, 4, "x:0", key=key)
    assert idle(h, "ETCD-02")


def test_a_version_that_counts_fewer_than_the_acknowledged_writes_breaks_etcd_02() -> None:
    for action in ("put", "get"):
        h = HistoryBuilder()
        put(h, A, "a:0", 5, version=1)
        last = put(h, A, "a:1", 7, version=1 if action == "put" else 2)
        if action == "get":
            last = get(h, "b:0", 7, 7, "a:1", version=1)
        get(h, "b:1", 7, 7, "a:1", final=True)
        found = broken(h, "ETCD-02")
        assert stated(found, "key", "revision", "version", "writes") == ("r0", 7, 1, 2)
        assert found.at == last.ref


def test_a_write_below_a_version_counts_whenever_it_is_acknowledged() -> None:
    h = HistoryBuilder()
    invoke(h, A, "a:0", "swap", value="a:0")
    put(h, B, "b:0", 6, version=1)
    put(h, B, "b:1", 7, version=2)
    get(h, "b:2", 7, 7, "b:1", final=True)
    assert holds(h, "ETCD-02")
    complete(h, A, "a:0", "swap", 5, mod_revision=5, value="a:0")
    assert stated(broken(h, "ETCD-02"), "revision", "version", "writes") == (6, 1, 2)
    assert verdict(h, "ETCD-02").violated == 1


def test_a_version_may_count_more_writes_than_were_acknowledged_or_be_not_known() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5, version=1)
    invoke(h, A, "a:1", "put", value="a:1")
    complete(h, A, "a:1", "put", -1, outcome="unknown", error="timed out")
    put(h, A, "a:2", 8, version=3)
    put(h, A, "a:3", 9)
    get(h, "b:1", 6, 5, "a:0", version=1, serializable=True)
    get(h, "b:2", 9, 9, "a:3", version=4, final=True)
    assert holds(h, "ETCD-02")


def test_versions_are_compared_without_what_was_forgotten() -> None:
    for lost in (0, 3):
        h = HistoryBuilder()
        for number in range(1, KEPT + 3):
            put(h, A, f"a:{number}", number, version=number - (lost if number > KEPT else 0))
        get(h, "b:0", KEPT + 2, KEPT + 2, f"a:{KEPT + 2}", final=True)
        assert bool(verdict(h, "ETCD-02").violated) is bool(lost)


def test_another_value_at_the_revision_of_a_write_breaks_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 9, 5, "x:0")
    assert stated(broken(h, "ETCD-02"), "value") == "x:0"


def test_a_store_that_went_back_breaks_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 4, 3, "x:0", final=True)
    assert stated(broken(h, "ETCD-02"), "store_revision") == 4


def test_the_last_read_may_find_the_store_at_the_revision_of_the_last_write() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 5, 5, "a:0", final=True)
    assert holds(h, "ETCD-02")


def test_a_revision_that_no_later_write_reaches_breaks_etcd_02_however_many_follow() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 9_999)
    for number in range(1, KEPT + 2):
        put(h, A, f"a:{number}", number)
    get(h, "b:0", KEPT + 1, KEPT + 1, f"a:{KEPT + 1}", final=True)
    assert stated(broken(h, "ETCD-02"), "operation", "revision") == ("a:0", 9_999)


def test_a_write_that_a_later_one_replaced_keeps_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    put(h, A, "a:1", 6)
    get(h, "b:0", 5, 5, "a:0", serializable=True)
    get(h, "b:1", 6, 6, "a:1")
    assert holds(h, "ETCD-02")


def test_etcd_02_is_undecided_if_no_read_reaches_the_last_write() -> None:
    h = HistoryBuilder()
    get(h, "b:0", 4, 0, "")
    put(h, A, "a:0", 5)
    assert unknown(h, "ETCD-02")


def test_etcd_02_is_undecided_if_final_reads_were_tried_and_none_succeeded() -> None:
    for ended in (True, False):
        h = HistoryBuilder()
        put(h, A, "a:0", 5)
        get(h, "b:0", 6, 5, "a:0")
        assert holds(h, "ETCD-02")
        invoke(h, B, "b:1", "get", final=True)
        if ended:
            complete(h, B, "b:1", "get", -1, outcome="failed", error="no answer", final=True)
        assert unknown(h, "ETCD-02")
        get(h, "b:2", 6, 5, "a:0", final=True)
        assert holds(h, "ETCD-02")


def test_a_final_read_of_a_key_without_acknowledged_writes_leaves_nothing_open() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 5, 5, "a:0", final=True)
    invoke(h, B, "b:1", "get", final=True, key="r1")
    assert holds(h, "ETCD-02")


def test_etcd_02_is_undecided_if_an_answer_names_no_revision() -> None:
    for action, revision, shown in (("put", -1, -1), ("put", 9, 0), ("swap", 9, 0), ("get", -1, 5)):
        h = HistoryBuilder()
        invoke(h, A, "a:0", action, value="a:0")
        complete(h, A, "a:0", action, revision=revision, mod_revision=shown, value="a:0")
        get(h, "b:0", 9, 0, "", final=True)
        assert unknown(h, "ETCD-02")
        assert why(verdict(h, "ETCD-02"), "operation") == "a:0"


def test_a_stale_read_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    newest = put(h, A, "a:1", 6)
    get(h, "b:0", 5, 5, "a:0")
    found = broken(h, "ETCD-03")
    assert stated(found, "revision", "other_revision", "other_store_revision") == (5, 6, 6)
    assert found.because == (newest.ref,)
    assert verdict(h, "ETCD-03").exercised == 0


def test_a_read_that_goes_back_in_the_store_or_in_the_key_breaks_etcd_03() -> None:
    for revision, shown, value in ((8, 5, "a:0"), (9, 4, "x:0")):
        h = HistoryBuilder()
        get(h, "b:0", 9, 5, "a:0")
        get(h, "b:1", revision, shown, value)
        assert stated(broken(h, "ETCD-03"), "other_store_revision") == 9


def test_a_write_at_a_revision_that_was_read_before_it_began_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    get(h, "b:0", 6, 5, "x:0")
    put(h, A, "a:0", 6)
    assert stated(broken(h, "ETCD-03"), "operation", "key", "revision") == ("a:0", "r0", 6)


def test_only_what_another_client_showed_exercises_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    put(h, A, "a:1", 6)
    assert idle(h, "ETCD-03")
    get(h, "b:0", 6, 6, "a:1")
    assert verdict(h, "ETCD-03").exercised == 1


def test_a_lost_update_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    swap(h, B, "b:1", 5, 6)
    complete(h, A, operation="a:1", action="swap", revision=7, mod_revision=7, value="a:1")
    assert stated(broken(h, "ETCD-03"), "operation", "value") == ("a:1", "b:1")


def test_a_write_between_a_swap_and_the_write_it_expected_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, B, "b:1", "put", value="b:1")
    swap(h, A, "a:1", 5, 7)
    complete(h, B, operation="b:1", action="put", revision=6, mod_revision=6, value="b:1")
    assert stated(broken(h, "ETCD-03"), "operation", "value") == ("a:1", "b:1")


def test_a_swap_of_unknown_end_that_overwrote_a_write_it_did_not_expect_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    put(h, B, "b:1", 6)
    complete(h, A, "a:1", "swap", -1, outcome="unknown", error="timed out")
    get(h, "b:2", 7, 7, "a:1")
    get(h, "b:3", 7, 7, "a:1")
    found = verdict(h, "ETCD-03")
    assert [stated(one, "operation", "value") for one in found.violations] == [("a:1", "b:1")]


def test_a_write_that_is_known_only_after_a_swap_of_unknown_end_was_seen_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    invoke(h, B, "b:1", "put", value="b:1")
    get(h, "b:2", 7, 7, "a:1")
    complete(h, B, operation="b:1", action="put", revision=6, mod_revision=6, value="b:1")
    assert stated(broken(h, "ETCD-03"), "operation", "value") == ("a:1", "b:1")


def test_a_refused_swap_may_be_the_one_that_sees_what_a_swap_of_unknown_end_overwrote() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    put(h, B, "b:1", 6)
    swap(h, B, "b:2", 6, 8, done=False)
    refuse_swap(h, B, "b:2", 7, "a:1")
    assert stated(broken(h, "ETCD-03"), "operation", "value") == ("a:1", "b:1")


def test_a_swap_of_unknown_end_may_replace_the_write_that_it_expected() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    get(h, "b:2", 7, 7, "a:1")
    put(h, B, "b:1", 8)
    assert holds(h, "ETCD-03")


def test_the_write_that_a_swap_expected_may_be_read_after_it() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7)
    get(h, "b:0", 5, 5, "a:0", serializable=True)
    get(h, "b:1", 7, 7, "a:1")
    assert holds(h, "ETCD-03")


def test_a_swap_refused_although_its_expectation_held_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, B, "b:0", 5, 6, done=False)
    refuse_swap(h, B, "b:0", 5, "a:0")
    assert stated(broken(h, "ETCD-03"), "operation", "refused") == ("b:0", True)


def test_a_swap_that_found_another_write_is_refused_in_keeping_with_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, B, "b:0", 4, 6, done=False)
    refuse_swap(h, B, "b:0", 5, "a:0")
    assert holds(h, "ETCD-03")


def test_the_value_of_a_swap_that_was_refused_breaks_etcd_03_whenever_it_is_read() -> None:
    for late in (False, True):
        h = HistoryBuilder()
        put(h, A, "a:0", 5)
        swap(h, A, "a:1", 4, 6, done=False)
        if late:
            get(h, "b:0", 6, 6, "a:1", serializable=True)
        refuse_swap(h, A, "a:1", 5, "a:0")
        if not late:
            get(h, "b:0", 6, 6, "a:1", serializable=True)
        found = verdict(h, "ETCD-03").violations
        assert [stated(one, "value", "revision") for one in found if "failed" in one.facts] == [
            ("a:1", 6)
        ]


def test_a_write_that_takes_effect_twice_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    first = put(h, A, "a:0", 5)
    put(h, B, "b:0", 6)
    get(h, "b:1", 7, 7, "a:0")
    found = broken(h, "ETCD-03")
    assert stated(found, "key", "value") == ("r0", "a:0")
    assert stated(found, "revision", "other_revision") == (5, 7)
    assert found.because == (first.ref,)


def test_the_value_of_a_write_that_failed_breaks_etcd_03_whenever_it_is_read() -> None:
    for late in (False, True):
        h = HistoryBuilder()
        invoke(h, A, "a:0", "put", value="a:0")
        if late:
            get(h, "b:0", 5, 5, "a:0")
        complete(h, A, "a:0", "put", -1, outcome="failed", error="etcdserver: too many requests")
        if not late:
            get(h, "b:0", 5, 5, "a:0")
        assert stated(broken(h, "ETCD-03"), "failed") is True


def test_concurrent_operations_and_serializable_reads_keep_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, B, "b:0", "get")
    put(h, A, "a:1", 6)
    complete(h, B, operation="b:0", action="get", revision=5, mod_revision=5, value="a:0")
    get(h, "b:1", 5, 5, "a:0", serializable=True)
    get(h, "b:2", 6, 6, "a:1")
    swap(h, B, "b:3", 6, 7)
    assert holds(h, "ETCD-03")


def test_a_write_of_unknown_end_may_show_or_not() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, A, "a:1", "put", value="a:1")
    complete(h, A, "a:1", "put", -1, outcome="unknown", error="timed out")
    get(h, "b:0", 5, 5, "a:0")
    get(h, "b:1", 6, 6, "a:1")
    assert holds(h, "ETCD-03")
    assert holds(h, "ETCD-02")


def test_etcd_03_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 5, 5, "a:0")
    assert unknown(h, "ETCD-03", complete=False)


def test_a_value_that_no_client_had_asked_to_write_breaks_etcd_03() -> None:
    for serializable in (False, True):
        h = HistoryBuilder()
        put(h, A, "a:0", 5)
        read = get(h, "b:0", 9, 7, "x:0", serializable=serializable)
        found = broken(h, "ETCD-03")
        assert stated(found, "operation", "value", "revision") == ("b:0", "x:0", 7)
        assert found.at == read.ref


def test_a_refused_swap_that_shows_a_value_that_nobody_asked_to_write_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    swap(h, B, "b:0", 4, 6, done=False)
    refuse_swap(h, B, "b:0", 5, "x:0")
    assert stated(broken(h, "ETCD-03"), "operation", "value") == ("b:0", "x:0")


def test_a_value_that_was_asked_for_only_after_it_was_read_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    get(h, "b:0", 9, 7, "a:0")
    invoke(h, A, "a:0", "put", value="a:0")
    complete(h, A, "a:0", "put", -1, outcome="unknown", error="timed out")
    get(h, "b:1", 9, 7, "a:0")
    found = broken(h, "ETCD-03")
    assert stated(found, "operation", "value") == ("b:0", "a:0")
    assert verdict(h, "ETCD-03").violated == 1


def test_a_value_may_be_read_before_its_write_ends_or_without_its_end() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, B, "b:0", "get")
    invoke(h, A, "a:1", "swap", value="a:1", expected=5)
    complete(h, B, "b:0", "get", 6, mod_revision=6, value="a:1")
    get(h, "b:1", 6, 6, "a:1", serializable=True)
    assert holds(h, "ETCD-03")


def test_whether_a_value_was_asked_for_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 9, 7, "x:0")
    assert unknown(h, "ETCD-03", complete=False)
    assert stated(broken(h, "ETCD-03"), "value") == "x:0"


def test_no_value_is_accused_once_something_that_was_asked_for_is_forgotten() -> None:
    for more, accused in ((0, 1), (1, 0)):
        h = HistoryBuilder()
        for number in range(KEPT + more):
            invoke(h, A, f"a:{number}", "put", value=f"a:{number}")
        get(h, "b:0", 9, 7, "x:0")
        get(h, "b:1", 9, 6, "a:0", serializable=True)
        assert verdict(h, "ETCD-03").violated == accused


def test_a_key_that_is_newer_than_the_store_of_the_same_answer_breaks_etcd_03() -> None:
    for serializable in (False, True):
        for revision, wrong in ((4, 1), (5, 0)):
            h = HistoryBuilder()
            invoke(h, A, "a:0", "put", value="a:0")
            get(h, "b:0", revision, 5, "a:0", serializable=serializable)
            assert verdict(h, "ETCD-03").violated == wrong
    h = HistoryBuilder()
    invoke(h, A, "a:0", "put", value="a:0")
    get(h, "b:0", 4, 5, "a:0")
    shown = stated(broken(h, "ETCD-03"), "operation", "revision", "store_revision")
    assert shown == ("b:0", 5, 4)
