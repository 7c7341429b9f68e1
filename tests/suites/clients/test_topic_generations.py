"""Which words make a topic anew, and which events are of the one before it."""

from __future__ import annotations

import pytest
from tests.suites import partition_histories as p
from tests.suites.clients.client_histories import (
    READER,
    A,
    acked,
    answer_deletion,
    delete_topic,
    invoke_named,
    make_topic,
    poll,
    read,
    verdict,
)
from tests.suites.clients.test_deleted_topics import positioned
from tests.suites.clients.test_poll_rules import lead, out_of_range
from tests.suites.replication.replication_histories import mark, store

from fencepost import ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import AdminCompleted, TopicCommitted

VIOLATED, NOT_EXERCISED = Outcome.VIOLATED, Outcome.NOT_EXERCISED


def loses_a_new_write(h: HistoryBuilder) -> None:
    invoke_named(h, "new")
    acked(h, 0, "new")


@pytest.mark.parametrize(
    ("api", "outcome", "expected"),
    [
        ("create_topic", "ok", VIOLATED),
        ("create_topic", "failed", NOT_EXERCISED),
        ("delete_topic", "failed", NOT_EXERCISED),
        ("alter_topic", "ok", NOT_EXERCISED),
    ],
)
def test_a_client_may_be_answered_that_the_topic_is_made_again(
    api: str, outcome: str, expected: Outcome
) -> None:
    h = HistoryBuilder()
    answer_deletion(h)
    h.add(
        "clients/admin#1",
        AdminCompleted(
            operation="c",
            api=api,
            subject="orders",
            outcome=outcome,  # type: ignore[arg-type]
            error="",
        ),
    )
    loses_a_new_write(h)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is expected


def answers(h: HistoryBuilder, api: str, outcome: str) -> None:
    body = AdminCompleted(
        operation="c",
        api=api,
        subject="orders",
        outcome=outcome,  # type: ignore[arg-type]
        error="",
    )
    h.add("clients/admin#1", body)


@pytest.mark.parametrize(
    ("deleted", "made", "broken"),
    [
        ("unknown", "ok", 0),
        ("failed", "ok", 1),
        ("unknown", "failed", 1),
        ("unknown", "unknown", 1),
    ],
)
@pytest.mark.parametrize("anomaly", ["lost-write", "inconsistent-offsets", "nonmonotonic-send"])
def test_a_topic_that_could_be_made_again_had_been_deleted(
    anomaly: str, deleted: str, made: str, broken: int
) -> None:
    """The answer of the deletion was lost, and nothing tells the records of controllers."""
    h = HistoryBuilder()
    invoke_named(h, "old")
    acked(h, 0, "old")
    answers(h, "delete_topic", deleted)
    answers(h, "create_topic", made)
    invoke_named(h, "new")
    acked(h, 0, "new")
    positioned(h)
    poll(h, A, 0, o0="new")
    poll(h, READER, 0, o0="new")
    read(h, 1)
    assert verdict(h, anomaly).violated == broken


@pytest.mark.parametrize("first", ["records", "answers"])
def test_a_deletion_whose_answer_was_lost_is_one_by_its_record_and_by_the_next_answer(
    first: str,
) -> None:
    """Otherwise the word that comes second would take the evidence of the new topic."""
    h = HistoryBuilder()
    make_topic(h, 1)
    for words in ("records", "answers") if first == "records" else ("answers", "records"):
        if words == "records":
            delete_topic(h)
            make_topic(h)
        else:
            answers(h, "delete_topic", "unknown")
            answers(h, "create_topic", "ok")
        if words == first:
            loses_a_new_write(h)
    read(h, 1)
    assert verdict(h, "lost-write").violated == 1


def test_in_the_topic_that_was_made_again_a_lost_write_counts() -> None:
    h = HistoryBuilder()
    acked(h, 0, "old")
    answers(h, "delete_topic", "unknown")
    answers(h, "create_topic", "ok")
    loses_a_new_write(h)
    read(h, 1)
    assert verdict(h, "lost-write").violated == 1


