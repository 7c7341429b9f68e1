"""The rules of etcd's clauses, each against a violation, a near miss and an undecided history."""

from __future__ import annotations

from typing import Any

from fencepost import Evidence, Stalled
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_clusters.etcd import rules
from fencepost_clusters.etcd.clauses import CLAUSES, PLANE
from fencepost_clusters.etcd.clients.locks import HELD, OLD_TOKEN
from fencepost_clusters.etcd.clients.registers import COMPARE_FAILED
from fencepost_clusters.etcd.events import (
    BecameLeader,
    LeaderElected,
    LeaseCompleted,
    LeaseInvoked,
    LockCompleted,
    LockInvoked,
    RegisterCompleted,
    RegisterInvoked,
    StoreCompleted,
)

A, B = "clients/a#1", "clients/b#1"
ONE, TWO, THREE = "etcd-1#1", "etcd-2#1", "etcd-3#1"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    known = {one.id: one for one in CLAUSES}
    return judge(h.events(), rules.ALL, known, h.end(complete), PLANE).verdicts[clause]


def violation(h: HistoryBuilder, clause: str) -> str:
    found = verdict(h, clause)
    assert found.verdict is Outcome.VIOLATED
    return found.violations[0].message


def holds(h: HistoryBuilder, clause: str) -> bool:
    return verdict(h, clause).verdict is Outcome.HOLDS


def unknown(h: HistoryBuilder, clause: str, complete: bool = True) -> bool:
    return verdict(h, clause, complete).verdict is Outcome.UNKNOWN


# ---------------------------------------------------------------------------------------- ETCD-01


def leads(h: HistoryBuilder, process: str, member: str, term: int) -> None:
    h.add(process, BecameLeader(member=member, term=term))


def hears(h: HistoryBuilder, process: str, member: str, leader: str, term: int) -> None:
    h.add(process, LeaderElected(member=member, leader=leader, term=term))


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


# ------------------------------------------------------------------------------- ETCD-02, ETCD-03


def invoke(h: HistoryBuilder, client: str, operation: str, action: Any, **more: Any) -> None:
    h.add(
        client,
        RegisterInvoked(operation=operation, key="r0", action=action, slot="etcd-1", **more),
    )


def complete(
    h: HistoryBuilder,
    client: str,
    operation: str,
    action: Any,
    revision: int,
    mod_revision: int = -1,
    value: str = "",
    **more: Any,
) -> None:
    fields: dict[str, Any] = {"outcome": "ok", **more}
    h.add(
        client,
        RegisterCompleted(
            operation=operation, key="r0", action=action, revision=revision,
            mod_revision=mod_revision, value=value, **fields,
        ),
    )  # fmt: skip


def put(h: HistoryBuilder, client: str, name: str, revision: int) -> None:
    invoke(h, client, name, "put", value=name)
    complete(
        h,
        client,
        operation=name,
        action="put",
        revision=revision,
        mod_revision=revision,
        value=name,
    )


def get(h: HistoryBuilder, name: str, revision: int, at: int, value: str, **more: Any) -> None:
    invoke(h, B, name, "get", **more)
    complete(
        h, B, operation=name, action="get", revision=revision, mod_revision=at, value=value, **more
    )


def swap(
    h: HistoryBuilder, client: str, name: str, expected: int, revision: int, done: bool = True
) -> None:
    invoke(h, client, name, "swap", value=name, expected=expected)
    if done:
        complete(
            h,
            client,
            operation=name,
            action="swap",
            revision=revision,
            mod_revision=revision,
            value=name,
        )


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


# ---------------------------------------------------------------------------------------- ETCD-04


def lease(h: HistoryBuilder, client: str, number: int, action: Any, **fields: Any) -> None:
    name = f"{client}:{number}:{action}"
    h.add(client, LeaseInvoked(operation=name, lease=number, action=action, slot="etcd-1"))
    how: dict[str, Any] = {"outcome": "ok", "ttl_s": 2, **fields}
    h.add(client, LeaseCompleted(operation=name, lease=number, action=action, **how))


def take(h: HistoryBuilder, client: str, number: int, **fields: Any) -> None:
    name = f"{client}:take:{number}:{h.now_ns}"
    how: dict[str, Any] = {"outcome": "ok", **fields}
    h.add(
        client,
        LockInvoked(operation=name, lock="lock", action="take", lease=number, slot="etcd-1"),
    )
    h.add(client, LockCompleted(operation=name, lock="lock", action="take", lease=number, **how))


def refused(h: HistoryBuilder, client: str, number: int, holder: int, token: int) -> None:
    take(
        h, client, number, outcome="failed", holder_lease=holder, holder_token=token,
        revision=99, error=HELD,
    )  # fmt: skip


def held_and_abandoned(h: HistoryBuilder) -> None:
    lease(h, A, 1, "grant")
    take(h, A, 1, token=5)
    lease(h, A, 1, "renew")


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


# ------------------------------------------------------------------------------- ETCD-05, ETCD-06


def test_a_token_that_does_not_grow_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    take(h, B, 2, token=4)
    assert "with token 4, after token 5" in violation(h, "ETCD-05")


def test_one_token_for_two_holders_breaks_etcd_05() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    take(h, B, 2, token=5)
    assert "as another did" in violation(h, "ETCD-05")


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


def test_etcd_05_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    take(h, A, 1, token=5)
    assert unknown(h, "ETCD-05", complete=False)


def store(h: HistoryBuilder, client: str, token: int, revision: int = -1, **fields: Any) -> None:
    how: dict[str, Any] = {"outcome": "ok", **fields}
    h.add(
        client,
        StoreCompleted(
            operation=f"{client}:{h.now_ns}", store="store", lock="lock", token=token,
            checked=True, revision=revision, **how,
        ),
    )  # fmt: skip


def test_a_write_of_an_old_holder_breaks_etcd_06_in_any_order_of_the_events() -> None:
    takes = ((B, 7, 20), (A, 5, 21))
    for order in (takes, takes[::-1]):
        h = HistoryBuilder()
        for client, token, revision in order:
            store(h, client, token, revision)
        assert "token 5 at revision 21, after one with token 7" in violation(h, "ETCD-06")


def test_an_old_holder_that_wrote_before_or_was_refused_keeps_etcd_06() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    store(h, A, 5, 19)
    store(h, A, 5, 21, outcome="failed", newer_token=7, error=OLD_TOKEN)
    assert holds(h, "ETCD-06")


def test_etcd_06_is_undecided_if_the_end_of_the_old_holders_write_is_not_known() -> None:
    h = HistoryBuilder()
    store(h, B, 7, 20)
    store(h, A, 5, outcome="unknown", error="timed out")
    assert unknown(h, "ETCD-06")
