"""The script of a client that works under a lock bound to a lease, with fencing tokens.

The client trusts no clock: it goes on until etcd reports that its lease is gone, or the store
reports a write of a newer holder. So a client that stalled, or was cut off, writes with an old
token, and the store must refuse the write.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec.structs import replace

from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.messages import LeaseReply, RenewReply, Response, TxnReply
from fencepost_clusters.etcd.clients.options import LockerOptions
from fencepost_clusters.etcd.clients.outcomes import LEASE_GONE, decoded, of_write
from fencepost_clusters.etcd.clients.script import (
    Members,
    Record,
    Script,
    Send,
    Step,
    Wait,
    ask,
    lease_id,
)
from fencepost_clusters.etcd.events import (
    LeaseAction,
    LeaseCompleted,
    LeaseInvoked,
    LockAction,
    LockCompleted,
    LockInvoked,
    Outcome,
    StoreCompleted,
    StoreInvoked,
)

HELD = "another holds it"
OLD_TOKEN = "the store has seen a newer token"
UNREADABLE = "the answer cannot be read"


class Locker:
    """One client: its names for operations, and the member that it asks."""

    def __init__(
        self, run: str, process: str, options: LockerOptions, slots: tuple[str, ...]
    ) -> None:
        self._run = run
        self._process = process
        self._options = options
        self._members = Members(options.slots or slots)
        self._operations = 0
        self._leases = 0
        self._held_by = 0
        """The lease with which another client last held the lock."""

    def working(self) -> Script:
        """Takes the lock, works and releases it, again and again."""
        options = self._options
        yield from self._make_store()
        held = 0
        while held < options.count or not options.count:
            lease = lease_id(self._run, self._process, self._leases)
            self._leases += 1
            if (yield from self._lease(lease, "grant")):
                token = yield from self._take(lease)
                if token >= 0:
                    held += 1
                    yield from self._hold(lease, token)
                    if not options.abandon_every or held % options.abandon_every:
                        yield from self._lock("release", lease, token)
                        yield from self._lease(lease, "revoke")
            yield Wait(options.every_ms)

    def _make_store(self) -> Script:
        while True:
            answer = yield from self._ask(messages.make_store(self._options.store))
            if of_write(answer).outcome == "ok":
                return
            self._members.move_on()
            yield Wait(self._options.every_ms)

    def _take(self, lease: int) -> Generator[Step, Response | None, int]:
        """The token, once the lock is taken; -1 if the lease is gone before that."""
        while True:
            done = yield from self._lock("take", lease, -1)
            if done.outcome == "ok":
                return done.token
            if done.error == LEASE_GONE:
                return -1
            yield Wait(self._options.every_ms)
            if not (yield from self._lease(lease, "renew")):
                return -1

    def _hold(self, lease: int, token: int) -> Script:
        options = self._options
        for number in range(1, options.writes + 1):
            done = yield from self._write(lease, token)
            if done.newer_token > token:
                return
            renews = options.renew_every and number % options.renew_every == 0
            if renews and not (yield from self._lease(lease, "renew")):
                return
            yield Wait(options.every_ms)

    def _lease(self, lease: int, action: LeaseAction) -> Generator[Step, Response | None, bool]:
        """Whether the lease may still last, by the answers that this client got."""
        operation, slot = self._operation(), self._members.now
        yield Record(LeaseInvoked(operation=operation, lease=lease, action=action, slot=slot))
        request = {
            "grant": messages.grant(lease, self._options.ttl_s),
            "renew": messages.renew(lease),
            "revoke": messages.revoke(lease),
        }[action]
        answer = yield from self._ask(request)
        done = lease_completed(operation, lease, action, answer)
        yield Record(done)
        if done.outcome == "unknown":
            self._members.move_on()
        if action == "renew":
            return done.ttl_s != 0
        return done.outcome == "ok"

    def _lock(
        self, action: LockAction, lease: int, token: int
    ) -> Generator[Step, Response | None, LockCompleted]:
        invoked = LockInvoked(
            operation=self._operation(), lock=self._options.lock, action=action, lease=lease,
            slot=self._members.now, token=token,
        )  # fmt: skip
        yield Record(invoked)
        lock = self._options.lock
        request = (
            messages.take(lock, lease, invoked.operation)
            if action == "take"
            else messages.release(lock, token)
        )
        answer = yield from self._ask(request)
        done = lock_completed(invoked, answer)
        if action == "take" and done.outcome == "ok":
            done = replace(done, former_lease=self._held_by)
            self._held_by = 0
        elif done.holder_lease != lease:
            self._held_by = done.holder_lease or self._held_by
        yield Record(done)
        if done.outcome != "ok" and done.revision < 0:
            self._members.move_on()
        return done

    def _write(self, lease: int, token: int) -> Generator[Step, Response | None, StoreCompleted]:
        options = self._options
        invoked = StoreInvoked(
            operation=self._operation(), store=options.store, lock=options.lock, token=token,
            slot=self._members.now, checked=options.check_tokens, lease=lease,
        )  # fmt: skip
        yield Record(invoked)
        answer = yield from self._ask(
            messages.write_store(options.store, token, invoked.operation, options.check_tokens)
        )
        done = store_completed(invoked, answer)
        yield Record(done)
        if done.outcome != "ok" and done.revision < 0:
            self._members.move_on()
        return done

    def _ask(self, request: messages.Request) -> Generator[Step, Response | None, Response]:
        return ask(Send(self._members.now, request, self._options.limit_ms))

    def _operation(self) -> str:
        self._operations += 1
        return f"{self._process}:{self._operations}"


def lease_completed(
    operation: str, lease: int, action: LeaseAction, answer: Response
) -> LeaseCompleted:
    """The event of the end of a request about a lease."""
    read = of_write(answer, no_leader_refuses=action != "renew")
    outcome, error, ttl_s = read.outcome, read.error, -1
    if error == LEASE_GONE or (action == "revoke" and outcome == "ok"):
        ttl_s = 0
    elif outcome == "ok":
        ttl_s = _granted(action, answer)
        if ttl_s < 0:
            outcome, error = "unknown", UNREADABLE
        elif ttl_s == 0:
            outcome, error = "failed", LEASE_GONE
    return LeaseCompleted(
        operation=operation, lease=lease, action=action, outcome=outcome, ttl_s=ttl_s, error=error
    )


def _granted(action: LeaseAction, answer: Response) -> int:
    if action == "grant":
        grant = decoded(answer, LeaseReply)
        return -1 if grant is None else grant.TTL
    renewal = decoded(answer, RenewReply)
    return -1 if renewal is None else renewal.result.TTL


def lock_completed(invoked: LockInvoked, answer: Response) -> LockCompleted:
    """The event of the end of taking or releasing a lock.

    A take that finds the client's own lease in the key is ok: an earlier take, whose answer was
    lost, took effect.
    """
    read = of_write(answer)
    outcome, error = read.outcome, read.error
    token, holder_lease, holder_token, revision = invoked.token, 0, -1, -1
    if outcome == "ok":
        reply = decoded(answer, TxnReply)
        if reply is None:
            outcome, error = "unknown", UNREADABLE
        else:
            revision = reply.header.revision
            other = None if reply.succeeded else reply.found()
            if other is not None:
                holder_lease, holder_token = other.lease, other.create_revision
            if invoked.action == "take" and reply.succeeded:
                token = revision
            elif invoked.action == "take" and holder_lease == invoked.lease:
                token = holder_token
            elif not reply.succeeded:
                outcome, error = "failed", HELD
    return LockCompleted(
        operation=invoked.operation, lock=invoked.lock, action=invoked.action, lease=invoked.lease,
        outcome=outcome, token=token, holder_lease=holder_lease, holder_token=holder_token,
        revision=revision, error=error,
    )  # fmt: skip


def store_completed(invoked: StoreInvoked, answer: Response) -> StoreCompleted:
    """The event of the end of a write to a store."""
    read = of_write(answer)
    outcome: Outcome = read.outcome
    error, revision, newer = read.error, -1, -1
    if outcome == "ok":
        reply = decoded(answer, TxnReply)
        if reply is None:
            outcome, error = "unknown", UNREADABLE
        else:
            revision = reply.header.revision
            if not reply.succeeded:
                outcome, error = "failed", OLD_TOKEN
                stored = reply.found()
                newer = -1 if stored is None else int(stored.value)
    return StoreCompleted(
        operation=invoked.operation, store=invoked.store, lock=invoked.lock, token=invoked.token,
        checked=invoked.checked, outcome=outcome, revision=revision, newer_token=newer, error=error,
        lease=invoked.lease, slot=invoked.slot,
    )  # fmt: skip