def test_a_topic_that_was_made_again_stays_so_whatever_clients_are_answered() -> None:
    h = HistoryBuilder()
    delete_topic(h)
    make_topic(h)
    h.add(
        "clients/admin#1",
        AdminCompleted(
            operation="c", api="create_topic", subject="orders", outcome="failed", error="exists"
        ),
    )
    loses_a_new_write(h)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is VIOLATED


def test_a_deletion_that_a_second_node_replays_is_one() -> None:
    h = HistoryBuilder()
    delete_topic(h, offset=9)
    make_topic(h)
    loses_a_new_write(h)
    delete_topic(h, offset=9)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is VIOLATED


@pytest.mark.parametrize(("offset", "expected"), [(9, NOT_EXERCISED), (10, VIOLATED)])
def test_only_a_record_after_the_deletion_makes_the_topic_again(
    offset: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    delete_topic(h, offset=9)
    make_topic(h, offset=offset)
    loses_a_new_write(h)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is expected


def test_a_consumer_of_the_second_topic_is_none_of_the_third() -> None:
    h = HistoryBuilder()
    delete_topic(h)
    make_topic(h)
    positioned(h)
    delete_topic(h, offset=30)
    poll(h, A, 0, o0="old")
    make_topic(h, offset=40)
    invoke_named(h, "new")
    acked(h, 0, "new")
    assert verdict(h, "inconsistent-offsets").verdict is NOT_EXERCISED


def test_a_write_to_the_second_topic_is_none_to_the_third() -> None:
    h = HistoryBuilder()
    delete_topic(h)
    make_topic(h)
    invoke_named(h, "late")
    delete_topic(h, offset=30)
    acked(h, 0, "late")
    make_topic(h, offset=40)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is NOT_EXERCISED


@pytest.mark.parametrize(("offset", "deposed"), [(9, False), (10, True)])
def test_only_a_leader_by_a_record_after_the_deletion_leads_the_next_topic(
    offset: int, deposed: bool
) -> None:
    h = HistoryBuilder()
    delete_topic(h, offset=9)
    make_topic(h, offset=10)
    invoke_named(h, "op-4", "op-0")
    positioned(h)
    poll(h, A, 4, 5)
    lead(h, 2, offset)
    elected = h.events()[-1].ref
    out_of_range(h, 1)
    poll(h, A, 0)
    (found,) = verdict(h, "nonmonotonic-poll").violations
    assert (elected in found.because) == deposed


@pytest.mark.parametrize(("later_ms", "broken"), [(29_000, 0), (31_000, 1)])
def test_a_broker_that_has_not_read_of_the_deletion_serves_the_former_topic_for_a_while(
    later_ms: int, broken: int
) -> None:
    h = HistoryBuilder()
    acked(h, 0, "old")
    answers(h, "delete_topic", "ok")
    answers(h, "create_topic", "ok")
    positioned(h)
    poll(h.after(later_ms), A, 0, o0="old")
    invoke_named(h, "new")
    acked(h, 0, "new")
    poll(h, READER, 0, o0="new")
    read(h, 1)
    assert verdict(h, "inconsistent-offsets").violated == broken


@pytest.mark.parametrize(
    ("replays", "later_ms", "counts"),
    [(1, 10, False), (50, 10, True), (60, 10, True), (None, 10, True), (1, 31_000, True)],
)
def test_a_node_that_replays_late_may_follow_the_former_topic_for_a_while(
    replays: int | None, later_ms: int, counts: bool
) -> None:
    """RP-06: the topic was deleted and made again while the node was down. What it had committed of
    the former one is nothing that a leader of the new one lacks."""
    late, h = "broker-3#2", HistoryBuilder()
    for process in (p.B1, p.B2):
        delete_topic(h, 50, process)
        make_topic(h, 60, process)
    p.lead(h, p.B1, 0)
    if replays is not None:
        make_topic(h, replays, late)
    h.after(later_ms)
    p.follow(h, late, log_end=5, mark=5, epoch=0)
    p.lead(h, p.B2, 1, log_end=3, mark=3)
    assert (p.verdict(h, "RP-06").violated > 0) is counts


def test_a_consumer_that_got_the_former_topic_counts_again_once_it_is_positioned() -> None:
    for again, broken in ((False, 0), (True, 1)):
        h = HistoryBuilder()
        acked(h, 0, "old")
        answers(h, "delete_topic", "ok")
        answers(h, "create_topic", "ok")
        invoke_named(h, "new")
        positioned(h)
        poll(h, A, 0, o0="old")
        if again:
            positioned(h)
        poll(h, A, 0, 1, o0="new")
        poll(h, READER, 0, o0="new")
        read(h, 1)
        assert verdict(h, "inconsistent-offsets").violated == broken


def test_a_node_that_begins_again_with_old_messages_does_not_count_any_more() -> None:
    """It began with an empty log, and then with what its disk has of the deleted topic."""
    h = HistoryBuilder()
    p.lead(h, p.B1, 1)
    store(h, p.B1, 0, "old", as_leader=True)
    mark(h, p.B1, 1)
    delete_topic(h)
    p.follow(h, p.B2, log_end=0, mark=0)
    p.follow(h, p.B2, log_end=9, mark=9)
    mark(h, p.B2, 9)
    p.lead(h, p.B3, 0)
    store(h, p.B3, 0, "new", as_leader=True)
    assert p.verdict(h, "RP-06").verdict is not VIOLATED


def spawns(h: HistoryBuilder, role: str, *slots: str) -> None:
    for number, slot in enumerate(slots, 1):
        h.add(
            "harness",
            ProcessSpawned(started=f"{slot}#1", slot=slot, role=role, node_id=number, pid=1),
        )


def deletes(h: HistoryBuilder, process: str, offset: int = 9) -> None:
    h.add(process, TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=True))


