"""What tells the topics of one name apart, which is applied once for all rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from fencepost import (
    FaultInjected,
    NodeStarted,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Rule,
    kind_name,
)
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    BrokerDeclared,
    ConsumerPositioned,
    FollowerFetched,
    FollowingStarted,
    LeadershipStarted,
    PartitionCommitted,
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
    SegmentFound,
    TopicCommitted,
)
from fencepost_kafka.judging.generations import PresentTopics, topics_of_clients
from fencepost_suites.rules import ALL

BY_ITSELF = {
    *(TopicCommitted, AdminCompleted, PartitionCommitted),
    *(LeadershipStarted, FollowingStarted, ConsumerPositioned, ProduceInvoked),
    *(ReadCompleted, ProbeCompleted, ProducerEpochChanged, SegmentFound),
    *(FaultInjected, ProcessSpawned, ProcessExited, NodeStarted, PhaseStarted),
    *(BrokerCommitted, BrokerDeclared, FollowerFetched),
}
"""Events that count, or do not, by what they say themselves. That a leader counts a follower
decides which partitions are forfeited, whatever else is known of it."""
BY_OTHERS = {ProduceCompleted: {ProduceInvoked}, Polled: {ConsumerPositioned}}
"""Events of clients that count by an earlier one."""
APPLIED = [one for one in ALL if one.keeper in (PresentTopics, topics_of_clients)]


def needed(kind: type[Struct]) -> set[Any]:
    if kind in BY_ITSELF:
        return set()
    return BY_OTHERS.get(kind, {LeadershipStarted, FollowingStarted})


@pytest.mark.parametrize("one", APPLIED, ids=[one.clause for one in APPLIED])
def test_a_rule_reads_all_that_decides_which_of_its_events_count(one: Rule[Any]) -> None:
    """Otherwise events that only other rules read would change what it judges."""
    for kind in one.kinds:
        assert needed(kind) <= one.kinds, f"{one.clause} reads {kind_name(kind)}"
