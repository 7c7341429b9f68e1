"""ETCD-02 and ETCD-03, each against a violation, a near miss and an undecided history."""

from __future__ import annotations

from etcd_histories import A, B, complete, get, holds, invoke, put, swap, unknown, violation

from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd.clients.registers import COMPARE_FAILED


def test_a_later_state_without_the_write_breaks_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 9, 3, "x:0", serializable=True)
    assert "a:0 was acknowledged at revision 5" in violation(h, "ETCD-02")


def test_an_acknowledgement_that_comes_after_the_read_breaks_etcd_02_too() -> None:
    h = HistoryBuilder()
    invoke(h, A, "a:0", "put", value="a:0")
    get(h, "b:0", 9, 3, "x:0")
    complete(h, A, operation="a:0", action="put", revision=5, mod_revision=5, value="a:0")
    assert "a:0 was acknowledged at revision 5" in violation(h, "ETCD-02")


def test_another_value_at_the_revision_of_a_write_breaks_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 9, 5, "x:0")
    assert "'x:0'" in violation(h, "ETCD-02")


def test_a_store_that_went_back_breaks_etcd_02() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    get(h, "b:0", 4, 3, "x:0", final=True)
    assert "at revision 4" in violation(h, "ETCD-02")


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


def test_a_stale_read_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    put(h, A, "a:1", 6)
    get(h, "b:0", 5, 5, "a:0")
    assert "revision 6" in violation(h, "ETCD-03")


def test_a_lost_update_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    swap(h, A, "a:1", 5, 7, done=False)
    swap(h, B, "b:1", 5, 6)
    complete(h, A, operation="a:1", action="swap", revision=7, mod_revision=7, value="a:1")
    assert "overwrote 'b:1'" in violation(h, "ETCD-03")


def test_a_write_between_a_swap_and_the_write_it_expected_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, B, "b:1", "put", value="b:1")
    swap(h, A, "a:1", 5, 7)
    complete(h, B, operation="b:1", action="put", revision=6, mod_revision=6, value="b:1")
    assert "overwrote 'b:1'" in violation(h, "ETCD-03")


def test_a_swap_refused_although_its_expectation_held_breaks_etcd_03() -> None:
    h = HistoryBuilder()
    put(h, A, "a:0", 5)
    invoke(h, B, "b:0", "swap", value="b:0", expected=5)
    complete(
        h,
        B,
        operation="b:0",
        action="swap",
        revision=5,
        mod_revision=5,
        value="a:0",
        outcome="failed",
        error=COMPARE_FAILED,
    )
    assert "was refused" in violation(h, "ETCD-03")


def test_the_value_of_a_write_that_failed_breaks_etcd_03_whenever_it_is_read() -> None:
    for late in (False, True):
        h = HistoryBuilder()
        invoke(h, A, "a:0", "put", value="a:0")
        if late:
            get(h, "b:0", 5, 5, "a:0")
        complete(h, A, "a:0", "put", -1, outcome="failed", error="etcdserver: too many requests")
        if not late:
            get(h, "b:0", 5, 5, "a:0")
        assert "a write that failed" in violation(h, "ETCD-03")


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
