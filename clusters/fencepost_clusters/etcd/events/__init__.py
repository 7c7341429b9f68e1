"""The event kinds of etcd: from its members' logs, its status API, and its clients.

A member is named by its id, in hexadecimal digits as etcd logs it. A slot is named as in the
layout. Revisions are etcd's: one counter for the whole store, which each write raises by one. A
revision of -1 is not known; a `mod_revision` of 0 means that the key does not exist.
"""

from __future__ import annotations

from msgspec import Struct

from fencepost_clusters.etcd.events.clients import (
    LeaseAction,
    LeaseCompleted,
    LeaseInvoked,
    LockAction,
    LockCompleted,
    LockInvoked,
    Outcome,
    RegisterAction,
    RegisterCompleted,
    RegisterInvoked,
    StoreCompleted,
    StoreInvoked,
)
from fencepost_clusters.etcd.events.members import (
    ApplySlow,
    BecameFollower,
    BecameLeader,
    CampaignStarted,
    LeaderElected,
    LeaderLost,
    MemberObserved,
    MemberReady,
    MemberStarted,
    MemberStopping,
    PeerChanged,
    StoppedLeading,
    VoteCast,
)

LOGGED: tuple[type[Struct], ...] = (
    MemberStarted, MemberReady, MemberStopping, BecameFollower, CampaignStarted, BecameLeader,
    StoppedLeading, LeaderElected, LeaderLost, VoteCast, PeerChanged, ApplySlow,
)  # fmt: skip
"""The kinds that the log parser makes."""
KINDS: tuple[type[Struct], ...] = (
    *LOGGED, MemberObserved, RegisterInvoked, RegisterCompleted, LeaseInvoked, LeaseCompleted,
    LockInvoked, LockCompleted, StoreInvoked, StoreCompleted,
)  # fmt: skip

__all__ = [
    "KINDS",
    "LOGGED",
    "ApplySlow",
    "BecameFollower",
    "BecameLeader",
    "CampaignStarted",
    "LeaderElected",
    "LeaderLost",
    "LeaseAction",
    "LeaseCompleted",
    "LeaseInvoked",
    "LockAction",
    "LockCompleted",
    "LockInvoked",
    "MemberObserved",
    "MemberReady",
    "MemberStarted",
    "MemberStopping",
    "Outcome",
    "PeerChanged",
    "RegisterAction",
    "RegisterCompleted",
    "RegisterInvoked",
    "StoppedLeading",
    "StoreCompleted",
    "StoreInvoked",
    "VoteCast",
]
