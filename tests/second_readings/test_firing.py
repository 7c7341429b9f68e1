"""One thing changed in a recorded history, and the rules that then fire."""

from __future__ import annotations

from random import Random  # noqa: TID251 - seeded here

import pytest

from fencepost import Event
from fencepost.plugins.manager import Plugins, load
from fencepost.testing import HistoryBuilder
from fencepost_kafka import HighWatermarkAdvanced, Polled
from second_readings.firing import How, OneThing, Witness, fired, one_changed, witnesses
from second_readings.reading import History

LEADER, CONSUMER = "broker-1#1", "clients/consumer-a#1"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def committed(h: HistoryBuilder, offset: int) -> None:
    body = HighWatermarkAdvanced(
        topic="orders",
        partition=0,
        high_watermark=offset,
        log_end=offset,
        leader_epoch=0,
        as_leader=True,
        isr=(1, 2),
        counted=(),
    )
    h.add(LEADER, body)


def polled(h: HistoryBuilder, *offsets: int) -> None:
    operations = tuple(f"op-{offset}" for offset in offsets)
    body = Polled(topic="orders", partition=0, offsets=offsets, operations=operations, final=False)
    h.add(CONSUMER, body)


@pytest.fixture
def history() -> History:
    """A leader commits two messages, one after the other, and a consumer gets each."""
    h = HistoryBuilder()
    for offset in range(2):
        committed(h, offset + 1)
        polled(h, offset)
    return History(h.events(), h.end(), "quorum")


def below_watermark(plugins: Plugins) -> Witness:
    return next(
        one for one in witnesses(plugins.promises) if one.name == "RP-07 ReadsStayBelowWatermark"
    )


def test_a_rule_that_fires_as_recorded_needs_no_change(plugins: Plugins) -> None:
    h = HistoryBuilder()
    committed(h, 1)
    polled(h, 1)
    whole = History(h.events(), h.end(), "quorum")
    found = fired(below_watermark(plugins), whole, plugins.promises, Random(1), tries=5)
    assert found.as_recorded
    assert found.tried == 0


def test_a_rule_fires_once_one_thing_is_changed(plugins: Plugins, history: History) -> None:
    found = fired(below_watermark(plugins), history, plugins.promises, Random(1), tries=100)
    assert not found.as_recorded
    assert found.by is not None
    assert 0 < found.tried < 100


def test_a_rule_whose_kinds_are_not_there_never_fires(plugins: Plugins) -> None:
    h = HistoryBuilder()
    empty = History(h.events(), h.end(), "quorum")
    found = fired(below_watermark(plugins), empty, plugins.promises, Random(1), tries=10)
    assert found.by is None
    assert found.tried == 10


def _differ(events: list[Event], changed: list[Event]) -> int:
    return sum(event not in changed for event in events)


def test_each_way_changes_what_it_says_and_nothing_else(history: History) -> None:
    random, seen = Random(1), set[How]()
    events = list(history.events)
    for _ in range(200):
        one = one_changed(events, random)
        if one is None:
            continue
        thing, changed = one.thing, list(one.events)
        seen.add(thing.how)
        if thing.how is How.LEFT_OUT:
            assert len(changed) == len(events) - 1
        elif thing.how is How.WITHHELD:
            assert thing.kind not in [event.kind for event in changed]
        elif thing.how is How.REPEATED:
            assert len(changed) == len(events) + 1
        elif thing.how is How.LATER:
            assert max(event.at_ns for event in changed) > max(event.at_ns for event in events)
        elif thing.how is How.ALTERED:
            assert _differ(events, changed) == 1
    assert seen == set(How)


def test_a_word_that_all_processes_say_is_altered_in_all() -> None:
    h = HistoryBuilder()
    for process in (LEADER, "broker-2#1"):
        h.add(
            process,
            HighWatermarkAdvanced(
                topic="orders",
                partition=0,
                high_watermark=1,
                log_end=1,
                leader_epoch=0,
                as_leader=process == LEADER,
                isr=(1, 2),
                counted=(),
            ),
        )
    agreed = OneThing(
        how=How.AGREED,
        slot="broker-1",
        kind=h.events()[0].kind,
        field="high_watermark",
    )
    random = Random(1)
    drawn = (one_changed(h.events(), random) for _ in range(5_000))
    one = next(one for one in drawn if one is not None and one.thing == agreed)
    said = [getattr(event.body, "high_watermark", None) for event in one.events]
    assert said[0] == said[1] != 1
