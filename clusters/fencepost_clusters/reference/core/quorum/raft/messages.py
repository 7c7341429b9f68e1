"""The quorum's requests and answers (KIP-595): one topic, one partition, so built in one place."""

from __future__ import annotations

from collections.abc import Collection

from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

MAX_FETCH_BYTES = 1 << 20
MAX_EPOCH = (1 << 31) - 1
FARTHEST_EPOCH = 1 << 24
"""How far ahead of ours an epoch may be: more elections than any node can have missed."""
Request = (
    m.VoteRequest | m.BeginQuorumEpochRequest | m.EndQuorumEpochRequest | m.FetchRequest
    | m.FetchSnapshotRequest
)  # fmt: skip


def fault(request: Request, others: Collection[int], epoch: int) -> str | None:
    """Why a request cannot be one of this quorum's, or None.

    `others` are the other voters, `epoch` is the newest one known here.
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return "a quorum request is about one partition"
    speaker = -1
    match request:
        case m.VoteRequest():
            speaker = request.topics[0].partitions[0].replica_id
            said = request.topics[0].partitions[0].replica_epoch
        case m.BeginQuorumEpochRequest() | m.EndQuorumEpochRequest():
            speaker = request.topics[0].partitions[0].leader_id
            said = request.topics[0].partitions[0].leader_epoch
        case m.FetchRequest() | m.FetchSnapshotRequest():
            said = request.topics[0].partitions[0].current_leader_epoch
    if said > epoch + FARTHEST_EPOCH:
        return f"epoch {said} is not to be believed in epoch {epoch}"
    if isinstance(request, m.FetchRequest | m.FetchSnapshotRequest):
        return None  # observers fetch too
    return None if speaker in others else f"{speaker} is no other voter of this quorum"


def vote(epoch: int, candidate: int, log_end: int, last_epoch: int) -> m.VoteRequest:
    """A candidate asks for a vote; its log is given by its end and last epoch."""
    asked = m.VotePartition(0, epoch, candidate, last_epoch, log_end)
    return m.VoteRequest((m.VoteTopic(m.METADATA_TOPIC, (asked,)),))


def vote_answer(leader: int | None, epoch: int, granted: bool) -> m.VoteResponse:
    """Whether the vote is given, and who leads as far as the voter knows."""
    result = m.VoteResult(0, Error.NONE, _id(leader), epoch, granted)
    return m.VoteResponse(Error.NONE, (m.VoteTopicResult(m.METADATA_TOPIC, (result,)),))


def begin_epoch(leader: int, epoch: int) -> m.BeginQuorumEpochRequest:
    """A new leader says so."""
    return m.BeginQuorumEpochRequest(_epoch(leader, epoch))


def begin_answer(leader: int | None, epoch: int, error: Error) -> m.BeginQuorumEpochResponse:
    """Who leads which epoch, to the mind of the one that was told."""
    return m.BeginQuorumEpochResponse(Error.NONE, _epoch(_id(leader), epoch, error))


def end_epoch(leader: int, epoch: int) -> m.EndQuorumEpochRequest:
    """A leader resigns."""
    return m.EndQuorumEpochRequest(_epoch(leader, epoch))


def end_answer(epoch: int) -> m.EndQuorumEpochResponse:
    """It was heard."""
    return m.EndQuorumEpochResponse(Error.NONE, _epoch(-1, epoch))


def fetch(
    offset: int, epoch: int, last_epoch: int, wait_ms: int, replica: m.ReplicaState
) -> m.FetchRequest:
    """A follower or observer asks for what comes after its log; `epoch` -1: it knows no leader."""
    part = m.FetchPartition(0, offset, MAX_FETCH_BYTES, epoch, last_epoch)
    topic = m.FetchTopic((part,), m.METADATA_TOPIC, m.METADATA_TOPIC_ID)
    return m.FetchRequest(wait_ms, 1, MAX_FETCH_BYTES, (topic,), replica)


def fetch_answer(
    leader: int | None,
    epoch: int,
    high_watermark: int,
    error: Error = Error.NONE,
    data: bytes = b"",
    diverging: m.EpochEndOffset | None = None,
    voters: tuple[m.NodeEndpoint, ...] = (),
    snapshot: m.SnapshotId | None = None,
) -> m.FetchResponse:
    """Records, or where the logs part, or which snapshot to fetch, or why none of it; always who
    leads, and who votes."""
    part = m.PartitionData(
        0,
        error,
        high_watermark,
        high_watermark,
        0,
        diverging or m.EpochEndOffset(),
        current_leader(leader, epoch),
        data,
        snapshot or m.SnapshotId(),
    )
    topic = m.FetchableTopicResponse((part,), m.METADATA_TOPIC, m.METADATA_TOPIC_ID)
    return m.FetchResponse(Error.NONE, (topic,), node_endpoints=voters)


def fetch_snapshot(
    replica: int, epoch: int, wanted: m.SnapshotId, position: int
) -> m.FetchSnapshotRequest:
    """A follower or observer asks for a part of a snapshot, from a position on."""
    part = m.PartitionSnapshot(0, epoch, wanted, position)
    return m.FetchSnapshotRequest(
        replica, MAX_FETCH_BYTES, (m.TopicSnapshot(m.METADATA_TOPIC, (part,)),)
    )


def snapshot_answer(part: m.PartitionSnapshotData) -> m.FetchSnapshotResponse:
    """A part of a snapshot, or why there is none."""
    topic = m.TopicSnapshotData(m.METADATA_TOPIC, (part,))
    return m.FetchSnapshotResponse(Error.NONE, (topic,))


def current_leader(leader: int | None, epoch: int) -> m.LeaderIdAndEpoch:
    """Who leads which epoch, as fetches are told."""
    return m.LeaderIdAndEpoch(_id(leader), epoch)


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
    return (m.EpochTopic(m.METADATA_TOPIC, (m.EpochPartition(0, leader, epoch, error),)),)
