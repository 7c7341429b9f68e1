"""Builds the quorum's requests and answers (KIP-595), which are all about one topic and one
partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

MAX_FETCH_BYTES: Final = 1 << 20
MAX_EPOCH: Final = (1 << 31) - 1
FARTHEST_EPOCH: Final = 1 << 24
"""How far an epoch may be ahead of ours: more elections than a node can have missed."""
Request = (
    m.FetchRequest
    | m.FetchSnapshotRequest
    | m.VoteRequest
    | m.BeginQuorumEpochRequest
    | m.EndQuorumEpochRequest
)


def fault(request: Request, is_voter: Callable[[int], bool], me: int, epoch: int) -> str | None:
    """Why a request cannot belong to this quorum, or None.

    `me` is the id of this node, `epoch` the newest one known here.
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return "a quorum request is about one partition"
    speaker: int | None = None  # of a fetch: observers fetch too
    match request:
        case m.FetchRequest() | m.FetchSnapshotRequest():
            claimed = request.topics[0].partitions[0].current_leader_epoch
        case m.VoteRequest():
            speaker = request.topics[0].partitions[0].replica_id
            claimed = request.topics[0].partitions[0].replica_epoch
        case m.BeginQuorumEpochRequest() | m.EndQuorumEpochRequest():
            speaker = request.topics[0].partitions[0].leader_id
            claimed = request.topics[0].partitions[0].leader_epoch
    if claimed > epoch + FARTHEST_EPOCH:
        return f"epoch {claimed} is implausible in epoch {epoch}"
    if speaker is None or (speaker != me and is_voter(speaker)):
        return None
    return f"{speaker} is no other voter of this quorum"


def vote(epoch: int, candidate: int, log_end: int, last_epoch: int) -> m.VoteRequest:
    """A candidate asks for a vote; its log is given by its end and last epoch."""
    asked = m.VotePartition(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        last_offset_epoch=last_epoch,
        last_offset=log_end,
    )
    return m.VoteRequest(topics=(m.VoteTopic(topic_name=m.METADATA_TOPIC, partitions=(asked,)),))


def vote_answer(leader: int | None, epoch: int, granted: bool) -> m.VoteResponse:
    """Whether the vote is given, and the leader as far as the voter knows it."""
    result = m.VoteResult(
        partition_index=0,
        error_code=Error.NONE,
        leader_id=_id(leader),
        leader_epoch=epoch,
        vote_granted=granted,
    )
    return m.VoteResponse(
        error_code=Error.NONE,
        topics=(m.VoteTopicResult(topic_name=m.METADATA_TOPIC, partitions=(result,)),),
    )


def begin_epoch(leader: int, epoch: int) -> m.BeginQuorumEpochRequest:
    """A new leader announces itself."""
    return m.BeginQuorumEpochRequest(topics=_epoch(leader, epoch))


def begin_answer(leader: int | None, epoch: int, error: Error) -> m.BeginQuorumEpochResponse:
    """The leader and epoch as the receiver of the announcement knows them."""
    return m.BeginQuorumEpochResponse(
        error_code=Error.NONE, topics=_epoch(_id(leader), epoch, error)
    )


def end_epoch(leader: int, epoch: int) -> m.EndQuorumEpochRequest:
    """A leader resigns."""
    return m.EndQuorumEpochRequest(topics=_epoch(leader, epoch))


def end_answer(epoch: int) -> m.EndQuorumEpochResponse:
    """Acknowledges a resignation."""
    return m.EndQuorumEpochResponse(error_code=Error.NONE, topics=_epoch(-1, epoch))


def fetch(
    offset: int, epoch: int, last_epoch: int, wait_ms: int, replica: m.ReplicaState
) -> m.FetchRequest:
    """A follower or observer asks for the records after its log; `epoch` -1: it knows no leader."""
    part = m.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=MAX_FETCH_BYTES,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )
    topic = m.FetchTopic(partitions=(part,), topic=m.METADATA_TOPIC, topic_id=m.METADATA_TOPIC_ID)
    return m.FetchRequest(
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=MAX_FETCH_BYTES,
        topics=(topic,),
        replica_state=replica,
    )


def fetch_answer(
    leader: int | None,
    epoch: int,
    *,
    high_watermark: int,
    error: Error = Error.NONE,
    data: bytes = b"",
    diverging: m.EpochEndOffset | None = None,
    voters: tuple[m.NodeEndpoint, ...] = (),
    snapshot: m.SnapshotId | None = None,
) -> m.FetchResponse:
    """Records, or the offset where the logs diverge, or the snapshot to fetch, or an error; always
    with the leader and the voters."""
    part = m.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
        diverging_epoch=diverging or m.EpochEndOffset(),
        current_leader=current_leader(leader, epoch),
        records=data,
        snapshot_id=snapshot or m.SnapshotId(),
    )
    topic = m.FetchableTopicResponse(
        partitions=(part,), topic=m.METADATA_TOPIC, topic_id=m.METADATA_TOPIC_ID
    )
    return m.FetchResponse(error_code=Error.NONE, responses=(topic,), node_endpoints=voters)


def fetch_snapshot(
    replica: int, epoch: int, wanted: m.SnapshotId, position: int
) -> m.FetchSnapshotRequest:
    """A follower or observer asks for a part of a snapshot, from a position on."""
    part = m.PartitionSnapshot(
        partition=0, current_leader_epoch=epoch, snapshot_id=wanted, position=position
    )
    return m.FetchSnapshotRequest(
        replica_id=replica,
        max_bytes=MAX_FETCH_BYTES,
        topics=(m.TopicSnapshot(name=m.METADATA_TOPIC, partitions=(part,)),),
    )


def snapshot_answer(part: m.PartitionSnapshotData) -> m.FetchSnapshotResponse:
    """A part of a snapshot, or the error if there is none."""
    topic = m.TopicSnapshotData(name=m.METADATA_TOPIC, partitions=(part,))
    return m.FetchSnapshotResponse(error_code=Error.NONE, topics=(topic,))


def current_leader(leader: int | None, epoch: int) -> m.LeaderIdAndEpoch:
    """The leader and epoch in the answer to a fetch."""
    return m.LeaderIdAndEpoch(leader_id=_id(leader), leader_epoch=epoch)


def is_empty(answer: m.Response) -> bool:
    """Whether an answer of the quorum is about no partition at all."""
    match answer:
        case m.FetchResponse():
            return not answer.responses or not answer.responses[0].partitions
        case (
            m.VoteResponse()
            | m.BeginQuorumEpochResponse()
            | m.EndQuorumEpochResponse()
            | m.FetchSnapshotResponse()
        ):
            return not answer.topics or not answer.topics[0].partitions
        case _:
            raise AssertionError(f"{answer!r} answers no call of the quorum")


def _id(leader: int | None) -> int:
    return -1 if leader is None else leader


def _epoch(leader: int, epoch: int, error: Error = Error.NONE) -> tuple[m.EpochTopic, ...]:
    return (
        m.EpochTopic(
            topic_name=m.METADATA_TOPIC,
            partitions=(
                m.EpochPartition(
                    partition_index=0, leader_id=leader, leader_epoch=epoch, error_code=error
                ),
            ),
        ),
    )
