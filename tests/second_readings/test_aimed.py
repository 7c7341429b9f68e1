"""Rules that random changes seldom or never reach fire in a recorded run of Apache Kafka in which
one thing is changed with a purpose.

Such a change needs two things that fit together, such as the id of a topic that was deleted and the
segment of a log; see `docs/explanation/firing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from fencepost import Event
from fencepost.plugins.manager import Plugins, load
from fencepost_clusters.apache_kafka.log_memory import FaultReported
from second_readings.firing import Witness, witnesses
from second_readings.reading import History
from second_readings.sources import FINDINGS, recorded

Changes = Callable[[Sequence[Event]], Iterator[Sequence[Event]]]
"""All histories in which one thing is changed so."""


@cache
def plugins() -> Plugins:
    return load()


@cache
def run(name: str) -> History:
    return recorded(FINDINGS / name, plugins())


def witness(name: str) -> Witness:
    return next(one for one in witnesses(plugins().promises) if one.name == name)


def said(events: Sequence[Event], place: int, **fields: Any) -> Sequence[Event]:
    """The events, of which that one says something else."""
    event = events[place]
    body = structs.replace(event.body, **fields)
    return [*events[:place], structs.replace(event, body=body), *events[place + 1 :]]


def agreed(events: Sequence[Event], of: Any, **fields: Any) -> Sequence[Event]:
    """The events, in which all say something else of that record."""
    return [
        structs.replace(event, body=structs.replace(event.body, **fields))
        if event.body == of
        else event
        for event in events
    ]


def of_kind(events: Sequence[Event], kind: str) -> Iterator[tuple[int, Any]]:
    for place, event in enumerate(events):
        if event.kind == kind:
            yield place, event.body


def a_deleted_topic_is_on_a_disk(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for _, topic in of_kind(events, "metadata.topic"):
        for place, segment in of_kind(events, "disk.segment"):
            if topic.deleted and segment.slot.startswith("broker"):
                yield said(events, place, topic=topic.topic, topic_id=topic.topic_id)


def a_partition_is_made_without_a_leader(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    made = set()
    for _, record in of_kind(events, "metadata.partition"):
        if (record.topic, record.partition) not in made:
            made.add((record.topic, record.partition))
            yield agreed(events, record, leader=-1)


def a_snapshot_has_another_state(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for place, state in of_kind(events, "disk.metadata_state"):
        if state.by_snapshot:
            yield said(events, place, digest="x", sound="x")


def a_watermark_is_beyond_its_log(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for place, segment in of_kind(events, "disk.segment"):
        yield said(events, place, high_watermark=segment.log_end + 1)


def a_session_ends_just_after_a_heartbeat(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for end, session in of_kind(events, "controller.lease_expired"):
        for place, answer in reversed(list(of_kind(events[:end], "controller.heartbeat_answered"))):
            if answer.broker_id == session.broker_id and answer.error == "NONE":
                yield said(events, place, received_at_ns=events[end].at_ns - 1_000_000)
                break


def a_thread_fails(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for place, _ in of_kind(events, "node.started"):
        event = structs.replace(events[place], body=FAULT)
        yield [*events[: place + 1], event, *events[place + 1 :]]


FAULT = FaultReported(**dict.fromkeys(FaultReported.__struct_fields__, "x"))


@pytest.mark.parametrize(
    ("name", "in_run", "changes"),
    [
        (
            "RP-25 DeletedIsRemoved kraft",
            "deleted-topic-keeps-settings",
            a_deleted_topic_is_on_a_disk,
        ),
        ("KR-33 LedFromTheFirst", "forgotten-isr-request", a_partition_is_made_without_a_leader),
        ("KR-24 ControllersHoldTheState", "refused-duplicate", a_snapshot_has_another_state),
        ("RP-27 StoredWatermark", "refused-duplicate", a_watermark_is_beyond_its_log),
        (
            "KR-18 SessionLastsItsTime",
            "forgotten-isr-request",
            a_session_ends_just_after_a_heartbeat,
        ),
        ("KR-39 MeetsNoFault", "refused-duplicate", a_thread_fails),
    ],
)
def test_a_rule_fires_in_a_recorded_run_with_one_thing_changed(
    name: str, in_run: str, changes: Changes
) -> None:
    rule, history, promises = witness(name), run(in_run), plugins().promises
    events = rule.reads(history)
    assert not rule.fires(history, events, promises)
    assert any(rule.fires(history, changed, promises) for changed in changes(events))
