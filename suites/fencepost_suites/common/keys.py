"""The keys of events: plain functions, so that rules can share them.

The judge calls a `keys` function once per event for all rules that share it, so the function must
not depend on the rule. A rule takes one as `keys = staticmethod(by_partition)`.
"""

from __future__ import annotations

from typing import Any, Final

from fencepost import (
    HARMS_FLUSHED,
    Event,
    FaultInjected,
    Key,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
    slot_of,
)
from fencepost_kafka import HeartbeatAnswered, LogAppended, ProbeCompleted

Keys = tuple[tuple[str | int, ...], ...]
NONE: Final[Keys] = ()


def by_partition(event: Event) -> Keys:
    """Topic and partition. A rule ignores the events of a partition that it does not
    need."""
    body: Any = event.body
    return ((body.topic, body.partition),)


def place_of(key: Key) -> str:
    """The name of the partition that `by_partition` has made a key of: `orders-0`."""
    return f"{key[0]}-{key[1]}"


def by_topic(event: Event) -> Keys:
    """The topic."""
    body: Any = event.body
    return ((body.topic,),)


def by_disk(event: Event) -> Keys:
    """The slot of the process that wrote the event; or whose disk a fault emptied or damaged."""
    body: Any = event.body
    if type(body) is FaultInjected:
        return tuple((slot,) for slot in sorted(body.acts(*HARMS_FLUSHED)))
    return ((slot_of(event.process),),)


def by_broker(event: Event) -> Keys:
    """The broker id the event is about."""
    body: Any = event.body
    return ((body.broker_id,),)


def by_process(event: Event) -> Keys:
    """The process that wrote the event; for a heartbeat's answer, also the process it goes to."""
    body: Any = event.body
    if type(body) is HeartbeatAnswered:
        return ((body.client,),)
    return ((event.process,),)


def by_life(event: Event) -> Keys:
    """The process that wrote the event, or that the harness asked to end, or saw the end of."""
    body: Any = event.body
    if type(body) is ProcessAsked:
        return ((body.asked,),)
    return ((body.ended if type(body) is ProcessExited else event.process,),)


def by_slot_serving(event: Event) -> Keys:
    """The slot of a node, the slot that a probe was sent to, or in which the harness started a
    process; without what followers store."""
    body: Any = event.body
    if type(body) is LogAppended:
        return ((slot_of(event.process),),) if body.as_leader else NONE
    if type(body) is ProcessSpawned:
        return ((body.slot,),)
    if type(body) is ProbeCompleted:
        return ((body.slot,),)
    return ((slot_of(event.process),),)


def by_slot_living(event: Event) -> Keys:
    """As `by_slot_serving`, plus the slot of a process whose end the harness recorded, or whose
    heartbeat was answered."""
    body = event.body
    if isinstance(body, HeartbeatAnswered):
        return ((slot_of(body.client),),)
    if isinstance(body, ProcessExited):
        return ((slot_of(body.ended),),)
    return by_slot_serving(event)
