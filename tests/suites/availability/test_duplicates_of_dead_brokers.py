"""AVAIL-fenced where another process runs with the id of a dead broker: the broker is the process
that holds the id."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import CONTROLLER, FENCED_MS, Story, fenced

from fencepost import NodeStarted
from fencepost.testing import Outcome
from fencepost_kafka import BrokerCommitted, HeartbeatRefused

LATE_MS = FENCED_MS + 500
DUPLICATE = "broker-1-duplicate#1"


def refused(
    story: Story, process: str = DUPLICATE, error: str = "DUPLICATE_BROKER_REGISTRATION"
) -> None:
    body = HeartbeatRefused(broker_id=1, broker_epoch=-1, error=error, controller=101)
    story.h.add(process, body)


def says(story: Story, process: str, incarnation: str) -> None:
    body = NodeStarted(role="broker", node_id=1, incarnation=incarnation)
    story.h.add(process, body)


def given(story: Story, incarnation: str, *, is_fenced: bool) -> None:
    """A record gives the id to an incarnation."""
    body = BrokerCommitted(
        offset=story.offset(),
        broker_id=1,
        broker_epoch=9,
        fenced=is_fenced,
        incarnation=incarnation,
    )
    story.h.add(CONTROLLER, body)


def doubled() -> Story:
    story = Story()
    story.spawn("broker-1-duplicate")
    return story


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("DUPLICATE_BROKER_REGISTRATION", Outcome.VIOLATED),
        ("NOT_CONTROLLER", Outcome.NOT_EXERCISED),
    ],
)
def test_a_process_whose_registration_was_refused_is_not_the_broker(
    error: str, verdict: Outcome
) -> None:
    story = doubled()
    refused(story, error=error)
    story.die("broker-1")
    assert fenced(story.after(600_000)).verdict is verdict


def test_the_death_of_the_process_that_holds_the_id_is_the_brokers_whatever_others_say() -> None:
    story = doubled()
    says(story, "broker-1#1", "i")
    story.die("broker-1")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_the_end_of_the_refused_process_is_no_death() -> None:
    story = doubled()
    says(story, "broker-1#1", "i")
    says(story, DUPLICATE, "j")
    refused(story)
    story.die("broker-1-duplicate")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_a_process_that_begins_with_the_id_of_a_dead_broker_is_not_yet_that_broker() -> None:
    story = Story()
    story.die("broker-1")
    story.after(1_000).spawn("broker-1-duplicate")
    refused(story)
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_without_records_such_a_process_is_the_broker() -> None:
    story = Story(controllers=0, recorded=False)
    story.spawn("zookeeper-1")
    story.declare(1, "Active")
    story.die("broker-1")
    story.after(1_000).declare(1, "Inactive", epoch=2)
    story.partition(2, (2, 3))
    story.spawn("broker-1-duplicate")
    story.declare(1, "Active", epoch=2)
    story.partition(1, (2, 3, 1))
    assert fenced(story.after(LATE_MS)).violated == 0


def test_once_a_record_gives_it_the_id_it_may_be_elected() -> None:
    story = doubled()
    refused(story)
    story.die("broker-1")
    story.after(3_000).broker(1, fenced=True)
    story.partition(2, (2, 3))
    given(story, "j", is_fenced=True)
    given(story, "j", is_fenced=False)
    story.partition(1, (2, 3, 1))
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS
    story.die("broker-1-duplicate")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_the_first_process_is_not_the_broker_once_it_lost_the_id() -> None:
    story = doubled()
    says(story, "broker-1#1", "i")
    says(story, DUPLICATE, "j")
    given(story, "j", is_fenced=False)
    refused(story, "broker-1#1")
    story.die("broker-1-duplicate")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_an_older_record_gives_the_id_to_no_process() -> None:
    story = doubled()
    refused(story)
    story.die("broker-1")
    body = BrokerCommitted(offset=0, broker_id=1, broker_epoch=0, fenced=True, incarnation="before")
    story.h.add(CONTROLLER, body)
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_record_of_a_dead_brokers_next_incarnation_needs_a_process() -> None:
    story = Story()
    story.die("broker-1")
    given(story, "j", is_fenced=False)
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED
