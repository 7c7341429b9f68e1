"""Handles the requests of clients at a broker, in every plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fencepost_clusters.reference.core.cluster import configs, serving
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import ServingPolicies
from fencepost_clusters.reference.core.node.effects import Close, Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication import fetching
from fencepost_clusters.reference.core.replication.cluster_state import Session
from fencepost_clusters.reference.core.replication.fetching import Fetching
from fencepost_clusters.reference.core.replication.producing import Producing
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RequestRefused


class CarriesOut(Protocol):
    """Carries out the changes that clients ask for, or has a controller carry them out."""

    def takes(self, request: m.Request) -> bool:
        """Whether a request is one for a change."""
        ...

    def carry_out(self, received: Received, now: Instant) -> None:
        """Has it carried out, and answers it then."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """The parts of a broker that carry out clients' requests."""

    replicas: Replicas
    producing: Producing
    fetching: Fetching
    changes: CarriesOut


class ClientRequests:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        *,
        parts: Serving,
        policies: ServingPolicies,
        out: Outbox,
    ) -> None:
        self._settings = settings
        self._session = session
        self._parts = parts
        self._policies = policies
        self._out = out
        self._producers = 0

    def handle(self, received: Received, image: Image, now: Instant) -> None:
        """Answers a request, now or later."""
        me = self._settings.node_id
        message = received.message
        answer: m.Response
        match message:
            case m.ProduceRequest():
                if message.transactional_id is not None:
                    self._out.add(Close(received.request_id, "transactions are not supported"))
                    return
                self._parts.producing.produce(received, message, image, now)
                return
            case m.FetchRequest():
                self._parts.fetching.fetch(received, message, image, now)
                return
            case _ if self._parts.changes.takes(message):
                self._parts.changes.carry_out(received, now)
                return
            case m.MetadataRequest():
                cluster = self._settings.cluster_id
                where = received.listener
                answer = serving.metadata(
                    image, message, me, cluster, self._policies, listener=where
                )
            case a.DescribeConfigsRequest():
                answer = configs.describe(image, self._settings, me, message)
            case a.DescribeLogDirsRequest():
                answer = serving.describe_log_dirs(image, self._parts.replicas, message)
            case m.ListOffsetsRequest():
                answer = serving.list_offsets(image, self._parts.replicas, message)
            case m.OffsetForLeaderEpochRequest():
                answer = serving.offset_for_leader_epoch(image, self._parts.replicas, message)
            case m.InitProducerIdRequest():
                answer = self._init_producer(message)
            case m.FindCoordinatorRequest():
                answer = serving.find_coordinator(image, message, me, received.listener)
            case m.OffsetCommitRequest():
                answer = serving.offset_commit(message)
            case m.OffsetFetchRequest():
                answer = serving.offset_fetch(message)
            case m.JoinGroupRequest():
                answer = m.JoinGroupResponse(
                    error_code=Error.GROUP_ID_NOT_FOUND, member_id=message.member_id
                )
            case _:
                self._out.add(Close(received.request_id, "no request for a client listener"))
                return
        self._out.add(Reply(received.request_id, answer))

    def _init_producer(self, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
        """Answers with a producer id that was never given before, since neither broker epochs nor
        the counter are ever reused."""
        if request.transactional_id is not None:
            return m.InitProducerIdResponse(
                error_code=Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                producer_id=-1,
                producer_epoch=-1,
            )
        self._producers += 1
        return m.InitProducerIdResponse(
            error_code=Error.NONE,
            producer_id=(self._session.epoch << 20) | self._producers,
            producer_epoch=0,
        )


def refuse_fenced(received: Received, session: Session, out: Outbox) -> None:
    """A fenced broker processes no client request: an error, or a closed connection."""
    message = received.message
    state = session.state.label
    name = type(message).__name__.removesuffix("Request")
    error = Error.NOT_LEADER_OR_FOLLOWER
    partitions: list[tuple[str, int]] = [("", -1)]
    answer: m.Response | None = None
    match message:
        case m.ProduceRequest():
            partitions = [(t.name, p.index) for t in message.topic_data for p in t.partition_data]
            if message.acks != 0:
                answer = m.ProduceResponse(
                    responses=tuple(
                        m.TopicProduceResponse(
                            name=t.name,
                            partition_responses=tuple(
                                m.PartitionProduceResponse(index=p.index, error_code=error)
                                for p in t.partition_data
                            ),
                        )
                        for t in message.topic_data
                    )
                )
        case m.FetchRequest():
            partitions = [(t.topic, p.partition) for t in message.topics for p in t.partitions]
            answer = fetching.refused(message, error)
        case _:
            error = Error.BROKER_NOT_AVAILABLE
    for topic, index in partitions:
        out.note(
            RequestRefused(
                api=name,
                topic=topic,
                partition=index,
                client=received.client,
                requester=-1,
                error=error.name,
                reason="fenced",
                state=state,
            )
        )
    if answer is not None:
        out.add(Reply(received.request_id, answer))
    else:
        out.add(Close(received.request_id, "fenced"))
