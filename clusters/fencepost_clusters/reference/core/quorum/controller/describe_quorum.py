"""DescribeQuorum: the quorum as its leader knows it (KIP-595)."""

from __future__ import annotations

from fencepost_clusters.reference.core.quorum.controller.decision_context import Quorum
from fencepost_clusters.reference.core.quorum.raft.serving import NO_FETCH
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

_NAMES = (m.METADATA_TOPIC, "__cluster_metadata")
"""KIP-631's name of the metadata log, and the one under which later clients ask for it."""


def described(quorum: Quorum, asked: a.DescribeQuorumRequest) -> a.DescribeQuorumResponse:
    """Voters and observers of the quorum; any topic but the metadata's is unknown."""
    voters = tuple(_replica(quorum, voter, end) for voter, end in quorum.ends)
    observers = tuple(
        _replica(quorum, node, fetched.offset)
        for node, fetched in sorted(quorum.observed.items())
        if node >= 0 and node not in quorum.voters
    )
    known = a.QuorumPartitionResult(
        partition_index=0,
        error_code=Error.NONE,
        leader_id=quorum.leader,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
        observers=observers,
    )
    topics = tuple(
        a.QuorumTopicResult(
            topic_name=topic.topic_name,
            partitions=tuple(
                known
                if topic.topic_name in _NAMES and part.partition_index == 0
                else a.QuorumPartitionResult(
                    partition_index=part.partition_index,
                    error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for part in topic.partitions
            ),
        )
        for topic in asked.topics
    )
    return a.DescribeQuorumResponse(error_code=Error.NONE, topics=topics)


def _replica(quorum: Quorum, node: int, end: int) -> a.QuorumReplica:
    """A node with its log end and the times of its fetches; the leader has all of its log now."""
    fetched = quorum.observed.get(node, NO_FETCH)
    leads = node == quorum.leader
    return a.QuorumReplica(
        replica_id=node,
        log_end_offset=end,
        last_fetch_timestamp=quorum.now_ms if leads else fetched.at_ms,
        last_caught_up_timestamp=quorum.now_ms if leads else fetched.caught_up_ms,
    )
