"""ETCD-04: the key of a lease that ran out is gone within a bound.

A lease lasts its TTL from the last renewal for which the client got an answer. A renewal of unknown
outcome counts as one that took effect as late as a member may have held it (`HELD_NS`). A new
leader grants every lease its whole TTL once more, so the time also restarts at each election. The
leader revokes leases, so a pause of its process excuses a delay, and so does a request that it
ends: it hands its leadership over, which takes seconds where a member is cut off, and drops
proposals meanwhile. A lease that was revoked is gone with its key when that is answered, until its
id is granted again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    OBSERVERS,
    Cause,
    Deadline,
    Effect,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    ProcessAsked,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Scope,
    began_ns,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.etcd.events import (
    BecameLeader,
    LeaderElected,
    LeaseCompleted,
    LeaseInvoked,
    LockCompleted,
    LockInvoked,
)
from fencepost_clusters.etcd.rules.keys import HELD_NS, remember

SLACK_MS = 3_000
"""etcd looks for expired leases every 500 ms, and a new leader adds an election timeout; the rest
is for a busy machine."""
_NEVER_NS = 1 << 62


@dataclass(slots=True)
class _Lease:
    ttl_s: int = -1
    renewed_ns: int = -1
    """When the last renewal, or the grant, was answered."""
    at: Cause | None = None
    """That answer; None: there is none yet."""
    open: dict[str, int] = field(default_factory=dict)
    """Request without an answer yet -> when it was sent."""
    in_doubt_ns: int = -1
    """Until when a request of unknown outcome may take effect, and renew the lease."""
    revoked_ns: int = _NEVER_NS
    """When it was answered that the lease was revoked, or was not there to be revoked."""
    revoked: tuple[Cause, ...] = ()
    """That answer."""

    @property
    def begins_ns(self) -> int:
        """When its TTL began for the last time, at the latest."""
        # A client that was killed never gets its answer. For ever would be too long: one lost
        # answer, and the key might stay for good.
        opened = (sent_ns + HELD_NS for sent_ns in self.open.values())
        return max(self.renewed_ns, self.in_doubt_ns, *opened)


@dataclass(slots=True)
class _Pause:
    """A process that a fault keeps from running, or that was asked to end, and from when until
    when."""

    process: str
    from_ns: int
    until_ns: int = _NEVER_NS


@dataclass(slots=True)
class _Leases:
    leases: dict[int, _Lease] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """Take of a lock -> when it was sent."""
    holders: dict[str, int] = field(default_factory=dict)
    """Lock -> the lease by which it was taken last, unless it was released."""
    terms: dict[int, int] = field(default_factory=dict)
    """Term -> when a member first logged its leader. A member may log it again much later, when it
    hears of the leader once more."""
    elected_ns: int = -1
    leader: str = ""
    """The process that became leader last, by its own log."""
    pauses: dict[str, _Pause] = field(default_factory=dict)
    """Fault, or process that was asked to end -> the pause."""
    suspects: dict[Cause, Deadline] = field(default_factory=dict)

    def lease(self, number: int) -> _Lease:
        known = self.leases.get(number)
        return remember(self.leases, number, _Lease()) if known is None else known

    def elected(self, term: int, at_ns: int) -> None:
        if term not in self.terms:
            self.elected_ns = remember(self.terms, term, at_ns)

    def since_ns(self, lease: _Lease) -> int:
        """Since when the lease lasts: a new leader gives every lease its whole time again."""
        return max(lease.begins_ns, self.elected_ns)

    def ended(self, number: int, by_ns: int) -> bool:
        """Whether a lease is known to have run out, or been revoked, by then."""
        lease = self.leases.get(number)
        if lease is None or lease.at is None:
            return False
        ran_out_ns = self.since_ns(lease) + lease.ttl_s * 1000 * MS
        return by_ns >= min(ran_out_ns, lease.revoked_ns)

    def due_ns(self, ran_out_ns: int) -> int:
        """Until when the leader owes that a key is gone: a pause that began before that gives it
        the whole bound again."""
        due_ns = ran_out_ns + SLACK_MS * MS
        for one in self.pauses.values():
            if one.process == self.leader and one.from_ns <= due_ns:
                due_ns = max(due_ns, one.until_ns + SLACK_MS * MS)
        return due_ns


@final
class ExpiredKeysAreGone(Rule[_Leases]):
    """ETCD-04. A client that asks for the lock sees whose lease its key has. One that takes it
    after the former holder's lease had ended sees that the key is gone."""

    clause = "ETCD-04"
    state = _Leases

    @on(
        LeaseInvoked,
        LeaseCompleted,
        LockInvoked,
        LockCompleted,
        BecameLeader,
        LeaderElected,
        FaultInjected,
        FaultHealed,
        ProcessAsked,
        ProcessExited,
    )
    def step(self, state: _Leases, event: Event, body: Struct) -> Findings:
        match body:
            case BecameLeader(term=term):
                state.leader = event.process
                state.elected(term, event.at_ns)
            case LeaderElected(term=term):
                state.elected(term, event.at_ns)
            case FaultInjected(receipt=True, targets=(process, *_)) if body.acts(Effect.STOPS):
                pause = _Pause(process, began_ns(event))
                remember(state.pauses, body.fault_id, pause)
            case FaultHealed(fault_id=fault) if fault in state.pauses:
                state.pauses[fault].until_ns = event.at_ns
            case ProcessAsked(asked=process):
                remember(state.pauses, process, _Pause(process, event.at_ns))
            case ProcessExited(ended=process) if process in state.pauses:
                state.pauses[process].until_ns = event.at_ns
            case LeaseInvoked(operation=operation, lease=number, action=action):
                lease = state.lease(number)
                remember(lease.open, operation, event.at_ns)
                # The id may be granted again. That grant may take effect at once, so a key with
                # this lease is no proof against the revocation any more.
                if action == "grant":
                    lease.revoked_ns, lease.revoked = _NEVER_NS, ()
            case LeaseCompleted():
                self._answered(state.lease(body.lease), event, body)
            case LockInvoked(operation=operation, action="take"):
                remember(state.asked, operation, event.at_ns)
            case LockCompleted():
                return self._locked(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(lease: _Lease, event: Event, body: LeaseCompleted) -> None:
        lease.open.pop(body.operation, None)
        if body.ttl_s == 0:
            # A member that does not know that it leads no longer may miss a lease that is there, so
            # only a request that all members apply proves that it is gone.
            if body.action == "revoke":
                lease.revoked_ns, lease.revoked = event.at_ns, (event.ref,)
        elif body.outcome == "ok":
            lease.ttl_s, lease.renewed_ns, lease.at = body.ttl_s, event.at_ns, event.ref
        elif body.outcome == "unknown":
            lease.in_doubt_ns = event.at_ns + HELD_NS

    def _locked(self, state: _Leases, event: Event, body: LockCompleted) -> Findings:
        if body.action == "release":
            state.holders.pop(body.lock, None)
            return NOTHING
        # The key was there at some time after the request was sent. So the lateness counts up to
        # the sending: it is at least that much.
        asked_ns = state.asked.pop(body.operation, -1)
        if body.outcome == "ok":
            before = state.holders.get(body.lock)
            state.holders[body.lock] = body.lease
            if before is None or before == body.lease:
                return NOTHING
            # The holder released nothing, so its key went with its lease. A key that went before
            # its lease had ended, by all that is known, shows nothing of this promise.
            ended = state.ended(before, asked_ns)
            return (Exercised(event.ref, Evidence.CLIENT),) if ended else NOTHING
        lease = state.leases.get(body.holder_lease)
        # Without an answer to its grant or a renewal, it is not known since when the lease runs.
        if lease is None or lease.at is None:
            return NOTHING
        if asked_ns > lease.revoked_ns:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "the key of {lock} was there after its lease had been revoked",
                lease.revoked,
                lock=Scope("lock", body.lock),
                lease=Scope("lease", f"{body.holder_lease:x}"),
                client=process_scope(event.process),
            )
            return (broken,)
        since_ns, ttl_ns = state.since_ns(lease), lease.ttl_s * 1000 * MS
        late_ns = asked_ns - since_ns - ttl_ns
        if late_ns <= SLACK_MS * MS:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "the key of {lock} was there {late_ms} ms after its lease of {ttl_s} s ran out",
            (lease.at,),
            lock=Scope("lock", body.lock),
            late_ms=late_ns // MS,
            ttl_s=lease.ttl_s,
            lease=Scope("lease", f"{body.holder_lease:x}"),
            client=process_scope(event.process),
        )
        if asked_ns <= state.due_ns(since_ns + ttl_ns):
            why = Reason.of(
                "{leader}, which leads, was paused, or asked to end",
                leader=process_scope(state.leader),
            )
            return (Excused.of(broken, why, ": "),)
        late = Deadline(
            broken, (state.leader, *OBSERVERS), since_ns, asked_ns, ttl_ns, omission=False
        )
        remember(state.suspects, event.ref, late)
        return NOTHING

    def end(self, state: _Leases, end: RunEnd) -> Findings:
        return judged(state.suspects.values(), end)