@pytest.mark.parametrize(
    ("tellers", "expected"),
    [
        (("broker-1#1",), VIOLATED),
        (("broker-1#1", "broker-1#2"), VIOLATED),
        (("broker-1#1", "broker-2#1"), NOT_EXERCISED),
        (("controller-1#1",), NOT_EXERCISED),
        (("clients/observer#1",), NOT_EXERCISED),
    ],
)
def test_one_brokers_word_that_the_topic_is_deleted_takes_no_evidence(
    tellers: tuple[str, ...], expected: Outcome
) -> None:
    """The leader has lost all, and says so alone."""
    h = HistoryBuilder()
    spawns(h, "broker", "broker-1", "broker-2")
    spawns(h, "controller", "controller-1")
    loses_a_new_write(h)
    for process in tellers:
        deletes(h, process)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is expected


def test_over_zookeeper_a_brokers_word_that_the_topic_is_deleted_counts() -> None:
    """One of the brokers is the controller there."""
    h = HistoryBuilder()
    spawns(h, "broker", "broker-1", "broker-2")
    loses_a_new_write(h)
    deletes(h, "broker-1#1")
    read(h, 1)
    assert verdict(h, "lost-write").verdict is NOT_EXERCISED


def test_a_node_gets_no_answer_of_clients() -> None:
    h = HistoryBuilder()
    spawns(h, "broker", "broker-1", "broker-2")
    loses_a_new_write(h)
    answered = AdminCompleted(
        operation="d", api="delete_topic", subject="orders", outcome="ok", error=""
    )
    h.add("broker-2#1", answered)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is VIOLATED


def test_an_answer_after_the_topic_was_made_again_is_about_another_deletion() -> None:
    """The answer to the first deletion was lost, and the second is observed late: after a write to
    the third topic."""
    h = HistoryBuilder()
    delete_topic(h, 9)
    make_topic(h, 11)
    answer_deletion(h)
    created = AdminCompleted(
        operation="c", api="create_topic", subject="orders", outcome="ok", error=""
    )
    h.add("clients/admin#1", created)
    loses_a_new_write(h)
    delete_topic(h, 19)
    make_topic(h, 21)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is VIOLATED
