"""The event kinds of etcd: what its members log, what its clients do, what its status shows.

A member is named by its id, in hexadecimal digits as etcd logs it. A slot is named as in the
layout. Revisions are etcd's: one counter for the whole store, which each write raises by one. A
revision of -1 is not known; a `mod_revision` of 0 means that the key does not exist.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

RegisterAction = Literal["put", "get", "swap"]
LeaseAction = Literal["grant", "renew", "revoke"]
LockAction = Literal["take", "release"]
Outcome = Literal["ok", "failed", "unknown"]
"""What an answer proves: it took effect, it never will, or neither is known."""


# ----------------------------------------------------------------------------- logged by a member


class MemberStarted(Struct, frozen=True, kw_only=True, tag="etcd.member_started"):
    """A process began as a member. `restarted`: its disk held a log already."""

    member: str
    cluster: str
    restarted: bool


class MemberReady(Struct, frozen=True, kw_only=True, tag="etcd.member_ready"):
    """A member is in the cluster and serves clients; it knew a leader when it became ready."""

    member: str


class MemberStopping(Struct, frozen=True, kw_only=True, tag="etcd.member_stopping"):
    """A member was told to stop by a signal, or stops after a failure."""

    member: str
    reason: str


class BecameFollower(Struct, frozen=True, kw_only=True, tag="etcd.became_follower"):
    """A member follows in a term, with or without a leader."""

    member: str
    term: int


class CampaignStarted(Struct, frozen=True, kw_only=True, tag="etcd.campaign_started"):
    """A member stands for election. A pre-vote (`pre`) asks without raising the term."""

    member: str
    term: int
    pre: bool


class BecameLeader(Struct, frozen=True, kw_only=True, tag="etcd.became_leader"):
    """A member won the election of a term and leads."""

    member: str
    term: int


class StoppedLeading(Struct, frozen=True, kw_only=True, tag="etcd.stopped_leading"):
    """A member leads no longer: it lost its quorum, heard of a higher term, or handed over."""

    member: str
    term: int
    reason: Literal["quorum-lost", "higher-term", "transferred"]


class LeaderElected(Struct, frozen=True, kw_only=True, tag="etcd.leader_elected"):
    """A member learned which member leads a term."""

    member: str
    leader: str
    term: int


class LeaderLost(Struct, frozen=True, kw_only=True, tag="etcd.leader_lost"):
    """A member knows of no leader any more; `leader` was the last one."""

    member: str
    leader: str
    term: int


class VoteCast(Struct, frozen=True, kw_only=True, tag="etcd.vote_cast"):
    """A member answered a candidate's request for its vote in `term`."""

    member: str
    candidate: str
    term: int
    pre: bool
    granted: bool


class PeerChanged(Struct, frozen=True, kw_only=True, tag="etcd.peer_changed"):
    """A member's connection to a peer came to work, or failed, with the error that it met."""

    member: str
    peer: str
    active: bool
    error: str


class ApplySlow(Struct, frozen=True, kw_only=True, tag="etcd.apply_slow"):
    """A member took longer than expected to apply a request."""

    member: str
    took_ms: int


# ------------------------------------------------------------------------- told by the status API


class MemberObserved(Struct, frozen=True, kw_only=True, tag="etcd.member_observed"):
    """The status of the member in a slot changed; recorded on a change only.

    Leader and term are read by the member one after the other: around an election the pair may be
    of two terms. It is no evidence of who led which term.
    """

    slot: str
    answers: bool
    member: str = ""
    leader: str = ""
    term: int = -1
    index: int = -1


# -------------------------------------------------------------------------------- done by clients


class RegisterInvoked(Struct, frozen=True, kw_only=True, tag="etcd.register_invoked"):
    """A client sends an operation on a key to the member in `slot`.

    `value` is what it writes: the operation's own name, so values are unique in a run. A swap
    writes if the key's mod_revision is `expected`. `final`: read after the run to judge by.
    """

    operation: str
    key: str
    action: RegisterAction
    slot: str
    value: str = ""
    expected: int = -1
    serializable: bool = False
    final: bool = False


class RegisterCompleted(Struct, frozen=True, kw_only=True, tag="etcd.register_completed"):
    """How an operation on a key ended.

    `revision` is the store's in the answer. `mod_revision` and `value` are the key's: as written by
    a put or a swap that took effect, as read by a get or a swap whose comparison failed. `version`
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


class LeaseInvoked(Struct, frozen=True, kw_only=True, tag="etcd.lease_invoked"):
    """A client sends a request about a lease; it chose the lease's id itself."""

    operation: str
    lease: int
    action: LeaseAction
    slot: str


class LeaseCompleted(Struct, frozen=True, kw_only=True, tag="etcd.lease_completed"):
    """How a request about a lease ended; `ttl_s` as the server granted it (0: it is gone)."""

    operation: str
    lease: int
    action: LeaseAction
    outcome: Outcome
    ttl_s: int = -1
    error: str = ""


class LockInvoked(Struct, frozen=True, kw_only=True, tag="etcd.lock_invoked"):
    """A client asks for a lock, or gives back the one it has (`token`)."""

    operation: str
    lock: str
    action: LockAction
    lease: int
    slot: str
    token: int = -1


class LockCompleted(Struct, frozen=True, kw_only=True, tag="etcd.lock_completed"):
    """How that ended. `token` is the create_revision of the lock's key: the fencing token.

    A lock that another holds is a failed take: `holder_lease` and `holder_token` are then its own.
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


class StoreInvoked(Struct, frozen=True, kw_only=True, tag="etcd.store_invoked"):
    """A holder of a lock sends a write to the store that the lock guards."""

    operation: str
    store: str
    lock: str
    token: int
    slot: str
    checked: bool


class StoreCompleted(Struct, frozen=True, kw_only=True, tag="etcd.store_completed"):
    """How that write ended, and at which revision; `newer_token` is why the store refused it."""

    operation: str
    store: str
    lock: str
    token: int
    checked: bool
    outcome: Outcome
    revision: int = -1
    newer_token: int = -1
    error: str = ""


KINDS: tuple[type[Struct], ...] = (
    MemberStarted, MemberReady, MemberStopping, BecameFollower, CampaignStarted, BecameLeader,
    StoppedLeading, LeaderElected, LeaderLost, VoteCast, PeerChanged, ApplySlow, MemberObserved,
    RegisterInvoked, RegisterCompleted, LeaseInvoked, LeaseCompleted, LockInvoked, LockCompleted,
    StoreInvoked, StoreCompleted,
)  # fmt: skip
