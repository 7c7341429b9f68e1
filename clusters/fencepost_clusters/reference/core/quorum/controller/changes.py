"""Every request that asks the active controller for a change, each a pure function in one table.

A request comes from a client, by way of a broker that passes it on, or from a broker itself. What
it leads to is decided here over the image that runs ahead: records and the answer that leaves once
they are committed. A controller that is not active refuses by the same table, so that all requests
are listed in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from fencepost_clusters.reference.core.quorum.controller import (
    configs,
    leadership,
    reassigning,
    registration,
    topics,
)
from fencepost_clusters.reference.core.quorum.controller import voter_changes as quorum_changes
from fencepost_clusters.reference.core.quorum.controller.decision_context import DecisionContext
from fencepost_clusters.reference.core.quorum.controller.decisions import ChangeDecision
from fencepost_clusters.reference.core.quorum.controller.describe_quorum import described
from fencepost_clusters.reference.core.quorum.controller.policies import preferred_can_lead
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


class _Change(Struct, frozen=True):
    """A row of the table. `name` is the request's in events; `forwarded`: clients may ask it;
    `reads`: it changes nothing, and may be asked again."""

    name: str
    decide: Callable[[DecisionContext, Any], ChangeDecision]
    refuse: Callable[[Any, Error], m.Response]
    forwarded: bool = True
    reads: bool = False


def is_change(request: m.Request) -> bool:
    """Whether a request is for the active controller."""
    return type(request) in _TABLE


def is_forwarded(request: m.Request) -> bool:
    """Whether a broker passes a client's request of this kind on to the active controller."""
    return is_change(request) and _TABLE[type(request)].forwarded


def is_read(request: m.Request) -> bool:
    """Whether a request changes nothing, so that it may be asked again without harm."""
    return is_change(request) and _TABLE[type(request)].reads


def name(request: m.Request) -> str:
    """What the request is called in events."""
    return _TABLE[type(request)].name


def decide(on: DecisionContext, request: m.Request) -> ChangeDecision:
    """What the active controller does about a request; changes nothing."""
    return _TABLE[type(request)].decide(on, request)


def refused(request: m.Request, error: Error) -> m.Response:
    """The answer that refuses all of a request with one error."""
    return _TABLE[type(request)].refuse(request, error)


def errors(answer: Struct) -> Iterator[Error]:
    """Every error an answer holds, outermost first."""
    for field, value in asdict(answer).items():
        if field == "error_code" and value != Error.NONE:
            yield Error(value)
        elif isinstance(value, tuple):
            for one in value:
                if isinstance(one, Struct):
                    yield from errors(one)


# ------------------------------------------------------------------------------------- AlterIsr


