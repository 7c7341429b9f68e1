"""The view of a run: events in another order, or of another source, give the same state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Struct
from tests.kafka.kafka_views import kafka_view

from fencepost import FaultInjected, NodeStarted, ProcessExited, Slot, View
from fencepost.events import Event
from fencepost_kafka import (
    BrokerCommitted,
    ControllerElected,
    FollowingStarted,
    KafkaView,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    MetadataApplied,
    MetadataCommitted,
    PartitionCommitted,
    Role,
    TopicCommitted,
    TopicMarked,
)
from fencepost_kafka.faults.situation import LOSES_DATA
from fencepost_kafka.testing import KafkaNode

LEADS = LeadershipStarted(
    topic="orders",
    partition=0,
    leader_epoch=3,
    isr=(1, 2),
    log_start=-1,
    log_end=10,
    high_watermark=9,
)
RECORD = PartitionCommitted(
    offset=20, topic="orders", partition=0, leader=1, leader_epoch=3, isr=(1, 2), replicas=(1, 2)
)
NODE = KafkaNode(Slot("broker-1", Role.BROKER, 1, 1))


def seen(*recorded: tuple[str, Struct]) -> View:
    view = kafka_view(newest={"broker-1": "broker-1#1"})
    view.apply(
        Event(
            "run",
            "broker-1#1",
            0,
            0,
            NodeStarted(role="broker", node_id=1, incarnation="one", log_end=-1),
        )
    )
    for number, (process, body) in enumerate(recorded, 1):
        view.apply(Event("run", process, number, number, body))
    return view


def test_a_leader_may_report_before_the_record_that_makes_it_one() -> None:
    for order in ((0, 1), (1, 0)):
        recorded = [("broker-1#1", LEADS), ("clients/observer#1", RECORD)]
        view = seen(*(recorded[n] for n in order))
        known = view.of(KafkaView).partitions["orders", 0]
        assert (known.serving, known.serving_epoch, known.log_end) == (1, 3, 10)
        assert NODE.leads("orders", 0).holds(view)


def test_a_leader_of_an_unknown_partition_leads_nothing() -> None:
    assert not NODE.leads("orders", 0).holds(seen(("broker-1#1", LEADS)))


def test_a_node_has_caught_up_by_records_or_by_what_it_reports_as_applied() -> None:
    record = (
        "clients/observer#1",
        MetadataCommitted(offset=7, epoch=1, kind="TopicRecord", digest="x"),
    )
    assert not NODE.caught_up.holds(seen(record))
    assert not NODE.caught_up.holds(
        seen(record, ("broker-1#1", MetadataApplied(offset=6, epoch=1)))
    )
    assert NODE.caught_up.holds(seen(record, ("broker-1#1", MetadataApplied(offset=7, epoch=1))))


def test_a_node_has_not_caught_up_with_records_that_only_an_observer_has_recorded() -> None:
    applied = ("broker-1#1", MetadataApplied(offset=7, epoch=1))
    fenced = (
        "clients/observer#1",
        BrokerCommitted(offset=8, broker_id=2, broker_epoch=5, fenced=True, incarnation="two"),
    )
    assert not NODE.caught_up.holds(seen(applied, fenced))
    assert NODE.caught_up.holds(
        seen(applied, fenced, ("broker-1#1", MetadataApplied(offset=8, epoch=1)))
    )


MADE = TopicCommitted(offset=19, topic="orders", topic_id="t1", deleted=False)
GONE = TopicCommitted(offset=30, topic="orders", topic_id="t1", deleted=True)


def test_a_broker_that_lags_brings_no_deleted_topic_back() -> None:
    first = [("broker-2#1", body) for body in (MADE, RECORD, GONE)]
    behind = [("broker-1#1", body) for body in (MADE, RECORD, LEADS)]
    for recorded in (first + behind, [*first, *behind, ("broker-1#1", GONE)]):
        view = seen(*recorded)
        assert (view.of(KafkaView).topics, view.of(KafkaView).partitions) == ({}, {})


def test_a_topic_that_is_deleted_takes_the_records_that_followed_its_mark() -> None:
    marked = TopicMarked(offset=15, topic="orders", topic_id="t1")
    view = seen(*(("broker-2#1", body) for body in (MADE, marked, RECORD, GONE)))
    assert (view.of(KafkaView).topics, view.of(KafkaView).partitions) == ({}, {})


def test_a_topic_that_is_created_again_counts_and_has_its_new_leader() -> None:
    first = [("broker-2#1", body) for body in (MADE, RECORD, GONE)]
    behind = [("broker-1#1", body) for body in (RECORD, LEADS, GONE)]
    anew = [
        ("broker-1#1", TopicCommitted(offset=31, topic="orders", topic_id="t2", deleted=False)),
        (
            "broker-1#1",
            PartitionCommitted(
                offset=32,
                topic="orders",
                partition=0,
                leader=1,
                leader_epoch=0,
                isr=(1, 2),
                replicas=(1, 2),
            ),
        ),
        (
            "broker-1#1",
            LeadershipStarted(
                topic="orders",
                partition=0,
                leader_epoch=0,
                isr=(1, 2),
                log_start=-1,
                log_end=0,
                high_watermark=0,
            ),
        ),
    ]
    view = seen(*first, *behind, *anew, ("broker-3#1", MADE), ("broker-3#1", RECORD))
    assert view.of(KafkaView).topics == {"orders": "t2"}
    known = view.of(KafkaView).partitions["orders", 0]
    assert (known.offset, known.serving, known.serving_epoch) == (32, 1, 0)


def test_a_controller_that_is_a_broker_ends_with_its_process_and_not_with_a_duplicate() -> None:
    duplicate = "broker-1-duplicate#1"
    elected = (
        ("broker-1#1", NodeStarted(role="controller", node_id=1)),
        ("broker-1#1", ControllerElected(epoch=1, log_end=-1, last_epoch=-1)),
        (duplicate, NodeStarted(role="broker", node_id=1)),
        (duplicate, NodeStarted(role="controller", node_id=1)),
        ("harness", ProcessExited(ended=duplicate, exit_code=1, signal=0, expected=True)),
    )
    assert seen(*elected).of(KafkaView).active_controller == 1
    ended = ("harness", ProcessExited(ended="broker-1#1", exit_code=0, signal=9, expected=True))
    assert seen(*elected, ended).of(KafkaView).active_controller is None


def appended(log_end: int, topic: str = "orders") -> LogAppended:
    return LogAppended(
        topic=topic,
        partition=0,
        base_offset=log_end - 1,
        log_end=log_end,
        expected_base=log_end - 1,
        batch_epoch=3,
        leader_epoch=3,
        as_leader=False,
        digest="a.3",
        producer_id=-1,
        base_sequence=-1,
    )


def followed(log_end: int) -> FollowingStarted:
    return FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=3, log_end=log_end, high_watermark=0
    )


@pytest.mark.parametrize(
    ("fault", "then", "emptied"),
    [
        ("kill", (), set()),
        *((fault, (), {"broker-1"}) for fault in sorted({*LOSES_DATA, "duplicate_id"})),
        ("wipe_disk", (followed(0), appended(1, "__consumer_offsets")), {"broker-1"}),
        ("wipe_disk", (followed(0), appended(1)), set()),
        ("lose_power", (followed(7),), set()),
        ("lose_power", (LEADS,), set()),
    ],
)
def test_a_disk_that_was_harmed_may_have_no_messages_until_a_process_reports_some(
    fault: str, then: Sequence[Struct], emptied: set[str]
) -> None:
    harmed = FaultInjected(
        fault_id="one", fault=fault, targets=("broker-1#1",), receipt=True, evidence=""
    )
    found = seen(("harness", harmed), *(("broker-1#2", body) for body in then))
    assert found.of(KafkaView).emptied == emptied


@pytest.mark.parametrize(("to_offset", "emptied"), [(0, {"broker-1"}), (1, set())])
def test_a_replica_that_drops_its_whole_log_may_have_no_messages(
    to_offset: int, emptied: set[str]
) -> None:
    dropped = LogTruncated(
        topic="orders",
        partition=0,
        to_offset=to_offset,
        from_log_end=7,
        high_watermark=0,
        leader_epoch=3,
        reason="leader_epoch",
    )
    assert seen(("broker-1#1", dropped)).of(KafkaView).emptied == emptied
