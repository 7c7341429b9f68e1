"""The roles of a replica, and a leader's knowledge of its followers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

LossReason = Literal["deleted", "unassigned"]
"""Why a broker has no replica of a partition any more."""
RetireReason = Literal[LossReason, "taken_over", "shutdown"]
"""Why a replica stops leading or following for good."""
CutReason = Literal["high_watermark", "leader_epoch"]
"""The reason for which a follower's log was truncated."""
ProduceRefusal = Literal["not_leader", "not_enough_replicas"]


class Part(Enum):
    """The present role of a replica."""

    IDLE = "idle"
    LEADER = "leader"
    PREPARING = "preparing"
    """It leads, and serves followers, but no client yet: a part in the plane without a
    controller."""
    FOLLOWER = "follower"


APPENDED: Final = 1
"""A change of a replica: its log has another batch."""
COMMITTED: Final = 2
"""A change of a replica: its high watermark is higher."""
ADOPTED: Final = 4
"""A change of a replica: its role, its ISR, or what it knows of a follower."""


@dataclass(slots=True)
class Contact:
    """When a follower last fetched in its session, which all partitions of that session share."""

    last_ns: int = 0


class Follower:
    """The leader's knowledge of a follower; `end` is -1 until the follower has fetched.

    A follower that has the whole log is caught up by each fetch of its session, also by one that
    does not name the partition. So the times of such a follower are those of its `Contact`.
    """

    __slots__ = (
        "_caught_up_ns",
        "_contact",
        "_fetched_ns",
        "_whole",
        "broker_epoch",
        "end",
        "epoch",
        "leader_end",
    )

    def __init__(self, caught_up_ns: int = 0) -> None:
        self.end = -1
        self.broker_epoch = -1
        self.epoch = -1
        """The leader epoch in which it fetched last. What it fetched in an earlier one does not let
        it join the ISR: the replica may have been taken away from it since, with its log."""
        self.leader_end = 0
        """The end of the leader's log at the fetch before."""
        self._contact = Contact()
        self._whole = False
        self._caught_up_ns = caught_up_ns
        self._fetched_ns = 0

    @property
    def caught_up_ns(self) -> int:
        """When the follower last had all that the leader had when it fetched."""
        return self._contact.last_ns if self._whole else self._caught_up_ns

    @property
    def fetched_ns(self) -> int:
        """When the follower last fetched."""
        return self._contact.last_ns if self._whole else self._fetched_ns

    def fetched(self, offset: int, log_end: int, contact: Contact, now_ns: int) -> None:
        """A fetch from `offset` has come now; `contact` has its time once all of it is counted."""
        self.fall_behind()
        if offset >= self.leader_end:
            self._caught_up_ns = max(self._caught_up_ns, self._fetched_ns)
        self._whole = offset >= log_end
        self._contact, self._fetched_ns, self.leader_end = contact, now_ns, log_end

    def fall_behind(self) -> None:
        """The leader's log grows, or the partition leaves the session: later fetches that do not
        name it do not count."""
        if self._whole:
            self._caught_up_ns = self._fetched_ns = self._contact.last_ns
            self._whole = False
