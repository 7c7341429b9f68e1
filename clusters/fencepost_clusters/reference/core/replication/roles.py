"""The roles of a replica, and a leader's knowledge of its followers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

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


@dataclass(slots=True)
class Follower:
    """The leader's knowledge of a follower; `end` is -1 until the follower has fetched."""

    end: int = -1
    broker_epoch: int = -1
    caught_up_ns: int = 0
    leader_end: int = 0
    fetched_ns: int = 0
    answered_watermark: int = -1
