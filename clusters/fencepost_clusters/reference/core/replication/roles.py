"""What a replica is at the moment, and what a leader knows of its followers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Part(Enum):
    """What a replica is at the moment."""

    IDLE = "idle"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(slots=True)
class Follower:
    """What the leader knows of a follower; `end` is -1 until the follower has fetched."""

    end: int = -1
    broker_epoch: int = -1
    caught_up_ns: int = 0
    leader_end: int = 0
    fetched_ns: int = 0
    told_watermark: int = -1
