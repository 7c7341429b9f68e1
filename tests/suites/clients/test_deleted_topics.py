"""What rules about messages make of a topic that is deleted, or is said to be, and made again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites import partition_histories as p
from tests.suites.clients.client_histories import (
    A,
    acked,
    answer_deletion,
    delete_replica,
    delete_topic,
    invoke_named,
    make_topic,
    poll,
    read,
    verdict,
)
from tests.suites.partition_histories import stated
from tests.suites.replication.replication_histories import mark, store

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ConsumerPositioned, LeadershipEnded, TopicCommitted

Words = Callable[[HistoryBuilder], None]
WORDS = pytest.mark.parametrize("delete", [delete_topic, answer_deletion])


def positioned(h: HistoryBuilder) -> None:
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=-2))


def test_the_word_of_the_leader_that_the_topic_is_deleted_loses_no_evidence() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    acked(h, 1)
    poll(h, A, 0)
    delete_replica(h)
    poll(h, p.CLIENT, 0, o0="other")
    read(h, 2)
    for anomaly in ("lost-write", "inconsistent-offsets"):
        assert verdict(h, anomaly).verdict is Outcome.VIOLATED


def test_the_word_of_the_leader_that_the_topic_is_deleted_hides_no_lost_commit() -> None:
    h = HistoryBuilder()
    p.lead(h, p.B1, 1)
    mark(h, p.B1, 7)
    h.add(p.B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="deleted"))
    p.lead(h, p.B2, 2, log_end=6)
    assert p.verdict(h, "RP-06").verdict is Outcome.VIOLATED


@WORDS
def test_a_topic_that_is_made_again_has_other_messages(delete: Words) -> None:
    """No node says that it deletes anything, as on Apache Kafka."""
    h = HistoryBuilder()
    acked(h, 0, "old")
    poll(h, A, 0, o0="old")
    delete(h)
    make_topic(h)
    invoke_named(h, "new")
    acked(h, 0, "new")
    positioned(h)
    poll(h, A, 0, o0="new")
    poll(h, "clients/reader#1", 0, o0="new")
    read(h, 1)
    for anomaly in ("lost-write", "inconsistent-offsets"):
        assert verdict(h, anomaly).verdict is Outcome.HOLDS


@WORDS
def test_a_topic_that_is_made_again_is_judged_anew(delete: Words) -> None:
    h = HistoryBuilder()
    delete(h)
    make_topic(h)
    invoke_named(h, "new")
    acked(h, 0, "new")
    read(h, 1)
    assert stated(verdict(h, "lost-write"), "operation", "offset") == ("new", 0)


@WORDS
def test_late_answers_of_a_deleted_topic_are_not_of_the_next_one(delete: Words) -> None:
    h = HistoryBuilder()
    invoke_named(h, "late")
    delete(h)
    acked(h, 0, "late")
    poll(h, A, 5, o5="old")
    read(h, 1)
    for anomaly in ("lost-write", "unseen", "inconsistent-offsets"):
        assert verdict(h, anomaly).verdict is Outcome.NOT_EXERCISED


@WORDS
def test_a_write_to_a_topic_that_was_deleted_is_not_of_the_next_one(delete: Words) -> None:
    """Its leader has not read of the deletion yet."""
    h = HistoryBuilder()
    delete(h)
    invoke_named(h, "old")
    acked(h, 80, "old")
    make_topic(h)
    invoke_named(h, "new")
    acked(h, 0, "new")
    positioned(h)
    poll(h, A, 0, o0="new")
    poll(h, "clients/reader#1", 0, o0="new")
    read(h, 1)
    for anomaly in ("lost-write", "nonmonotonic-send", "unseen"):
        assert verdict(h, anomaly).verdict is not Outcome.VIOLATED


def test_one_deletion_by_two_words_is_one() -> None:
    h = HistoryBuilder()
    for delete in (delete_topic, answer_deletion):
        delete(h)
        make_topic(h)
        invoke_named(h, "new")
        acked(h, 0, "new")
    read(h, 1)
    assert verdict(h, "lost-write").verdict is Outcome.VIOLATED


def test_replicas_of_a_topic_that_is_made_again_begin_anew() -> None:
    h = HistoryBuilder()
    p.lead(h, p.B1, 1)
    store(h, p.B1, 0, "old", as_leader=True)
    mark(h, p.B1, 1)
    delete_topic(h)
    mark(h, p.B1, 9)  # late, of the former topic
    p.lead(h, p.B2, 1)
    store(h, p.B2, 0, "new", as_leader=True)
    mark(h, p.B2, 1)
    for clause in ("RP-05", "RP-06", "RP-13", "RP-15", "RP-27"):
        assert p.verdict(h, clause).verdict is not Outcome.VIOLATED
    p.lead(h, p.B3, 2)
    assert p.verdict(h, "RP-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("made", [False, True], ids=["deleted", "made again"])
def test_a_node_that_starts_with_the_messages_of_a_deleted_topic_does_not_count_until_it_is_made(
    made: bool,
) -> None:
    """It has not read of the deletion yet. Once the topic is there again, no log of it is old."""
    h = HistoryBuilder()
    p.lead(h, p.B1, 1)
    store(h, p.B1, 0, "old", as_leader=True)
    mark(h, p.B1, 1)
    delete_topic(h)
    if made:
        h.add(
            p.CONTROLLER,
            TopicCommitted(offset=60, topic="orders", topic_id="new", deleted=False),
        )
    p.follow(h, "broker-2#2", log_end=9, mark=9)
    mark(h, "broker-2#2", 9)
    p.lead(h, p.B3, 0)
    store(h, p.B3, 0, "new", as_leader=True)
    assert (p.verdict(h, "RP-06").verdict is Outcome.VIOLATED) is made


@pytest.mark.parametrize(("log_end", "broken"), [(9, False), (0, True)])
def test_a_node_that_starts_to_lead_a_deleted_topic_is_no_second_leader_of_the_next(
    log_end: int, broken: bool
) -> None:
    """RP-24. A node with an empty log may lead the next topic already."""
    h = HistoryBuilder()
    p.lead(h, p.B1, 4, log_end=9)
    delete_topic(h)
    p.lead(h, "broker-1#2", 4, log_end=log_end)
    p.lead(h, p.B3, 4)
    assert (p.verdict(h, "RP-24").verdict is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(
    ("told", "later_ms", "expected"),
    [
        (False, 30_001, Outcome.UNKNOWN),
        (False, 29_990, Outcome.NOT_EXERCISED),
        (True, 30_001, Outcome.NOT_EXERCISED),
    ],
)
def test_a_deletion_that_nobody_records_leaves_undecided_what_comes_after(
    told: bool, later_ms: int, expected: Outcome
) -> None:
    """A client was answered that the topic is deleted, and the topic is still there."""
    h = HistoryBuilder()
    p.partition(h, 1, leader=1, epoch=1)
    acked(h, 0)
    answer_deletion(h)
    if told:
        delete_topic(h)
    h.after(later_ms)
    invoke_named(h, "op-1")
    acked(h, 1)
    poll(h, "clients/reader#1", 0)
    read(h, 2)
    assert verdict(h, "lost-write").verdict is expected
