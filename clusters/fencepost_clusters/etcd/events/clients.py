"""Clients' requests to etcd and their outcomes: registers, leases, locks, stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change, Operation, OperationOutcome, because

RegisterAction = Literal["put", "get", "swap"]
LeaseAction = Literal["grant", "renew", "revoke"]
LockAction = Literal["take", "release"]
Outcome = Literal["ok", "failed", "unknown"]
"""The outcome that an answer proves: it took effect, it never will, or unknown."""


def lease_name(lease: int) -> str:
    """`lease 5a81c03b7d2e4f60`, as etcdctl shows it; also the scope of its authority."""
    return f"lease {lease:x}"


def lock_scope(lock: str) -> str:
    """The scope of the right to work under a lock; its epochs are the fencing tokens."""
    return f"lock {lock}"


def _how(outcome: Outcome, error: str) -> str:
    if outcome == "ok":
        return "was done"
    return f"{'had no effect' if outcome == 'failed' else 'may have been done'}{because(error)}"


class RegisterInvoked(Struct, frozen=True, kw_only=True, tag="etcd.register_invoked"):
    """A client sends an operation on a key to the member in `slot`.

    `value` is what it writes: the operation's own name, so values are unique in a run. A swap
    writes if the key's mod_revision is `expected`. `final`: a read after the run, by which the run
    is judged.
    """

    operation: str
    key: str
    action: RegisterAction
    slot: str
    value: str = ""
    expected: int = -1
    serializable: bool = False
    final: bool = False

    def sentence(self) -> str:
        return f"asks {self.slot} for a {self.action} of {self.key}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, self.action, f"key {self.key}"),)


class RegisterCompleted(Struct, frozen=True, kw_only=True, tag="etcd.register_completed"):
    """An operation on a key ended.

    `revision` is the store's in the answer. `mod_revision` and `value` are the key's: written by a
    put or a swap that took effect, or read by a get or a swap whose comparison failed. `version`
    counts the writes of the key so far.
    """

    operation: str
    key: str
    action: RegisterAction
    outcome: Outcome
    revision: int = -1
    mod_revision: int = -1
    version: int = -1
    value: str = ""
    term: int = -1
    error: str = ""
    serializable: bool = False
    final: bool = False

    def sentence(self) -> str:
        kind = f"serializable {self.action}" if self.serializable else self.action
        shown = f": revision {self.mod_revision}" if self.mod_revision >= 0 else ""
        at = f", store at revision {self.revision}" if self.revision >= 0 else ""
        return f"{kind} of {self.key} {_how(self.outcome, self.error)}{shown}{at}"

    def client_operations(self) -> Sequence[Operation]:
        ended = OperationOutcome(self.outcome)
        return (Operation(self.operation, self.action, f"key {self.key}", ended, self.error),)


class LeaseInvoked(Struct, frozen=True, kw_only=True, tag="etcd.lease_invoked"):
    """A client sends a request about a lease; it chose the lease's id itself."""

    operation: str
    lease: int
    action: LeaseAction
    slot: str

    def sentence(self) -> str:
        return f"asks {self.slot} to {self.action} {lease_name(self.lease)}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, self.action, lease_name(self.lease)),)


class LeaseCompleted(Struct, frozen=True, kw_only=True, tag="etcd.lease_completed"):
    """A request about a lease ended; `ttl_s` is the TTL that the server granted (0: the lease is
    gone)."""

    operation: str
    lease: int
    action: LeaseAction
    outcome: Outcome
    ttl_s: int = -1
    error: str = ""

    def sentence(self) -> str:
        name = lease_name(self.lease)
        if self.ttl_s == 0:
            return f"gave {name} back" if self.action == "revoke" else f"lost {name}: it ran out"
        if self.outcome == "ok":
            verb = "got" if self.action == "grant" else "renewed"
            return f"{verb} {name} for {self.ttl_s} s"
        return f"{self.action} of {name} {_how(self.outcome, self.error)}"

    def authority(self) -> Sequence[Authority]:
        scope = lease_name(self.lease)
        if self.ttl_s == 0:
            return (Authority(scope, Change.LOST),)
        if self.outcome != "ok":
            return (Authority(scope, Change.NOTED, matter="renewal not known"),)
        if self.action == "grant":
            return (Authority(scope, Change.GAINED, 0, state="leased"),)
        return (Authority(scope, Change.NOTED, matter="renewal"),)

    def client_operations(self) -> Sequence[Operation]:
        ended = OperationOutcome(self.outcome)
        name = lease_name(self.lease)
        return (Operation(self.operation, self.action, name, ended, self.error),)


