"""The requests that the quorum's active controller decides: those of every plane, AlterIsr, and
those about its voters. They are decided over the image that runs ahead."""

from __future__ import annotations

from fencepost_clusters.reference.core.cluster import changes
from fencepost_clusters.reference.core.cluster.changes import ChangeRow, Changes
from fencepost_clusters.reference.core.cluster.decisions import ChangeDecision, DecisionContext
from fencepost_clusters.reference.core.quorum.controller import isr_changes, registration
from fencepost_clusters.reference.core.quorum.controller import voter_changes as quorum_changes
from fencepost_clusters.reference.core.quorum.controller.decision_context import QuorumContext
from fencepost_clusters.reference.core.quorum.controller.describe_quorum import described
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

# ------------------------------------------------------------------------------------- AlterIsr


def _alter_isr(on: QuorumContext, asked: m.AlterPartitionRequest) -> ChangeDecision:
    known = on.cluster.image.brokers.get(asked.broker_id)
    current = on.policies.registration.is_current_epoch
    # The process of an earlier registration still believes that it leads. Its request is refused as
    # a whole (QC-19).
    if known is None or not current(asked.broker_epoch, known.epoch):
        return ChangeDecision(
            (), m.AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH, topics=())
        )
    records: list[r.Record] = []
    results: list[m.AlterPartitionTopicResult] = []
    seen: set[tuple[object, int]] = set()
    for topic in asked.topics:
        parts: list[m.AlterPartitionResult] = []
        for one in topic.partitions:
            # All of a request is decided over one image, before its first record is replayed. Two
            # changes of one partition would both be granted upon the same ISR.
            if (topic.topic_id, one.partition_index) in seen:
                parts.append(
                    m.AlterPartitionResult(
                        partition_index=one.partition_index, error_code=Error.INVALID_REQUEST
                    )
                )
                continue
            seen.add((topic.topic_id, one.partition_index))
            error, record = isr_changes.alter_isr(
                on.cluster.image,
                asked.broker_id,
                topic,
                one,
                election=on.cluster.policies.election,
                registration=on.policies.registration,
            )
            if record is not None:
                records.append(record)
            parts.append(_isr_result(one, error, record))
        results.append(
            m.AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=tuple(parts))
        )
    return ChangeDecision(
        tuple(records), m.AlterPartitionResponse(error_code=Error.NONE, topics=tuple(results))
    )


def _isr_result(
    asked: m.AlterPartitionData, error: Error, record: r.IsrChangeRecord | None
) -> m.AlterPartitionResult:
    if record is None:
        return m.AlterPartitionResult(partition_index=asked.partition_index, error_code=error)
    return m.AlterPartitionResult(
        partition_index=asked.partition_index,
        error_code=error,
        leader_id=record.leader,
        leader_epoch=record.leader_epoch,
        isr=record.isr,
    )


def _isr_refused(asked: m.AlterPartitionRequest, error: Error) -> m.Response:
    return m.AlterPartitionResponse(error_code=error, topics=())


# --------------------------------------------------------------------------------------- brokers


def _unregister(on: QuorumContext, asked: a.UnregisterBrokerRequest) -> ChangeDecision:
    """DeleteBroker: the broker leaves every ISR of which it is not the last member (QC-26)."""
    if asked.broker_id not in on.cluster.image.brokers:
        return ChangeDecision(
            (), a.UnregisterBrokerResponse(error_code=Error.BROKER_ID_NOT_REGISTERED)
        )
    records = registration.delete(on.cluster.image, asked.broker_id, on.cluster.policies.election)
    return ChangeDecision(records, a.UnregisterBrokerResponse(error_code=Error.NONE))


def _unregister_refused(asked: a.UnregisterBrokerRequest, error: Error) -> m.Response:
    return a.UnregisterBrokerResponse(error_code=error)


def _describe_quorum(on: QuorumContext, asked: a.DescribeQuorumRequest) -> ChangeDecision:
    return ChangeDecision((), described(on.quorum, asked))


def _describe_refused(asked: a.DescribeQuorumRequest, error: Error) -> m.Response:
    return a.DescribeQuorumResponse(error_code=error, topics=())


# --------------------------------------------------------------------------------- the quorum


def _add_voter(on: QuorumContext, asked: a.AddRaftVoterRequest) -> ChangeDecision:
    records, error, why = quorum_changes.add(
        on.quorum, on.cluster.image, asked, on.policies.registration
    )
    return ChangeDecision(records, a.AddRaftVoterResponse(error_code=error, error_message=why))


def _remove_voter(on: QuorumContext, asked: a.RemoveRaftVoterRequest) -> ChangeDecision:
    records, error, why = quorum_changes.remove(on.quorum, asked)
    return ChangeDecision(records, a.RemoveRaftVoterResponse(error_code=error, error_message=why))


def _of_cluster(change: ChangeRow[DecisionContext]) -> ChangeRow[QuorumContext]:
    """A request of every plane, decided from this plane's context."""
    return ChangeRow(
        change.name,
        lambda on, asked: change.decide(on.cluster, asked),
        change.refuse,
        change.forwarded,
        change.reads,
    )


CHANGES: Changes[QuorumContext] = Changes(
    {
        **{kind: _of_cluster(change) for kind, change in changes.CHANGES.rows.items()},
        a.AddRaftVoterRequest: ChangeRow(
            "AddRaftVoter",
            _add_voter,
            lambda asked, error: a.AddRaftVoterResponse(error_code=error),
        ),
        a.RemoveRaftVoterRequest: ChangeRow(
            "RemoveRaftVoter",
            _remove_voter,
            lambda asked, error: a.RemoveRaftVoterResponse(error_code=error),
        ),
        m.AlterPartitionRequest: ChangeRow("AlterIsr", _alter_isr, _isr_refused, forwarded=False),
        a.UnregisterBrokerRequest: ChangeRow("DeleteBroker", _unregister, _unregister_refused),
        a.DescribeQuorumRequest: ChangeRow(
            "DescribeQuorum", _describe_quorum, _describe_refused, reads=True
        ),
    }
)
"""Every request for a change that the quorum's active controller decides."""
