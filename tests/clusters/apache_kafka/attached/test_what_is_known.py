"""What is known of a cluster that runs already: by its logs, and by its answers."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from fencepost import Slot
from fencepost_clusters.apache_kafka.attached.asking import PartitionShown, Quorum, Shown
from fencepost_clusters.apache_kafka.attached.log_layout import OwnLayoutParser
from fencepost_clusters.apache_kafka.attached.observer import Looks
from fencepost_clusters.apache_kafka.log_memory import Configured, FaultReported
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ClusterSeen,
    PartitionCommitted,
    Role,
    TopicCommitted,
)

BROKER = Slot("broker-1", Role.BROKER, 1, 1)
CONFIGURED = Configured(session_ms=9000)
SECOND = 1_000_000_000


def test_lines_in_kafkas_own_layout_make_events_by_the_wall_clock() -> None:
    parser = OwnLayoutParser(BROKER, CONFIGURED, utc=True)
    (found,) = parser.parse(
        "[2026-11-30 09:14:40,930] INFO [BrokerLifecycleManager id=1] Successfully registered "
        "broker 1 with broker epoch 13 (kafka.server.BrokerLifecycleManager)"
    )
    assert isinstance(found.body, BrokerStateChanged)
    assert found.wall
    at = datetime(2026, 11, 30, 9, 14, 40, 930_000, tzinfo=UTC)
    assert found.at_ns == round(at.timestamp() * 1000) * 1_000_000


def test_a_fault_of_a_node_is_an_event_and_its_stack_is_none() -> None:
    parser = OwnLayoutParser(BROKER, CONFIGURED, utc=False)
    (found,) = parser.parse(
        "[2026-11-30 09:14:40,930] ERROR Encountered metadata publishing fault: Error (x) here "
        "(org.apache.kafka.server.fault.LoggingFaultHandler)"
    )
    assert isinstance(found.body, FaultReported)
    for line in ("java.lang.IllegalStateException: no", "\tat kafka.Kafka.main(Kafka.scala)", ""):
        assert parser.parse(line) == ()


def test_lines_of_loggers_that_tell_half_a_story_make_no_event() -> None:
    parser = OwnLayoutParser(BROKER, CONFIGURED, utc=False)
    assert not parser.parse(
        "[2026-11-30 09:14:40,930] INFO [Broker id=1] Leader orders-0 with topic id Some(x) "
        "starts at leader epoch 0 from offset 0 with partition epoch 0 (state.change.logger)"
    )


def shown(*live: int, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2)) -> Shown:
    partitions = tuple(
        PartitionShown(
            topic=topic, partition=0, leader=leader, leader_epoch=epoch, replicas=(1, 2), isr=isr
        )
        for topic in ("fencepost-orders", "payments")
    )
    return Shown(
        {one: ("127.0.0.1", one) for one in live},
        {"fencepost-orders": "a", "payments": "b"},
        partitions,
    )


def kinds(bodies: list[Struct]) -> list[type[Struct]]:
    return [type(one) for one in bodies]


def test_a_look_records_what_has_changed_and_of_topics_ours_alone() -> None:
    looks = Looks([1, 2])
    first = list(looks.take(Quorum(1, 5, 100), shown(1, 2), [], SECOND))
    assert kinds(first) == [
        BrokerCommitted, BrokerCommitted, TopicCommitted, PartitionCommitted, ClusterSeen
    ]  # fmt: skip
    assert isinstance(first[3], PartitionCommitted)
    assert first[3].topic == "fencepost-orders"
    assert not list(looks.take(Quorum(1, 5, 100), shown(1, 2), [], SECOND + 1))
    lost = list(looks.take(Quorum(1, 5, 100), shown(1, isr=(1,)), [2], SECOND + 2))
    assert kinds(lost) == [BrokerCommitted, PartitionCommitted, ClusterSeen]
    assert isinstance(lost[0], BrokerCommitted)
    assert (lost[0].fenced, lost[0].offset) == (True, 101)
    assert isinstance(lost[2], ClusterSeen)
    assert lost[2].short == ("fencepost-orders-0", "payments-0")
    assert lost[2].silent == (2,)


def test_a_node_that_lags_behind_turns_no_leader_epoch_back() -> None:
    looks = Looks([1, 2])
    list(looks.take(Quorum(1, 5, 100), shown(1, 2, leader=2, epoch=3), [], SECOND))
    late = list(looks.take(Quorum(1, 5, 101), shown(1, 2, leader=1, epoch=2), [], SECOND + 1))
    assert PartitionCommitted not in kinds(late)


def test_that_nothing_has_changed_is_said_each_second() -> None:
    looks = Looks([1])
    list(looks.take(Quorum(1, 5, 100), shown(1, 2), [], SECOND))
    assert kinds(list(looks.take(Quorum(1, 5, 100), shown(1, 2), [], 2 * SECOND))) == [ClusterSeen]
