"""A second process with a broker's id, which the controllers refuse."""

from __future__ import annotations

from fencepost import Numbers, Scene, Strike, is_second, slot_of
from fencepost_kafka import FollowingStarted, HeartbeatRefused, LogAppended, partition_of

_DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"


def _second(fault: Strike, process: str) -> bool:
    """Whether it is the second process of the fault, which names the holder of the id, too: what
    the holder follows and fetches itself explains nothing."""
    return fault.struck(process) and is_second(slot_of(process))


def is_refused(scene: Scene, fault: Strike) -> bool:
    """Whether the second process of the fault was refused, since another one has its id."""
    return any(
        _second(fault, event.process) and refused.error == _DUPLICATE
        for event, refused in scene.traces(HeartbeatRefused, since=fault)
    )


def follows(scene: Scene, fault: Strike) -> bool:
    """Whether such a process began to follow in the violation's partition."""
    return any(
        _second(fault, event.process) and partition_of(following) == scene.facts["partition"]
        for event, following in scene.traces(FollowingStarted, since=fault)
    )


def fetched(scene: Scene, fault: Strike, offsets: Numbers) -> bool:
    """Whether such a process fetched any of these offsets of the violation's partition."""
    return offsets is not None and any(
        _second(fault, event.process)
        and partition_of(stored) == scene.facts["partition"]
        and not stored.as_leader
        and stored.base_offset <= offsets[1]
        and offsets[0] < stored.log_end
        for event, stored in scene.traces(LogAppended, since=fault)
    )