class LockInvoked(Struct, frozen=True, kw_only=True, tag="etcd.lock_invoked"):
    """A client asks for a lock, or releases the one that it holds (`token`)."""

    operation: str
    lock: str
    action: LockAction
    lease: int
    slot: str
    token: int = -1

    def sentence(self) -> str:
        return f"asks {self.slot} to {self.action} {lock_scope(self.lock)}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, self.action, lock_scope(self.lock)),)


class LockCompleted(Struct, frozen=True, kw_only=True, tag="etcd.lock_completed"):
    """A request for a lock ended. `token` is the create_revision of the lock's key: the fencing
    token.

    A lock that another client holds is a failed take: `holder_lease` and `holder_token` are then
    that client's. After a successful take, `former_lease` is the lease with which another client
    held the lock when this client asked before (0: none).
    """

    operation: str
    lock: str
    action: LockAction
    lease: int
    outcome: Outcome
    token: int = -1
    holder_lease: int = 0
    holder_token: int = -1
    revision: int = -1
    error: str = ""
    former_lease: int = 0

    def sentence(self) -> str:
        lock = lock_scope(self.lock)
        if self.outcome != "ok":
            return f"{self.action} of {lock} {_how(self.outcome, self.error)}"
        if self.action == "release":
            return f"released {lock}, token {self.token}"
        took = f"took {lock} with token {self.token} and {lease_name(self.lease)}"
        if not self.former_lease:
            return took
        return f"{took}: {lease_name(self.former_lease)} no longer holds it"

    def authority(self) -> Sequence[Authority]:
        if self.outcome != "ok":
            return ()
        change = Change.GAINED if self.action == "take" else Change.LOST
        state = "holder" if self.action == "take" else ""
        return (Authority(lock_scope(self.lock), change, self.token, state=state),)

    def concerns(self) -> Sequence[str]:
        others = [lease for lease in (self.holder_lease, self.former_lease) if lease]
        return (lock_scope(self.lock), lease_name(self.lease), *map(lease_name, others))

    def client_operations(self) -> Sequence[Operation]:
        ended = OperationOutcome(self.outcome)
        name = lock_scope(self.lock)
        return (Operation(self.operation, self.action, name, ended, self.error),)


class StoreInvoked(Struct, frozen=True, kw_only=True, tag="etcd.store_invoked"):
    """A client that took a lock sends a write to the store that the lock guards.

    `lease` is the one it took the lock with. `checked`: the store compares the token with the
    greatest that it has seen.
    """

    operation: str
    store: str
    lock: str
    token: int
    slot: str
    checked: bool
    lease: int = 0

    def sentence(self) -> str:
        return f"sends {self.slot} a write of {self.store} with token {self.token}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, "write", f"store {self.store}"),)


class StoreCompleted(Struct, frozen=True, kw_only=True, tag="etcd.store_completed"):
    """A write to a store ended, at `revision`. If the store refused it, `newer_token` is the
    greater token that it has seen.

    `slot` is the member that was asked.
    """

    operation: str
    store: str
    lock: str
    token: int
    checked: bool
    outcome: Outcome
    revision: int = -1
    newer_token: int = -1
    error: str = ""
    lease: int = 0
    slot: str = ""

    def sentence(self) -> str:
        write = f"the write of {self.store} with token {self.token}"
        if self.outcome == "ok":
            under = f", taken with {lease_name(self.lease)}" if self.lease else ""
            unchecked = "" if self.checked else ", unchecked"
            held = f"of {lock_scope(self.lock)}{under}"
            return f"{write} {held}, took effect at revision {self.revision}{unchecked}"
        return f"{write} {_how(self.outcome, self.error)}"

    def concerns(self) -> Sequence[str]:
        lease = (lease_name(self.lease),) if self.lease else ()
        return (lock_scope(self.lock), *lease, f"slot {self.slot}")

    def authority(self) -> Sequence[Authority]:
        if self.newer_token <= self.token:
            return ()
        return (Authority(lock_scope(self.lock), Change.REFUSED, self.token),)

    def client_operations(self) -> Sequence[Operation]:
        ended = OperationOutcome(self.outcome)
        return (Operation(self.operation, "write", f"store {self.store}", ended, self.error),)
