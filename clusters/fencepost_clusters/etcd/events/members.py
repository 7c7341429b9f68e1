"""Kinds of events from a member's log and its status API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change, because

LEADERSHIP = "leadership"
"""The scope of the authority over the whole store: one member has it, in a term."""


def term_scope(term: int) -> str:
    """The scope of the votes of a term."""
    return f"term {term}"


class MemberStarted(Struct, frozen=True, kw_only=True, tag="etcd.member_started"):
    """A process began as a member. `restarted`: its disk held a log already."""

    member: str
    cluster: str
    restarted: bool

    def sentence(self) -> str:
        how = "with the log on its disk" if self.restarted else "with an empty disk"
        return f"began as member {self.member} {how}"


class MemberReady(Struct, frozen=True, kw_only=True, tag="etcd.member_ready"):
    """A member is in the cluster and serves clients; it knew a leader when it became ready."""

    member: str

    def sentence(self) -> str:
        return f"member {self.member} serves clients"


class MemberStopping(Struct, frozen=True, kw_only=True, tag="etcd.member_stopping"):
    """A signal asked a member to stop, or stops after a failure."""

    member: str
    reason: str

    def sentence(self) -> str:
        return f"member {self.member} stops{because(self.reason)}"


class BecameFollower(Struct, frozen=True, kw_only=True, tag="etcd.became_follower"):
    """A member follows in a term, with or without a leader."""

    member: str
    term: int

    def sentence(self) -> str:
        return f"follows in term {self.term}"

    def concerns(self) -> Sequence[str]:
        return (LEADERSHIP, term_scope(self.term))


class CampaignStarted(Struct, frozen=True, kw_only=True, tag="etcd.campaign_started"):
    """A member stands for election. A pre-vote (`pre`) asks without raising the term."""

    member: str
    term: int
    pre: bool

    def sentence(self) -> str:
        asks = (
            "asks whether it could win an election after" if self.pre else "stands for election in"
        )
        return f"{asks} term {self.term}"

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.term),)


class BecameLeader(Struct, frozen=True, kw_only=True, tag="etcd.became_leader"):
    """A member won the election of a term and leads."""

    member: str
    term: int

    def sentence(self) -> str:
        return f"leads in term {self.term}"

    def authority(self) -> Sequence[Authority]:
        gained = Authority(LEADERSHIP, Change.GAINED, self.term, state="leader", wide=True)
        return (gained,)

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.term),)


class StoppedLeading(Struct, frozen=True, kw_only=True, tag="etcd.stopped_leading"):
    """A member leads no longer: it lost its quorum, heard of a higher term, or handed over."""

    member: str
    term: int
    reason: Literal["quorum-lost", "higher-term", "transferred"]

    def sentence(self) -> str:
        return f"no longer leads in term {self.term}{because(self.reason)}"

    def authority(self) -> Sequence[Authority]:
        return (Authority(LEADERSHIP, Change.LOST, self.term, state="follower", wide=True),)

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.term),)


class LeaderElected(Struct, frozen=True, kw_only=True, tag="etcd.leader_elected"):
    """A member learned which member leads a term."""

    member: str
    leader: str
    term: int

    def sentence(self) -> str:
        return f"learned that member {self.leader} leads in term {self.term}"

    def concerns(self) -> Sequence[str]:
        return (LEADERSHIP, term_scope(self.term))


class LeaderLost(Struct, frozen=True, kw_only=True, tag="etcd.leader_lost"):
    """A member knows of no leader any more; `leader` was the last one."""

    member: str
    leader: str
    term: int

    def sentence(self) -> str:
        return f"lost contact with the leader of term {self.term}, member {self.leader}"

    def concerns(self) -> Sequence[str]:
        return (LEADERSHIP, term_scope(self.term))


class VoteCast(Struct, frozen=True, kw_only=True, tag="etcd.vote_cast"):
    """A member answered a candidate's request for its vote in `term`."""

    member: str
    candidate: str
    term: int
    pre: bool
    granted: bool

    def sentence(self) -> str:
        kind = "pre-vote" if self.pre else "vote"
        how = "granted" if self.granted else "refused"
        return f"{how} member {self.candidate} its {kind} in term {self.term}"

    def authority(self) -> Sequence[Authority]:
        if self.pre:
            return ()
        change = Change.GAINED if self.granted else Change.REFUSED
        return (Authority(term_scope(self.term), change, self.term, holder=None),)

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.term),)


class PeerChanged(Struct, frozen=True, kw_only=True, tag="etcd.peer_changed"):
    """A member's connection to a peer came to work, or failed, with the error that it met."""

    member: str
    peer: str
    active: bool
    error: str

    def sentence(self) -> str:
        state = "is connected to" if self.active else "lost its connection to"
        return f"{state} member {self.peer}{because(self.error)}"


class ApplySlow(Struct, frozen=True, kw_only=True, tag="etcd.apply_slow"):
    """A member took longer than expected to apply a request."""

    member: str
    took_ms: int

    def sentence(self) -> str:
        return f"took {self.took_ms} ms to apply a request"


class MemberObserved(Struct, frozen=True, kw_only=True, tag="etcd.member_observed"):
    """The status of the member in a slot changed; recorded on a change only.

    The member reads leader and term one after the other, so around an election they may belong to
    two terms. They do not prove which member led which term.
    """

    slot: str
    answers: bool
    member: str = ""
    leader: str = ""
    term: int = -1
    index: int = -1

    def sentence(self) -> str:
        if not self.answers:
            return f"{self.slot} does not answer"
        leader = f"member {self.leader} as leader" if self.leader else "no leader"
        return f"{self.slot} shows {leader}, term {self.term}, index {self.index}"
