"""ETCD-07: a key that is attached to a lease stays for as long as the lease lasts.

A leader that was deposed, and revokes leases that its successor has renewed, takes locks from
holders that did all that they must; so does a store that loses keys. The next holder's take shows
it: the lock was free, though nobody had released it, and its lease had time left.

How long a lease lasts at least is counted from when its last answered renewal was *sent*, so the
clocks of members do not matter:

    client a sends a renewal of 60 s at 10.0 s, and is answered at 10.1 s
    client b takes the lock, and is answered at 40.0 s: the lease lasted until 70.0 s at least
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    MS,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    FaultInjected,
    Findings,
    Rule,
    Scope,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.etcd.events import (
    LeaseCompleted,
    LeaseInvoked,
    LockCompleted,
    LockInvoked,
)
from fencepost_clusters.etcd.rules.keys import remember

ROUNDED_MS = 1_000
"""A lease may end this much earlier than its TTL: etcd counts in whole seconds."""


@dataclass(slots=True)
class _Lease:
    lasts_ns: int = -1
    """Until when it lasts at least, unless it is revoked."""
    at: Cause | None = None
    """The answer that shows it."""
    revoking: bool = False
    """Whether a client asked to revoke it: it may be gone, whatever the answer."""
    sent: dict[str, int] = field(default_factory=dict)
    """Request without an answer yet -> when it was sent."""


@dataclass(slots=True)
class _Holder:
    """Who took a lock last: the lease and the token, and whether it may have given it up."""

    lease: int
    token: int
    ref: Cause
    releasing: bool = False


@dataclass(slots=True)
class _Kept:
    leases: dict[int, _Lease] = field(default_factory=dict)
    holders: dict[str, _Holder] = field(default_factory=dict)
    harmed: set[str] = field(default_factory=set)
    """The members whose disk a fault has harmed. Two of three may lose what was committed."""

    def lease(self, number: int) -> _Lease:
        known = self.leases.get(number)
        return remember(self.leases, number, _Lease()) if known is None else known

    def lasts(self, number: int, at_ns: int) -> Cause | None:
        """The answer by which a lease lasts beyond a time; None if it may have ended."""
        lease = self.leases.get(number)
        if lease is None or lease.revoking or at_ns >= lease.lasts_ns - ROUNDED_MS * MS:
            return None
        return lease.at


@final
class KeysLastAsTheirLease(Rule[_Kept]):
    """ETCD-07. Judged by the client that takes a lock from another one, and by the answers to
    renewals. A holder that asked to release the lock, or to revoke the lease, may have given it up,
    whatever became of that. Exercised by each take that is refused since the lock is held."""

    clause = "ETCD-07"
    state = _Kept

    @on(LeaseInvoked, LeaseCompleted, LockInvoked, LockCompleted, FaultInjected)
    def step(self, state: _Kept, event: Event, body: Struct) -> Findings:
        match body:
            case FaultInjected():
                state.harmed |= body.acts(*HARMS_DISK)
            case LeaseInvoked(operation=operation, action=action):
                lease = state.lease(body.lease)
                remember(lease.sent, operation, event.at_ns)
                lease.revoking = action == "revoke" or (lease.revoking and action != "grant")
            case LeaseCompleted():
                self._answered(state.lease(body.lease), event, body)
            case LockInvoked(action="release") | LockCompleted(action="release"):
                holder = state.holders.get(body.lock)
                if holder is not None and holder.lease == body.lease:
                    holder.releasing = True
            case LockCompleted(action="take", outcome="ok"):
                return self._taken(state, event, body)
            case LockCompleted(action="take") if body.holder_lease:
                held = state.lasts(body.holder_lease, event.at_ns)
                return (Exercised(event.ref, Evidence.CLIENT),) if held else NOTHING
        return NOTHING

    @staticmethod
    def _answered(lease: _Lease, event: Event, body: LeaseCompleted) -> None:
        sent_ns = lease.sent.pop(body.operation, -1)
        lasts_ns = sent_ns + body.ttl_s * 1_000 * MS
        if body.outcome == "ok" and body.ttl_s > 0 and sent_ns >= 0 and lasts_ns > lease.lasts_ns:
            lease.lasts_ns, lease.at = lasts_ns, event.ref

    @staticmethod
    def _taken(state: _Kept, event: Event, body: LockCompleted) -> Findings:
        before = state.holders.get(body.lock)
        # Two answers may be recorded in another order than the takes had.
        if before is not None and before.token >= body.token:
            return NOTHING
        state.holders[body.lock] = _Holder(body.lease, body.token, event.ref)
        if before is None or before.lease == body.lease or before.releasing:
            return NOTHING
        lasts = state.lasts(before.lease, event.at_ns)
        if lasts is None or len(state.harmed) > 1:
            return NOTHING
        taken = violated(
            event.ref,
            Evidence.CLIENT,
            "{client} took {lock} with token {token}, though {holder} had it with token "
            "{other_token}, and its lease lasted",
            (before.ref, lasts),
            client=process_scope(event.process),
            lock=Scope("lock", body.lock),
            token=body.token,
            holder=process_scope(before.ref.process),
            other_token=before.token,
            lease=Scope("lease", f"{before.lease:x}"),
        )
        return (taken,)
