"""ETCD-05 and ETCD-06: fencing tokens, and the store that checks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Undecided,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.etcd.events import LockCompleted, LockInvoked, StoreCompleted, StoreInvoked
from fencepost_clusters.etcd.rules.keys import by_lock, by_store, remember


@dataclass(frozen=True, slots=True)
class _Taken:
    """The greatest token that a holder got, and the event by which it first got it."""

    token: int = -1
    at: Cause | None = None


@dataclass(slots=True)
class _Lock:
    greatest: _Taken = _Taken()
    asked: dict[str, _Taken] = field(default_factory=dict)
    """Open take -> the greatest token when it began."""
    holders: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """Token -> the lease that got it first, and the event."""


@final
class TokensGrow(Rule[_Lock]):
    """ETCD-05. A take that begins after another one ended has a greater token. So has a holder that
    is found by a take which begins after that: its own answer may be lost, and then the client that
    it kept out is the only one that tells of its token."""

    clause = "ETCD-05"
    keys = staticmethod(by_lock)
    state = _Lock

    @on(LockInvoked, LockCompleted)
    def step(self, state: _Lock, event: Event, body: Struct) -> Findings:
        match body:
            case LockInvoked(operation=operation, action="take"):
                # Takes that overlap may get their tokens in any order. So a take is compared with
                # what was known when it began.
                remember(state.asked, operation, state.greatest)
            case LockCompleted(action="take"):
                before = state.asked.pop(body.operation, _Taken())
                if body.outcome == "ok":
                    found = self._held(
                        state, event, before, body.lock, lease=body.lease, token=body.token
                    )
                    # The same token again: the client found its own key, since an answer was lost.
                    grew = before.at is not None and body.token > before.token
                    return found or ((Exercised(event.ref, Evidence.CLIENT),) if grew else NOTHING)
                if body.holder_lease and body.holder_token >= 0:
                    lease, token = body.holder_lease, body.holder_token
                    return self._held(state, event, before, body.lock, lease=lease, token=token)
        return NOTHING

    @staticmethod
    def _held(
        state: _Lock, event: Event, before: _Taken, lock: str, *, lease: int, token: int
    ) -> Findings:
        """A client tells that this lease has the lock with this token: its own, or the one that
        kept it out."""
        first, other = state.holders.get(token) or remember(
            state.holders, token, (lease, event.ref)
        )
        taken = _Taken(token, event.ref)
        state.greatest = max(state.greatest, taken, key=lambda one: one.token)
        # One lease may get its token twice: the client asks again if the answer was lost.
        if first != lease:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{lease} has {lock} with token {token}, as another had, by the word of {client}",
                (other,),
                client=process_scope(event.process),
                lock=Scope("lock", lock),
                token=token,
                other=process_scope(other.process),
                lease=Scope("lease", f"{lease:x}"),
                other_lease=Scope("lease", f"{first:x}"),
            )
            return (broken,)
        if before.at is not None and token < before.token:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{lease} has {lock} with token {token}, after token {other_token} had been given, "
                "by the word of {client}",
                (before.at,),
                client=process_scope(event.process),
                lock=Scope("lock", lock),
                token=token,
                other_token=before.token,
                other=process_scope(before.at.process),
                lease=Scope("lease", f"{lease:x}"),
            )
            return (broken,)
        return NOTHING


@dataclass(frozen=True, slots=True)
class _Write:
    """A token that the store had at a revision: by a write that it took, or by a refusal that names
    the token for which it refused."""

    token: int
    revision: int
    at: Cause


@dataclass(slots=True)
class _Doubt:
    """A write that took effect at a revision that is not known, or may have."""

    token: int
    ended_ns: int
    at: Cause
    old: bool
    """Whether the store had taken a newer holder's write when it ended. One that ended before that
    may take effect later, too, since a member may hold it; but each member that is killed leaves
    such a write."""


@dataclass(slots=True)
class _Store:
    taken: dict[Cause, _Write] = field(default_factory=dict)
    newest: _Taken = _Taken()
    """The greatest token with which the store took a write, and the answer to that."""
    asked: dict[str, tuple[int, _Taken]] = field(default_factory=dict)
    """Open write -> when it was sent, and the newest one then."""
    in_doubt: dict[Cause, _Doubt] = field(default_factory=dict)


@final
class OldHoldersAreRefused(Rule[_Store]):
    """ETCD-06. The order of writes is that of their revisions. A refusal shows the token that the
    store has: no older one than it took before, and the store takes no older one later, even if the
    write that brought it was never answered."""

    clause = "ETCD-06"
    keys = staticmethod(by_store)
    state = _Store

    @on(StoreInvoked, StoreCompleted)
    def step(self, state: _Store, event: Event, body: Struct) -> Findings:
        if isinstance(body, StoreInvoked):
            remember(state.asked, body.operation, (event.at_ns, state.newest))
            return NOTHING
        assert isinstance(body, StoreCompleted)
        sent_ns, before = state.asked.pop(body.operation, (-1, _Taken()))
        if body.outcome == "failed":
            return self._refused(state, event, body, sent_ns, before)
        # A write whose effect is not known is no violation. If it was an old holder's, it leaves
        # open whether such a write would be refused.
        if body.outcome == "unknown" or body.revision <= 0:
            doubt = _Doubt(
                body.token,
                ended_ns=event.at_ns,
                at=event.ref,
                old=body.token < state.newest.token,
            )
            remember(state.in_doubt, event.ref, doubt)
            return NOTHING
        taken = _Taken(body.token, event.ref)
        state.newest = max(state.newest, taken, key=lambda one: one.token)
        write = _Write(body.token, body.revision, event.ref)
        found = self._order(state, body, write)
        remember(state.taken, event.ref, write)
        return found

    @staticmethod
    def _refused(
        state: _Store, event: Event, body: StoreCompleted, sent_ns: int, before: _Taken
    ) -> Findings:
        # A write that was acknowledged before this one was sent came before it in the store. One
        # that was still under way may have come later.
        if before.at is not None and 0 <= body.newer_token < before.token:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{store} refused a write with token {token} for the newer token {newer_token}, "
                "after it had taken one with token {other_token}",
                (before.at,),
                store=Scope("store", body.store),
                token=body.token,
                newer_token=body.newer_token,
                other_token=before.token,
                client=process_scope(event.process),
                other=process_scope(before.at.process),
                lock=Scope("lock", body.lock),
            )
            return (broken,)
        # The write was refused for another reason than a newer token.
        if body.newer_token <= body.token:
            return NOTHING
        # What had ended before this one was sent, with an older token than the store has now, did
        # not replace that token. A refusal that was sent earlier knows nothing of it.
        if body.revision > 0:
            state.in_doubt = {
                at: doubt
                for at, doubt in state.in_doubt.items()
                if doubt.ended_ns >= sent_ns or doubt.token >= body.newer_token
            }
            shown = _Write(body.newer_token, body.revision, event.ref)
            found = OldHoldersAreRefused._order(state, body, shown)
            remember(state.taken, event.ref, shown)
            if found:
                return found
        return (Exercised(event.ref, Evidence.CLIENT),)

    @staticmethod
    def _order(state: _Store, body: StoreCompleted, write: _Write) -> Findings:
        for other in reversed(state.taken.values()):
            # The answers may come in another order than the writes took effect, so both are ordered
            # by token, and then their revisions are compared.
            old, new = sorted((other, write), key=lambda one: (one.token, one.revision))
            if old.revision > new.revision:
                broken = violated(
                    old.at,
                    Evidence.CLIENT,
                    "{store} had token {token} at revision {revision}, after the newer token "
                    "{other_token} at revision {other_revision}",
                    (new.at,),
                    store=Scope("store", body.store),
                    token=old.token,
                    revision=old.revision,
                    other_token=new.token,
                    other_revision=new.revision,
                    client=process_scope(old.at.process),
                    other=process_scope(new.at.process),
                    lock=Scope("lock", body.lock),
                )
                return (broken,)
        return NOTHING

    def end(self, state: _Store, end: RunEnd) -> Findings:
        for doubt in state.in_doubt.values():
            if doubt.old:
                unknown = Reason.of(
                    "how the write of an old holder, with token {token}, ended is not known",
                    token=doubt.token,
                )
                return (Undecided.since(unknown, doubt.at),)
        return NOTHING
