"""What a broker said about an error beyond its name is kept: in the event, and in the failure."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kio.schema.alter_partition_reassignments.v0.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from fencepost import Violation
from fencepost_kafka import AdminCompleted
from fencepost_kafka.clients.asking import administer
from fencepost_kafka.clients.commands import CreateTopic
from fencepost_kafka.confluent import outcomes, raw_admin

WHY = "Topic '__cluster_metadata' is reserved"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KafkaError(KafkaError.INVALID_REQUEST, WHY), WHY),
        (KafkaError(KafkaError.INVALID_REQUEST), ""),
        (KafkaError(KafkaError._MSG_TIMED_OUT), ""),
    ],
)
def test_a_reason_is_what_the_name_does_not_say(error: KafkaError, reason: str) -> None:
    assert outcomes.reason(error) == reason


def test_the_message_beside_an_error_code_is_read_with_it() -> None:
    part = ReassignablePartitionResponse(
        partition_index=0,
        error_code=ErrorCode.invalid_replica_assignment,
        error_message="broker 1 twice",
    )
    answer = AlterPartitionReassignmentsResponse(
        throttle_time=None,
        error_code=ErrorCode.none,
        error_message=None,
        responses=(ReassignableTopicResponse(name="orders", partitions=(part,)),),
    )
    assert raw_admin._errors(answer) == [
        (ErrorCode.none, ""),
        (ErrorCode.invalid_replica_assignment, "broker 1 twice"),
    ]


class Still:
    """A runtime in which no time passes."""

    def now_ns(self) -> int:
        return 0


def test_a_change_that_a_test_asked_for_fails_with_the_brokers_own_words() -> None:
    command = CreateTopic(operation="op-1", topic="a", partitions=1, replication=1)
    refused = AdminCompleted(
        operation="op-1",
        api="create_topic",
        subject="a",
        outcome="failed",
        error="INVALID_REQUEST",
        reason=WHY,
    )
    assert refused.sentence() == f"create_topic a: failed, INVALID_REQUEST: {WHY}"
    with pytest.raises(Violation, match=f"failed: INVALID_REQUEST: {WHY}"):
        administer(command, None, Still(), lambda _: refused, lambda: "op-2")
