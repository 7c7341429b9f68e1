"""Histories of etcd by hand, and the verdicts of its rules on them."""

from __future__ import annotations

from typing import Any

from fencepost import Event
from fencepost.testing import Broken, HistoryBuilder, Outcome, Verdict, judge
from fencepost_clusters.etcd import rules
from fencepost_clusters.etcd.clients.locks import HELD
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
    StoreInvoked,
)
from fencepost_clusters.etcd.plugin import DECLARED

A, B = "clients/a#1", "clients/b#1"
ONE, TWO, THREE = "etcd-1#1", "etcd-2#1", "etcd-3#1"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    known = {one.id: one for one in DECLARED.clauses}
    return judge(h.events(), rules.ALL, known, h.end(complete), "raft").verdicts[clause]


def broken(h: HistoryBuilder, clause: str) -> Broken:
    found = verdict(h, clause)
    assert found.verdict is Outcome.VIOLATED
    return found.violations[0]


def holds(h: HistoryBuilder, clause: str) -> bool:
    return verdict(h, clause).verdict is Outcome.HOLDS


def idle(h: HistoryBuilder, clause: str) -> bool:
    return verdict(h, clause).verdict is Outcome.NOT_EXERCISED


def unknown(h: HistoryBuilder, clause: str, complete: bool = True) -> bool:
    return verdict(h, clause, complete).verdict is Outcome.UNKNOWN


def leads(h: HistoryBuilder, process: str, member: str, term: int) -> Event:
    return h.add(process, BecameLeader(member=member, term=term))


def hears(h: HistoryBuilder, process: str, member: str, leader: str, term: int) -> Event:
    return h.add(process, LeaderElected(member=member, leader=leader, term=term))


def invoke(
    h: HistoryBuilder, client: str, operation: str, action: Any, key: str = "r0", **more: Any
) -> None:
    body = RegisterInvoked(operation=operation, key=key, action=action, slot="etcd-1", **more)
    h.add(client, body)


def complete(
    h: HistoryBuilder,
    client: str,
    operation: str,
    action: Any,
    revision: int,
    mod_revision: int = -1,
    value: str = "",
    key: str = "r0",
    **more: Any,
) -> Event:
    fields: dict[str, Any] = {"outcome": "ok", **more}
    return h.add(
        client,
        RegisterCompleted(
            operation=operation, key=key, action=action, revision=revision,
            mod_revision=mod_revision, value=value, **fields,
        ),
    )  # fmt: skip


def put(h: HistoryBuilder, client: str, name: str, revision: int, **more: Any) -> Event:
    """A write that took effect; `more` may name its key, and the version in its answer."""
    invoke(h, client, name, "put", value=name, key=more.get("key", "r0"))
    return complete(
        h,
        client,
        operation=name,
        action="put",
        revision=revision,
        mod_revision=revision,
        value=name,
        **more,
    )


def get(h: HistoryBuilder, name: str, revision: int, at: int, value: str, **more: Any) -> Event:
    asked = {what: said for what, said in more.items() if what != "version"}
    invoke(h, B, name, "get", **asked)
    return complete(
        h, B, operation=name, action="get", revision=revision, mod_revision=at, value=value, **more
    )


def refuse_swap(h: HistoryBuilder, client: str, name: str, at: int, value: str) -> Event:
    """The answer to a swap that found the key at another revision than it expected."""
    return complete(
        h, client, operation=name, action="swap", revision=at, mod_revision=at, value=value,
        outcome="failed", error=COMPARE_FAILED,
    )  # fmt: skip


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


def lease(h: HistoryBuilder, client: str, number: int, action: Any, **fields: Any) -> Event:
    name = f"{client}:{number}:{action}"
    h.add(client, LeaseInvoked(operation=name, lease=number, action=action, slot="etcd-1"))
    how: dict[str, Any] = {"outcome": "ok", "ttl_s": 2, **fields}
    return h.add(client, LeaseCompleted(operation=name, lease=number, action=action, **how))


def ask_for_lock(h: HistoryBuilder, client: str, number: int) -> str:
    """The operation by which a client begins to take the lock with a lease."""
    name = f"{client}:take:{number}:{h.now_ns}"
    h.add(
        client,
        LockInvoked(operation=name, lock="lock", action="take", lease=number, slot="etcd-1"),
    )
    return name


def answer_take(h: HistoryBuilder, client: str, name: str, number: int, **fields: Any) -> Event:
    how: dict[str, Any] = {"outcome": "ok", **fields}
    body = LockCompleted(operation=name, lock="lock", action="take", lease=number, **how)
    return h.add(client, body)


def take(h: HistoryBuilder, client: str, number: int, **fields: Any) -> Event:
    return answer_take(h, client, ask_for_lock(h, client, number), number, **fields)


def release(h: HistoryBuilder, client: str, number: int, token: int) -> None:
    body = LockCompleted(
        operation=f"{client}:release:{number}", lock="lock", action="release", lease=number,
        outcome="ok", token=token,
    )  # fmt: skip
    h.add(client, body)


def held_by(holder: int, token: int) -> dict[str, Any]:
    """How a take is answered while another holds the lock."""
    return {
        "outcome": "failed",
        "holder_lease": holder,
        "holder_token": token,
        "revision": 99,
        "error": HELD,
    }


def refused(h: HistoryBuilder, client: str, number: int, holder: int, token: int) -> None:
    take(h, client, number, **held_by(holder, token))


def held_and_abandoned(h: HistoryBuilder) -> Event:
    """A client takes the lock with lease 1, for 2 s, and renews it: the event of that renewal."""
    lease(h, A, 1, "grant")
    take(h, A, 1, token=5)
    return lease(h, A, 1, "renew")


def ask_store(h: HistoryBuilder, client: str, token: int) -> str:
    """The operation by which a client begins to write to the store."""
    name = f"{client}:{h.now_ns}"
    h.add(
        client,
        StoreInvoked(
            operation=name, store="store", lock="lock", token=token, slot="etcd-1", checked=True
        ),
    )
    return name


def answer_store(
    h: HistoryBuilder, client: str, name: str, token: int, revision: int = -1, **fields: Any
) -> Event:
    how: dict[str, Any] = {"outcome": "ok", **fields}
    return h.add(
        client,
        StoreCompleted(
            operation=name, store="store", lock="lock", token=token, checked=True,
            revision=revision, **how,
        ),
    )  # fmt: skip


def store(h: HistoryBuilder, client: str, token: int, revision: int = -1, **fields: Any) -> Event:
    return answer_store(h, client, ask_store(h, client, token), token, revision, **fields)
