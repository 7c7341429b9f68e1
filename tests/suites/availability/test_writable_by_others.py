"""AVAIL-writable, where an idempotent producer holds its writes back: it raises its epoch for each
message that times out. What another client writes meanwhile, and a consumer reads, is committed."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import PRODUCER, STUCK_MS, Story, writable

from fencepost.testing import Outcome
from fencepost_kafka import ProducerEpochChanged

OTHER_PRODUCER, THIRD = "clients/producer-2#1", "clients/producer-3#1"
STEP_MS = STUCK_MS // 4


def raise_epoch(story: Story, client: str = PRODUCER) -> None:
    body = ProducerEpochChanged(
        topic="orders", partition=0, producer_id=1, epoch=2, since_ns=story.h.now_ns
    )
    story.h.add(client, body)


def write(story: Story, offset: int) -> None:
    """Another client writes with acks=1, and is answered."""
    story.invoke(f"op-{offset}", acks=1, client=OTHER_PRODUCER)
    story.complete(f"op-{offset}", acks=1, client=OTHER_PRODUCER)


def long_without(*, raised: bool = True, read: bool = True, others: int = 4) -> Story:
    """A write stays open for longer than the bound, while so many of another client succeed."""
    story = Story()
    story.write("first")
    story.die("broker-1")
    story.fault("kill-1", "broker-1#1")
    story.invoke("next")
    for offset in range(4):
        story.after(STEP_MS)
        if raised:
            raise_epoch(story)
        if offset < others:
            write(story, offset)
            if read:
                story.poll(offset)
    return story.after(STEP_MS)


def test_a_partition_that_commits_the_writes_of_others_is_writable() -> None:
    assert writable(long_without()).violated == 0


@pytest.mark.parametrize(
    "story",
    [long_without(raised=False), long_without(read=False), long_without(others=0)],
    ids=["the producer says nothing", "nothing is read", "nothing else is written"],
)
def test_it_is_a_violation_where(story: Story) -> None:
    assert writable(story).verdict is Outcome.VIOLATED


def test_it_is_a_violation_once_the_writes_of_others_have_ended_for_longer_than_the_bound() -> None:
    assert writable(long_without().after(STUCK_MS)).verdict is Outcome.VIOLATED


def test_it_is_a_violation_for_a_producer_that_did_not_raise_its_epoch() -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    story.invoke("third", client=THIRD)
    for offset in range(4):
        story.after(STEP_MS)
        raise_epoch(story)
        write(story, offset)
        story.poll(offset)
    assert writable(story.after(STEP_MS)).verdict is Outcome.VIOLATED


def test_a_write_of_before_that_is_read_late_shows_nothing() -> None:
    story = Story()
    write(story, 0)
    story.write("first")
    story.invoke("next")
    story.after(STUCK_MS - 100)
    raise_epoch(story)
    story.poll(0)
    assert writable(story.after(200)).verdict is Outcome.VIOLATED


def test_the_time_counts_from_the_write_and_not_from_its_reading() -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    story.after(STEP_MS)
    raise_epoch(story)
    write(story, 0)
    story.after(STEP_MS).poll(0)
    assert writable(story.after(STUCK_MS - STEP_MS)).verdict is Outcome.VIOLATED
