"""Controllers of which a random schedule empties the disk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kafka.test_administration import storm
from tests.kafka.test_random_schedule import (
    CONTROLLERS,
    LAYOUT,
    TIMING,
    WITH_SERVER,
    begun,
    drawn_at,
)

from fencepost import Moment, Planned, View
from fencepost_kafka import KafkaView
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.situation import Servers

FORGETFUL = KafkaFaultChooser(TIMING, voters_forget=True)
ALL = (101, 102, 103)


def whole(voters: tuple[int, ...] = ALL, behind: str = "") -> View:
    """Each controller has applied what is committed, except one that is behind."""
    view = storm(begun(), voters)
    kafka = view.of(KafkaView)
    kafka.committed = 7
    kafka.applied = {f"{s.name}#1": 6 if s.name == behind else 7 for s in CONTROLLERS}
    return view


def wiped(moment: Moment, chooser: KafkaFaultChooser = FORGETFUL) -> list[Planned]:
    """The plans that empty a controller's disk."""
    drawn = drawn_at(moment, chooser, 400)
    return [one for one in drawn if any(name.startswith("controller") for name in one.victims)]


def test_a_controllers_disk_is_emptied_alone_until_it_has_the_log_again() -> None:
    drawn = wiped(Moment(whole(), LAYOUT, ("wipe_disk",)))
    assert {name for one in drawn for name in one.victims} == {s.name for s in CONTROLLERS}
    assert {(one.alone, one.mends_ms) for one in drawn} == {(True, 2 * TIMING.lease_ms)}


@pytest.mark.parametrize(
    "view",
    [
        whole(behind="controller-3"),
        whole(voters=(101, 102)),
        whole(voters=()),
        storm(begun("controller-2")),
    ],
)
def test_no_disk_is_emptied_without_which_the_others_would_lack_something(view: View) -> None:
    assert wiped(Moment(view, LAYOUT, ("wipe_disk",))) == []


def test_no_controllers_disk_is_emptied_while_anything_is_affected() -> None:
    moment = Moment(whole(), LAYOUT, ("wipe_disk",))
    busy = frozenset({"broker-2"})
    assert wiped(replace(moment, affected=busy)) == []
    assert wiped(replace(moment, mending=busy)) == []
    two = tuple(slot for slot in LAYOUT.slots if slot.name != "controller-3")
    assert wiped(replace(moment, layout=replace(LAYOUT, slots=two))) == []


def test_a_controllers_disk_is_emptied_only_where_rules_know_what_is_forfeited() -> None:
    moment = Moment(whole(), LAYOUT, ("wipe_disk",))
    assert wiped(moment, KafkaFaultChooser(TIMING)) == []
    servers = Servers("zookeeper", lambda view, layout: ())
    assert wiped(replace(moment, layout=WITH_SERVER), replace(FORGETFUL, servers=servers)) == []
