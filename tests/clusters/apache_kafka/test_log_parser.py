"""The table from a node's log to events, compared with what versions of Kafka printed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kafka_samples import LOGS, blocks, rows_of, slot_of

from fencepost import NodeStopped, Slot
from fencepost.events import Codec, Event
from fencepost_clusters.apache_kafka.log_memory import (
    Configured,
    ControllerFailed,
    FaultReported,
    IsrRequestForgotten,
    QuorumConfigured,
    SessionConfigured,
)
from fencepost_clusters.apache_kafka.log_parser import KafkaLogParser
from fencepost_kafka import (
    KINDS,
    ControllerFollowed,
    FollowingStarted,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    NodeWarned,
    Role,
)

BROKER = Slot("broker-1", Role.BROKER, 1, 4)


@pytest.mark.parametrize("sample", LOGS, ids=lambda sample: sample.stem)
def test_the_events_of_a_nodes_log(sample: Path) -> None:
    log_parser = KafkaLogParser(slot_of(sample), Configured(3_000, fetch_timeout_ms=1_500))
    codec = Codec(
        (
            *(SessionConfigured, QuorumConfigured, ControllerFailed, FaultReported),
            *(IsrRequestForgotten, *KINDS),
        )
    )
    for line, expected in blocks(sample):
        heard = log_parser.parse(line)
        assert [msgspec.json.encode(one.body).decode() for one in heard] == expected, line
        for one in heard:
            assert line.startswith(f"@{one.at_ns} ")
            event = Event("run", "broker-1#1", 0, one.at_ns, one.body)
            assert codec.decode(codec.encode(event).rstrip()) == event


def test_no_line_matches_two_rows() -> None:
    for sample in LOGS:
        for line, _ in blocks(sample):
            assert len(rows_of(line)) == 1, line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Exception in thread main",
        "@12 INFO",
        "@x INFO a.B c",
        "  at kafka.Kafka.main",
        "@1 I b ",
    ],
)
def test_a_line_that_no_logger_printed_makes_no_event(line: str) -> None:
    assert KafkaLogParser(BROKER, Configured(3_000)).parse(line) == ()


LEADS = (
    "@{at} INFO state.change.logger [Broker id=1] Leader orders-0 with topic id Some(x) starts at "
    "leader epoch 3 from offset 10 with partition epoch 42, high watermark 9, ISR [1,3], adding "
    "replicas [] and removing replicas [] . Previous leader Some(3) and previous leader epoch was 2"
)
UNFENCED = (
    "@{at} INFO org.apache.kafka.server.BrokerLifecycleManager [BrokerLifecycleManager id=1] The "
    "broker has been unfenced. Transitioning from RECOVERY to RUNNING."
)


def test_a_broker_that_was_never_unfenced_leads_nothing_whatever_its_metadata_says() -> None:
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    assert log_parser.parse(LEADS.format(at=5)) == []
    parsed = log_parser.parse(UNFENCED.format(at=9))
    began = LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=3,
        isr=(1, 3),
        log_start=-1,
        log_end=10,
        high_watermark=9,
    )
    assert {one.at_ns for one in parsed} == {9}
    assert [one.body for one in parsed if isinstance(one.body, LeadershipStarted)] == [began]


REMOVED = (
    "@{at} INFO kafka.log.LogManager Log for partition orders-0 is renamed to "
    "/data/orders-0.794cf5aa458f4ca489550df3e54a0a3d-delete and is scheduled for deletion"
)


def test_a_replica_that_was_removed_before_its_broker_is_unfenced_never_leads() -> None:
    """A broker with an empty disk may read an old snapshot first, and the newer records only then:
    by the snapshot it leads, and by the records it is a replica no more."""
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    assert log_parser.parse(LEADS.format(at=5)) == []
    assert log_parser.parse(REMOVED.format(at=7)) == []
    parsed = log_parser.parse(UNFENCED.format(at=9))
    assert [one for one in parsed if isinstance(one.body, LeadershipStarted)] == []


def test_a_leader_whose_replica_is_removed_stops_leading() -> None:
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    log_parser.parse(UNFENCED.format(at=1))
    log_parser.parse(LEADS.format(at=5))
    (heard,) = log_parser.parse(REMOVED.format(at=7))
    assert heard.body == LeadershipEnded(
        topic="orders", partition=0, leader_epoch=3, reason="unassigned"
    )
    assert log_parser.parse(REMOVED.format(at=8)) == []


def test_a_partition_named_with_dashes_is_split_at_the_last_one() -> None:
    line = LEADS.replace("orders-0", "my-orders-12").format(at=5)
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    log_parser.parse(UNFENCED.format(at=1))
    (heard,) = log_parser.parse(line)
    assert isinstance(heard.body, LeadershipStarted)
    assert (heard.body.topic, heard.body.partition) == ("my-orders", 12)


def test_a_follower_without_a_leader_has_leader_minus_one() -> None:
    line = (
        "@5 INFO state.change.logger [Broker id=1] Follower orders-0 starts at leader epoch 4 from "
        "offset 10 with partition epoch 43 and high watermark 9. Current leader is -1. Previous "
        "leader Some(1) and previous leader epoch was 3."
    )
    (heard,) = KafkaLogParser(BROKER, Configured(3_000)).parse(line)
    assert heard.body == FollowingStarted(
        topic="orders", partition=0, leader=-1, leader_epoch=4, log_end=10, high_watermark=9
    )


FOLLOWS = (
    "@{at} INFO state.change.logger [Broker id=1] Follower orders-0 starts at leader epoch {epoch} "
    "from offset {end} with partition epoch 43 and high watermark 9. Current leader is 2. Previous "
    "leader Some(2) and previous leader epoch was 3."
)
APPENDED = (
    "@{at} TRACE org.apache.kafka.storage.internals.log.UnifiedLog [UnifiedLog partition=orders-0, "
    "dir=/data] Appended message set with last offset: {base}, first offset: {base}, next offset: "
    "{next}, and messages: MemoryRecords(size=170)"
)


def test_a_batch_that_another_thread_names_late_was_stored_at_the_end_of_before() -> None:
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    log_parser.parse(FOLLOWS.format(at=5, epoch=3, end=10))
    log_parser.parse(FOLLOWS.format(at=6, epoch=4, end=12))
    expected = []
    for base in (10, 11, 12, 11):
        (heard,) = log_parser.parse(APPENDED.format(at=7, base=base, next=base + 1))
        assert isinstance(heard.body, LogAppended)
        expected.append(heard.body.expected_base)
    assert expected == [10, 11, 12, 13]


def test_the_end_makes_one_event() -> None:
    line = "@5 INFO org.apache.kafka.common.utils.AppInfoParser "
    line += "App info kafka.server for 1 unregistered"
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    assert [one.body for one in log_parser.parse(line)] == [NodeStopped(reason="shutdown")]
    assert log_parser.parse(line) == []


ASKS = (
    "@{at} DEBUG kafka.cluster.Partition [Partition orders-0 broker=1] Submitting ISR state change "
    "PendingExpandIsr(newInSyncReplicaId=2, sentLeaderAndIsr=LeaderAndIsr(leader=1, leaderEpoch=3, "
    "isrWithBrokerEpoch=[BrokerState(brokerId=1, brokerEpoch=8), BrokerState(brokerId=3, "
    "brokerEpoch=9), BrokerState(brokerId=2, brokerEpoch=7)], leaderRecoveryState=RECOVERED, "
    "partitionEpoch=43), leaderRecoveryState=RECOVERED, lastCommittedState=CommittedPartitionState"
    "(isr=Set(1, 3), leaderRecoveryState=RECOVERED))"
)
READS = (
    "@{at} INFO state.change.logger [Broker id=1] Skipped the become-leader state change for "
    "orders-0 with topic id Some(x) and partition state LeaderAndIsrPartitionState(leader=1, "
    "isr=[1, 3], partitionEpoch={epoch}, isNew=false) since it is already the leader with leader "
    "epoch 3. Current high watermark 9, ISR [1,3], adding replicas [] and removing replicas []."
)
ANSWERED = (
    "@{at} INFO kafka.cluster.Partition [Partition orders-0 broker=1] ISR updated to 1,3,2  and "
    "version updated to 44"
)
FORGOTTEN = IsrRequestForgotten(
    topic="orders", partition=0, leader_epoch=3, partition_epoch=43, joining=2
)


@pytest.mark.parametrize(
    ("lines", "forgotten"),
    [
        ((ASKS, READS.replace("{epoch}", "43")), True),
        ((ASKS, READS.replace("{epoch}", "44")), False),
        ((READS.replace("{epoch}", "43"),), False),
        ((ASKS, ANSWERED, READS.replace("{epoch}", "43")), False),
        ((ASKS, LEADS, READS.replace("{epoch}", "43")), False),
    ],
    ids=["the present ISR", "the next ISR", "not asked", "answered", "leads anew"],
)
def test_a_leader_forgets_what_it_asked_for_as_it_reads(
    lines: tuple[str, ...], forgotten: bool
) -> None:
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    heard = [
        one.body
        for number, line in enumerate((UNFENCED, LEADS, *lines))
        for one in log_parser.parse(line.replace("{at}", str(number + 1)))
    ]
    found = [one for one in heard if isinstance(one, IsrRequestForgotten)]
    assert found == ([FORGOTTEN] if forgotten else [])


UNSENT = "Unable to register the broker because the RPC got timed out before it could be sent."
LIFECYCLE = "kafka.server.BrokerLifecycleManager"


def test_a_broker_that_cannot_register_has_its_warnings_once_a_second() -> None:
    log_parser = KafkaLogParser(BROKER, Configured(3_000))
    lines = [
        (0, "INFO", "is quite well"),
        (1_000_000_000, "INFO", f"{UNSENT}\\n\tat x"),
        (1_999_999_999, "ERROR", "again"),
        (2_000_000_000, "ERROR", "again"),
    ]
    heard = [
        one
        for at_ns, level, message in lines
        for one in log_parser.parse(f"@{at_ns} {level} {LIFECYCLE} {message}")
    ]
    assert [(one.at_ns, one.body) for one in heard] == [
        (at_ns, NodeWarned(level=level, logger="BrokerLifecycleManager", message=words))
        for at_ns, level, words in (
            (1_000_000_000, "INFO", UNSENT),
            (2_000_000_000, "ERROR", "again"),
        )
    ]


REGISTERED = (
    "@5 INFO kafka.server.BrokerLifecycleManager [BrokerLifecycleManager id=1] Successfully "
    "registered broker 1 with broker epoch 7"
)
LEARNS = (
    "@5 INFO org.apache.kafka.raft.QuorumState [RaftManager nodeId=101] Completed transition to "
    "FollowerState(fetchTimeoutMs=1500, epoch=3, leaderId=103, voters=[101, 102, 103])"
)
CONTROLLER = Slot("controller-1", Role.CONTROLLER, 101, 1)


@pytest.mark.parametrize(
    ("slot", "line", "joined"),
    [
        (BROKER, REGISTERED, True),
        (BROKER, LEARNS, False),
        (CONTROLLER, LEARNS, True),
    ],
    ids=["registered", "a broker that follows", "a controller that follows"],
)
def test_a_node_that_has_joined_has_no_warnings(slot: Slot, line: str, joined: bool) -> None:
    log_parser = KafkaLogParser(slot, Configured(3_000))
    log_parser.parse(line)
    assert bool(log_parser.parse(f"@9 WARN {LIFECYCLE} {UNSENT}")) is not joined


def test_a_controller_knows_the_leader_once_its_quorum_does() -> None:
    """A QuorumController of 3.3 that registers its listener later says nothing of that leader."""
    (heard,) = KafkaLogParser(CONTROLLER, Configured(3_000)).parse(LEARNS)
    assert heard.body == ControllerFollowed(epoch=3, leader=103)