def _alter_isr(on: DecisionContext, asked: m.AlterPartitionRequest) -> ChangeDecision:
    known = on.image.brokers.get(asked.broker_id)
    current = on.policies.registration.is_current_epoch
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
            if (topic.topic_id, one.partition_index) in seen:
                parts.append(
                    m.AlterPartitionResult(
                        partition_index=one.partition_index, error_code=Error.INVALID_REQUEST
                    )
                )
                continue
            seen.add((topic.topic_id, one.partition_index))
            error, record = leadership.alter_isr(
                on.image, asked.broker_id, topic, one, on.policies.election
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


# --------------------------------------------------------------------------------------- topics


def _create_topics(on: DecisionContext, asked: m.CreateTopicsRequest) -> ChangeDecision:
    records: list[r.Record] = []
    results: list[m.CreatableTopicResult] = []
    names: set[str] = set()
    for topic in asked.topics:
        if topic.name in names:
            message = f"{topic.name} is in the request twice"
            results.append(
                m.CreatableTopicResult(
                    name=topic.name, error_code=Error.INVALID_REQUEST, error_message=message
                )
            )
            continue
        names.add(topic.name)
        new_id = topics.topic_id(on.quorum.epoch, on.end + len(records))
        made, result = topics.create(on.image, topic, on.settings, new_id, on.policies.placement)
        if not asked.validate_only:
            records += made
        results.append(result)
    return ChangeDecision(tuple(records), m.CreateTopicsResponse(topics=tuple(results)))


def _create_refused(asked: m.CreateTopicsRequest, error: Error) -> m.Response:
    return m.CreateTopicsResponse(
        topics=tuple(
            m.CreatableTopicResult(name=topic.name, error_code=error) for topic in asked.topics
        )
    )


def _delete_topics(on: DecisionContext, asked: m.DeleteTopicsRequest) -> ChangeDecision:
    records: list[r.Record] = []
    results: list[m.DeletableTopicResult] = []
    for topic in dict.fromkeys(asked.topic_names):
        gone, result = topics.delete(on.image, topic)
        records += gone
        results.append(result)
    return ChangeDecision(tuple(records), m.DeleteTopicsResponse(responses=tuple(results)))


def _delete_refused(asked: m.DeleteTopicsRequest, error: Error) -> m.Response:
    return m.DeleteTopicsResponse(
        responses=tuple(
            m.DeletableTopicResult(name=topic, error_code=error) for topic in asked.topic_names
        )
    )


# ----------------------------------------------------------------------- elections and brokers


def _elect_leaders(on: DecisionContext, asked: a.ElectLeadersRequest) -> ChangeDecision:
    """Preferred elections; an unclean one would lose what is committed, and is refused."""
    if asked.election_type != 0:
        return ChangeDecision((), _elect_refused(asked, Error.INVALID_REQUEST))
    places: dict[tuple[str, int], None]
    if asked.topic_partitions is None:
        every = on.image.all_partitions()
        places = {(on.image.names[p.topic_id], p.index): None for p in every}
    else:
        places = {(t.topic, i): None for t in asked.topic_partitions for i in t.partitions}
    records: list[r.Record] = []
    results: dict[str, list[a.PartitionResult]] = {}
    for topic, index in places:
        one = on.image.partition(topic, index)
        record = None
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
        if one is not None:
            if preferred_can_lead(one, on.ready):
                record = leadership.to_preferred(one, on.policies.election)
            there = one.leader == one.replicas[0]
            error = Error.ELECTION_NOT_NEEDED if there else Error.PREFERRED_LEADER_NOT_AVAILABLE
        if record is not None:
            records.append(record)
            error = Error.NONE
        if asked.topic_partitions is not None or error is Error.NONE:
            results.setdefault(topic, []).append(
                a.PartitionResult(partition_id=index, error_code=error)
            )
    listed = tuple(
        a.ReplicaElectionResult(topic=t, partition_result=tuple(found))
        for t, found in results.items()
    )
    return ChangeDecision(
        tuple(records),
        a.ElectLeadersResponse(error_code=Error.NONE, replica_election_results=listed),
    )


def _elect_refused(asked: a.ElectLeadersRequest, error: Error) -> m.Response:
    return a.ElectLeadersResponse(error_code=error, replica_election_results=())


def _unregister(on: DecisionContext, asked: a.UnregisterBrokerRequest) -> ChangeDecision:
    """DeleteBroker: it leaves every ISR but as the last member (QC-26)."""
    if asked.broker_id not in on.image.brokers:
        return ChangeDecision(
            (), a.UnregisterBrokerResponse(error_code=Error.BROKER_ID_NOT_REGISTERED)
        )
    records = registration.delete(on.image, asked.broker_id, on.policies.election)
    return ChangeDecision(records, a.UnregisterBrokerResponse(error_code=Error.NONE))


def _unregister_refused(asked: a.UnregisterBrokerRequest, error: Error) -> m.Response:
    return a.UnregisterBrokerResponse(error_code=error)


def _describe_quorum(on: DecisionContext, asked: a.DescribeQuorumRequest) -> ChangeDecision:
    return ChangeDecision((), described(on.quorum, asked))


def _describe_refused(asked: a.DescribeQuorumRequest, error: Error) -> m.Response:
    return a.DescribeQuorumResponse(error_code=error, topics=())


# --------------------------------------------------------------------------------- the quorum


def _add_voter(on: DecisionContext, asked: a.AddRaftVoterRequest) -> ChangeDecision:
    records, error, why = quorum_changes.add(on.quorum, on.image, asked, on.policies.registration)
    return ChangeDecision(records, a.AddRaftVoterResponse(error_code=error, error_message=why))


def _remove_voter(on: DecisionContext, asked: a.RemoveRaftVoterRequest) -> ChangeDecision:
    records, error, why = quorum_changes.remove(on.quorum, asked)
    return ChangeDecision(records, a.RemoveRaftVoterResponse(error_code=error, error_message=why))


_TABLE: Mapping[type, _Change] = {
    a.AddRaftVoterRequest: _Change(
        "AddRaftVoter", _add_voter, lambda asked, error: a.AddRaftVoterResponse(error_code=error)
    ),
    a.RemoveRaftVoterRequest: _Change(
        "RemoveRaftVoter",
        _remove_voter,
        lambda asked, error: a.RemoveRaftVoterResponse(error_code=error),
    ),
    m.AlterPartitionRequest: _Change("AlterIsr", _alter_isr, _isr_refused, forwarded=False),
    m.CreateTopicsRequest: _Change("CreateTopics", _create_topics, _create_refused),
    m.DeleteTopicsRequest: _Change("DeleteTopics", _delete_topics, _delete_refused),
    a.AlterPartitionReassignmentsRequest: _Change(
        "AlterPartitionReassignments", reassigning.alter, reassigning.alter_refused
    ),
    a.ListPartitionReassignmentsRequest: _Change(
        "ListPartitionReassignments", reassigning.listed, reassigning.list_refused, reads=True
    ),
    a.RebalanceRequest: _Change("Rebalance", reassigning.rebalance, reassigning.rebalance_refused),
    a.ElectLeadersRequest: _Change("ElectLeaders", _elect_leaders, _elect_refused),
    a.IncrementalAlterConfigsRequest: _Change(
        "IncrementalAlterConfigs", configs.alter, configs.alter_refused
    ),
    a.UnregisterBrokerRequest: _Change("DeleteBroker", _unregister, _unregister_refused),
    a.DescribeQuorumRequest: _Change(
        "DescribeQuorum", _describe_quorum, _describe_refused, reads=True
    ),
}
