"""How events are given to rules: the keys, as plain functions, so that rules can share them.

The judge asks a `keys` function once for an event and all rules that share it; so it must not look
at the rule. A rule takes one as `keys = staticmethod(by_partition)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fencepost import Event, Finding, ProcessExited
from fencepost_kafka import HeartbeatAnswered, LogAppended, ProbeCompleted

Keys = tuple[tuple[str | int, ...], ...]
NONE: Keys = ()
RUN: Keys = ((),)
NOTHING: Sequence[Finding] = ()
"""What most steps find."""


def whole_run(event: Event) -> Keys:
    """One key for all: for what is decided once in a cluster, by few events."""
    return RUN


def by_partition(event: Event) -> Keys:
    """Topic and partition; what of it does not matter to a rule, its `step` leaves aside."""
    body: Any = event.body
    return ((body.topic, body.partition),)


def by_topic(event: Event) -> Keys:
    """The topic."""
    body: Any = event.body
    return ((body.topic,),)


def by_broker(event: Event) -> Keys:
    """The broker id the event is about."""
    body: Any = event.body
    return ((body.broker_id,),)


def by_process(event: Event) -> Keys:
    """The process that wrote it, and for a heartbeat's answer the one it goes to."""
    body = event.body
    if isinstance(body, HeartbeatAnswered):
        return ((body.client,),)
    return ((event.process,),)


def by_writer(event: Event) -> Keys:
    """The process that wrote it."""
    return ((event.process,),)


def by_life(event: Event) -> Keys:
    """The process that wrote it, or whose end the harness saw."""
    body = event.body
    return ((body.ended if isinstance(body, ProcessExited) else event.process,),)


def by_reader(event: Event) -> Keys:
    """Topic, partition and the client that reads."""
    body: Any = event.body
    return ((body.topic, body.partition, event.process),)


def by_slot_serving(event: Event) -> Keys:
    """The slot of a node, and that which a probe was sent to; not what a follower stores."""
    body = event.body
    if isinstance(body, LogAppended):
        return ((slot_of(event.process),),) if body.as_leader else NONE
    if isinstance(body, ProbeCompleted):
        return ((body.slot,),)
    return ((slot_of(event.process),),)


def by_slot_living(event: Event) -> Keys:
    """As `by_slot_serving`, and the slot of a process whose end the harness saw."""
    body = event.body
    if isinstance(body, ProcessExited):
        return ((slot_of(body.ended),),)
    return by_slot_serving(event)


@lru_cache(maxsize=4096)
def slot_of(process: str) -> str:
    """`broker-2` of `broker-2#3`."""
    return process.partition("#")[0]
