"""ETCD-04: the key of a lease that ran out is gone within a bound.

A lease lasts its TTL from the last renewal for which the client got an answer. A new leader grants
every lease its whole TTL once more, so the time also restarts at each election.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Key,
    RunEnd,
    Undecided,
    Violated,
)
from fencepost_clusters.etcd.events import (
    BecameLeader,
    LeaderElected,
    LeaseCompleted,
    LeaseInvoked,
    LockCompleted,
    LockInvoked,
)
from fencepost_clusters.etcd.rules.keys import NOTHING, remember, whole_run

MS = 1_000_000
SLACK_MS = 3_000
"""etcd looks for expired leases every 500 ms, and a new leader adds an election timeout; the rest
is for a busy machine."""
STALL_SHARE = 10
"""A stall of more than this part of the TTL makes the finding undecided."""


@dataclass(slots=True)
class _Lease:
    """`renewed_ns` is when the last renewal, or the grant, was answered (-1: not yet)."""

    ttl_s: int = -1
    renewed_ns: int = -1
    at: Cause | None = None
    open: set[str] = field(default_factory=set)
    in_doubt: bool = False
    """Whether a renewal's outcome is unknown: it may take effect at any later time."""
    ended: bool = False
    """Whether the client revoked it, or learned that it is gone."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    violated: Violated
    from_ns: int
    to_ns: int
    ttl_ns: int


@dataclass(slots=True)
class _Leases:
    leases: dict[int, _Lease] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """Take of a lock -> when it was sent."""
    holders: dict[str, int] = field(default_factory=dict)
    """Lock -> the lease by which it was taken last, unless it was released."""
    elected_ns: int = -1
    suspects: dict[Cause, _Suspect] = field(default_factory=dict)

    def lease(self, number: int) -> _Lease:
        known = self.leases.get(number)
        return remember(self.leases, number, _Lease()) if known is None else known


@final
@dataclass(frozen=True, slots=True)
class ExpiredKeysAreGone:
    """ETCD-04. A client that asks for the lock sees whose lease its key has."""

    clause: str = "ETCD-04"
    kinds: frozenset[type[Struct]] = frozenset(
        {LeaseInvoked, LeaseCompleted, LockInvoked, LockCompleted, BecameLeader, LeaderElected}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Leases:
        return _Leases()

    def step(self, state: _Leases, event: Event) -> tuple[_Leases, Sequence[Finding]]:
        match event.body:
            case BecameLeader() | LeaderElected():
                state.elected_ns = event.at_ns
            case LeaseInvoked(operation=operation, lease=lease):
                state.lease(lease).open.add(operation)
            case LeaseCompleted() as body:
                self._answered(state.lease(body.lease), event, body)
            case LockInvoked(operation=operation, action="take"):
                remember(state.asked, operation, event.at_ns)
            case LockCompleted() as body:
                return state, self._locked(state, event, body)
        return state, NOTHING

    @staticmethod
    def _answered(lease: _Lease, event: Event, body: LeaseCompleted) -> None:
        lease.open.discard(body.operation)
        if body.ttl_s == 0:
            lease.ended = True
        elif body.outcome == "ok":
            lease.ttl_s, lease.renewed_ns, lease.at = body.ttl_s, event.at_ns, event.ref
        elif body.outcome == "unknown":
            lease.in_doubt = True

    def _locked(self, state: _Leases, event: Event, body: LockCompleted) -> Sequence[Finding]:
        if body.action == "release":
            state.holders.pop(body.lock, None)
            return NOTHING
        asked_ns = state.asked.pop(body.operation, event.at_ns)
        if body.outcome == "ok":
            before = state.holders.get(body.lock)
            state.holders[body.lock] = body.lease
            # The holder released nothing, so its lease ended, and the key with it.
            ran_out = before is not None and before != body.lease
            return (Exercised(event.ref, Evidence.CLIENT),) if ran_out else NOTHING
        lease = state.leases.get(body.holder_lease)
        if lease is not None:
            self._still_there(state, event, body, lease, asked_ns)
        return NOTHING

    @staticmethod
    def _still_there(
        state: _Leases, event: Event, body: LockCompleted, lease: _Lease, asked_ns: int
    ) -> None:
        if lease.renewed_ns < 0 or lease.open or lease.in_doubt:
            return
        since_ns = max(lease.renewed_ns, state.elected_ns)
        late_ns = asked_ns - since_ns - lease.ttl_s * 1000 * MS
        if late_ns <= SLACK_MS * MS:
            return
        message = (
            f"the key of {body.lock} was there {late_ns // MS} ms after its lease of "
            f"{lease.ttl_s} s ran out"
        )
        because = () if lease.at is None else (lease.at,)
        broken = Violated(event.ref, Evidence.CLIENT, message, because)
        ttl_ns = lease.ttl_s * 1000 * MS
        remember(state.suspects, event.ref, _Suspect(broken, since_ns, asked_ns, ttl_ns))

    def end(self, state: _Leases, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for one in state.suspects.values():
            stalled_ns = end.stalled_ns(one.from_ns, one.to_ns)
            if stalled_ns * STALL_SHARE > one.ttl_ns:
                message = (
                    f"{one.violated.message}; processes stalled for {stalled_ns // MS} ms then"
                )
                found.append(Undecided(message, one.violated.at))
            else:
                found.append(one.violated)
        return found
