"""The broker epochs in a leader's request for another ISR, without a cluster (KIP-903)."""

from __future__ import annotations

import uuid

from quorum_bench import ME, OTHER, TOPIC, QuorumBroker, registration

from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r

THIRD = 3


def fetches(broker: QuorumBroker, follower: int, epoch: int) -> None:
    """A follower fetches from the start of the log."""
    part = m.FetchPartition(
        partition=0,
        fetch_offset=0,
        partition_max_bytes=1 << 20,
        current_leader_epoch=0,
        last_fetched_epoch=-1,
    )
    request = m.FetchRequest(
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=(m.FetchTopic(partitions=(part,), topic_id=TOPIC),),
        replica_state=m.ReplicaState(replica_id=follower, replica_epoch=epoch),
    )
    broker.node.asks("REPLICATION", request, f"broker-{follower}#1")


def test_a_request_for_another_isr_names_a_member_that_has_not_fetched_yet_with_its_epoch() -> None:
    """The controller refuses a member with another epoch than its registered one."""
    broker = QuorumBroker().activates()
    third = broker.end
    broker.commits(registration(THIRD, uuid.UUID(int=THIRD), third))
    part = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(ME, OTHER, THIRD), isr=(ME, THIRD), leader=ME,
        leader_epoch=0,
    )  # fmt: skip
    broker.commits(r.TopicRecord(name="orders", topic_id=TOPIC), part)
    other = broker.core.committed.image.brokers[OTHER].epoch
    fetches(broker, OTHER, other)
    broker.node.passes(0.3)
    asked = broker.node.called("isr").message
    assert isinstance(asked, m.AlterPartitionRequest)
    (topic,) = asked.topics
    named = {one.broker_id: one.broker_epoch for one in topic.partitions[0].new_isr_with_epochs}
    assert named == {ME: 1, OTHER: other, THIRD: third}
