"""The state of an etcd cluster by its events: the leader, and the clients' operations.

"Leads" means: by a member's own log. If two members lead, in different terms, the one of the newer
term counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import final

from fencepost import Event, Layout, ProcessExited, Slot, View
from fencepost_clusters.etcd.events import (
    BecameLeader,
    LeaderElected,
    LeaderLost,
    LockCompleted,
    MemberReady,
    MemberStarted,
    RegisterCompleted,
    RegisterInvoked,
    StoppedLeading,
    StoreCompleted,
)
from fencepost_clusters.etcd.log_parser import MEMBER


@final
class EtcdView:
    """See the module; processes are named as in the events, members by their ids."""

    def __init__(self) -> None:
        self.member: dict[str, str] = {}
        """process -> the id of the member that it is."""
        self.ready: set[str] = set()
        """Processes that serve clients."""
        self.leading: dict[str, int] = {}
        """process -> the term in which it leads."""
        self.known_leader: dict[str, str] = {}
        """process -> the member that it follows, or itself; missing: it knows no leader."""
        self.completed: Counter[str] = Counter()
        """client -> operations on keys that took effect."""
        self.taken: Counter[str] = Counter()
        """client -> locks that it took."""
        self.written: Counter[str] = Counter()
        """client -> writes that a store took."""
        self.refused: Counter[str] = Counter()
        """client -> writes that a store refused for a newer token."""
        self.token: dict[str, int] = {}
        """lock -> the token of its newest holder, as far as clients know."""
        self.keys: dict[str, None] = {}
        """Every key that clients have used, in order."""
        self.read_finally: set[str] = set()
        """Keys whose final read succeeded."""

    def apply(self, view: View, event: Event) -> None:
        """See `Fold`."""
        process = event.process
        match event.body:
            case MemberStarted(member=member):
                self.member[process] = member
            case MemberReady():
                self.ready.add(process)
            case BecameLeader(member=member, term=term):
                self.leading[process] = term
                self.known_leader[process] = member
            case StoppedLeading():
                self.leading.pop(process, None)
                self.known_leader.pop(process, None)
            case LeaderElected(leader=leader):
                self.known_leader[process] = leader
            case LeaderLost():
                self.known_leader.pop(process, None)
            case ProcessExited(ended=ended):
                self.leading.pop(ended, None)
                self.known_leader.pop(ended, None)
                self.ready.discard(ended)
            case body:
                self._of_client(process, body)

    def _of_client(self, client: str, body: object) -> None:
        match body:
            case RegisterInvoked(key=key):
                self.keys.setdefault(key)
            case RegisterCompleted(outcome="ok", key=key, final=final_read):
                self.completed[client] += 1
                if final_read:
                    self.read_finally.add(key)
            case LockCompleted(action="take", outcome="ok", lock=lock, token=token):
                self.taken[client] += 1
                self.token[lock] = max(token, self.token.get(lock, -1))
            case StoreCompleted(outcome="ok"):
                self.written[client] += 1
            case StoreCompleted(newer_token=newer, token=token) if newer > token:
                self.refused[client] += 1

    def leader(self) -> str | None:
        """The process that leads in the newest term; None if none does."""
        return max(self.leading, key=lambda process: self.leading[process], default=None)


def leading_slot(view: View) -> str | None:
    """The slot of the leader; None if there is none."""
    process = view.of(EtcdView).leader()
    return None if process is None else view.slot_of.get(process)


def missing(view: View, layout: Layout) -> Sequence[str]:
    """What this cluster lacks to have recovered; see `System.missing`."""
    etcd, lacks = view.of(EtcdView), []
    leader = etcd.leader()
    if leader is None:
        lacks.append("no member leads")
    for slot in layout.of(MEMBER):
        process = view.newest.get(slot.name, "")
        lack = _lack(etcd, process, leader) if process in view.alive else "is dead"
        if lack:
            lacks.append(f"{slot.name} {lack}")
    lacks += [f"{slot.name} lives" for slot in layout.slots if _lives(view, slot)]
    return lacks


def _lack(etcd: EtcdView, process: str, leader: str | None) -> str:
    if process not in etcd.ready:
        return "does not serve clients yet"
    known = etcd.known_leader.get(process, "")
    if not known:
        return "knows no leader"
    if leader is not None and known != etcd.member.get(leader, known):
        return f"follows member {known}, which does not lead"
    return ""


def _lives(view: View, slot: Slot) -> bool:
    return slot.duplicate and view.newest.get(slot.name, "") in view.alive
