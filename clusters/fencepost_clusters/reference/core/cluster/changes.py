"""Requests that ask a controller for a change of the cluster, each a pure function in one table.

A request comes from a client, by way of a broker that forwards it, or from a broker itself. The
function decides its records, and the answer that is sent once they are stored. A controller that is
not active refuses requests by the same table, so all requests are listed in one place. Each plane
has a table of its own, made of these requests and of its own ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from fencepost_clusters.reference.core.cluster import configs, leadership, reassigning, topics
from fencepost_clusters.reference.core.cluster.decisions import ChangeDecision, DecisionContext
from fencepost_clusters.reference.core.cluster.policies import preferred_can_lead
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class ChangeRow(Generic[Context]):
    """A row of a table. `name` is the request's name in events; `forwarded`: clients may send it;
    `reads`: it changes nothing, and may be repeated."""

    name: str
    decide: Callable[[Context, Any], ChangeDecision]
    refuse: Callable[[Any, Error], m.Response]
    forwarded: bool = True
    reads: bool = False


class Refusals(Protocol):
    """The functions that a broker needs for requests that it forwards."""

    def is_forwarded(self, request: m.Request) -> bool: ...
    def is_read(self, request: m.Request) -> bool: ...
    def refused(self, request: m.Request, error: Error) -> m.Response: ...


@dataclass(frozen=True, slots=True)
class Changes(Generic[Context]):
    """The requests that a plane's controller decides, by their type."""

    rows: Mapping[type, ChangeRow[Context]]

    def is_change(self, request: m.Request) -> bool:
        """Whether a request is for the active controller."""
        return type(request) in self.rows

    def is_forwarded(self, request: m.Request) -> bool:
        """Whether a broker forwards a client's request of this kind to the controller."""
        return self.is_change(request) and self.rows[type(request)].forwarded

    def is_read(self, request: m.Request) -> bool:
        """Whether a request changes nothing, so that it may be repeated without harm."""
        return self.is_change(request) and self.rows[type(request)].reads

    def name(self, request: m.Request) -> str:
        """The name of the request in events."""
        return self.rows[type(request)].name

    def decide(self, on: Context, request: m.Request) -> ChangeDecision:
        """The active controller's decision about a request; changes nothing."""
        return self.rows[type(request)].decide(on, request)

    def refused(self, request: m.Request, error: Error) -> m.Response:
        """The answer that refuses all of a request with one error."""
        return self.rows[type(request)].refuse(request, error)


def errors(answer: Struct) -> Iterator[Error]:
    """Every error in an answer, outermost first."""
    for field, value in asdict(answer).items():
        if field == "error_code" and value != Error.NONE:
            yield Error(value)
        elif isinstance(value, tuple):
            for one in value:
                if isinstance(one, Struct):
                    yield from errors(one)


# --------------------------------------------------------------------------------------- topics


def _create_topics(on: DecisionContext, asked: m.CreateTopicsRequest) -> ChangeDecision:
    records: list[r.Record] = []
    results: list[m.CreatableTopicResult] = []
    names: set[str] = set()
    for topic in asked.topics:
        # Two topics whose names are alike in the names of metrics could not be told apart there.
        if topics.metric(topic.name) in names:
            message = f"{topic.name}, or a name that collides with it, is in the request twice"
            results.append(
                m.CreatableTopicResult(
                    name=topic.name, error_code=Error.INVALID_REQUEST, error_message=message
                )
            )
            continue
        names.add(topics.metric(topic.name))
        new_id = on.topic_id(topic.name, len(records))
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
    # A topic that is named twice is deleted once, and answered once.
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


def _create_partitions(on: DecisionContext, asked: a.CreatePartitionsRequest) -> ChangeDecision:
    records: list[r.Record] = []
    results: list[a.CreatePartitionsTopicResult] = []
    named = Counter(topic.name for topic in asked.topics)
    for topic in asked.topics:
        if named[topic.name] > 1:
            message = f"{topic.name} is in the request twice"
            results.append(
                a.CreatePartitionsTopicResult(
                    name=topic.name, error_code=Error.INVALID_REQUEST, error_message=message
                )
            )
            continue
        made, result = topics.extend(on.image, topic, on.policies.placement)
        if not asked.validate_only:
            records += made
        results.append(result)
    return ChangeDecision(tuple(records), a.CreatePartitionsResponse(results=tuple(results)))


def _partitions_refused(asked: a.CreatePartitionsRequest, error: Error) -> m.Response:
    return a.CreatePartitionsResponse(
        results=tuple(
            a.CreatePartitionsTopicResult(name=topic.name, error_code=error)
            for topic in asked.topics
        )
    )


# ------------------------------------------------------------------------------------- elections


def _elect_leaders(on: DecisionContext, asked: a.ElectLeadersRequest) -> ChangeDecision:
    """Preferred elections. An unclean election would lose committed records, and is refused."""
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
        # If all partitions were asked for, only those that changed are listed.
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


CHANGES: Changes[DecisionContext] = Changes(
    {
        m.CreateTopicsRequest: ChangeRow("CreateTopics", _create_topics, _create_refused),
        m.DeleteTopicsRequest: ChangeRow("DeleteTopics", _delete_topics, _delete_refused),
        a.CreatePartitionsRequest: ChangeRow(
            "CreatePartitions", _create_partitions, _partitions_refused
        ),
        a.AlterPartitionReassignmentsRequest: ChangeRow(
            "AlterPartitionReassignments", reassigning.alter, reassigning.alter_refused
        ),
        a.ListPartitionReassignmentsRequest: ChangeRow(
            "ListPartitionReassignments", reassigning.listed, reassigning.list_refused, reads=True
        ),
        a.RebalanceRequest: ChangeRow(
            "Rebalance", reassigning.rebalance, reassigning.rebalance_refused
        ),
        a.ElectLeadersRequest: ChangeRow("ElectLeaders", _elect_leaders, _elect_refused),
        a.IncrementalAlterConfigsRequest: ChangeRow(
            "IncrementalAlterConfigs", configs.alter, configs.alter_refused
        ),
    }
)
"""The requests of every plane that has a controller."""
