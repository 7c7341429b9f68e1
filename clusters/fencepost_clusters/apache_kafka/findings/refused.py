"""A second process with a broker's id, which the controllers refuse."""

from __future__ import annotations

from fencepost import Numbers, Scene, Strike
from fencepost_kafka import FollowingStarted, HeartbeatRefused, LogAppended, partition_of

_DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"


def is_refused(scene: Scene, fault: Strike) -> bool:
    """Whether a process that the fault was aimed at was refused, since another one has its id."""
    return any(
        fault.struck(event.process) and refused.error == _DUPLICATE
        for event, refused in scene.traces(HeartbeatRefused, since=fault)
    )


def follows(scene: Scene, fault: Strike) -> bool:
    """Whether such a process began to follow in the violation's partition."""
    return any(
        fault.struck(event.process) and partition_of(following) == scene.facts["partition"]
        for event, following in scene.traces(FollowingStarted, since=fault)
    )


def fetched(scene: Scene, fault: Strike, offsets: Numbers) -> bool:
    """Whether such a process fetched any of these offsets of the violation's partition."""
    return offsets is not None and any(
        fault.struck(event.process)
        and partition_of(stored) == scene.facts["partition"]
        and not stored.as_leader
        and stored.base_offset <= offsets[1]
        and offsets[0] < stored.log_end
        for event, stored in scene.traces(LogAppended, since=fault)
    )
