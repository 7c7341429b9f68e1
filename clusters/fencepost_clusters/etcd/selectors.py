"""Targets of a schedule by their role in an etcd cluster at that time.

@leader      the member that leads
@follower    one member that does not lead
@followers   every member that does not lead
@members     every member
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Layout, View
from fencepost_clusters.etcd.log_parser import MEMBER
from fencepost_clusters.etcd.view import leading_slot

SELECTORS = ("@leader", "@follower", "@followers", "@members")


def select(selector: str, view: View, layout: Layout) -> Sequence[str] | None:
    """The names of the slots that a selector means now; see `Selecting.select`."""
    members = [slot.name for slot in layout.of(MEMBER)]
    leader = leading_slot(view)
    followers = [name for name in members if leader is not None and name != leader]
    match selector:
        case "@leader":
            return [name for name in members if name == leader]
        case "@follower":
            return followers[:1]
        case "@followers":
            return followers
        case "@members":
            return members
    return None
