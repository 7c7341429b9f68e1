"""A leader of two partitions and its clients' requests, without a cluster."""

from __future__ import annotations

from quorum_bench import ME, OTHER, TOPIC, QuorumBroker, replies

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

BATCH = record_batch.build([b"x"], 0, -1, 1)
MANY = 1 << 20


def produce(
    *indexes: int, acks: int = -1, timeout_ms: int = 60_000, batch: bytes = BATCH
) -> m.ProduceRequest:
    """A batch for each of these partitions."""
    data = tuple(m.PartitionProduceData(index=index, records=batch) for index in indexes)
    topics = (m.TopicProduceData(name="orders", partition_data=data),)
    return m.ProduceRequest(acks=acks, timeout=timeout_ms, topic_data=topics)


def read(
    *offsets: int,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = MANY,
    session: int = 0,
    epoch: int = -1,
) -> m.FetchRequest:
    """A client's fetch from these offsets of partitions 0, 1 and so on."""
    parts = tuple(
        m.FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=MANY,
            current_leader_epoch=epoch,
        )
        for index, offset in enumerate(offsets)
    )
    return m.FetchRequest(
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(m.FetchTopic(partitions=parts, topic="orders"),),
        session_id=session,
    )


def parts(answer: m.Response | None) -> list[m.PartitionData]:
    assert isinstance(answer, m.FetchResponse)
    return [part for topic in answer.responses for part in topic.partitions]


def served(answer: m.Response | None) -> list[int]:
    """How far the records of each partition go in an answer without errors; -1 without records."""
    assert {part.error_code for part in parts(answer)} == {Error.NONE}
    slices = [part.records for part in parts(answer)]
    return [one.end if isinstance(one, m.LogSlice) else -1 for one in slices]


def errors(answer: m.Response | None) -> list[Error]:
    """The error of each partition in an answer."""
    if isinstance(answer, m.ProduceResponse):
        return [Error(p.error_code) for t in answer.responses for p in t.partition_responses]
    return [Error(part.error_code) for part in parts(answer)]


class Leader:
    """Broker 1 leads two partitions alone, unless broker 2 is in the ISR, too."""

    def __init__(self) -> None:
        self.broker = QuorumBroker().activates()
        self.node, self.core = self.broker.node, self.broker.core

    def leads(self, isr: tuple[int, ...] = (ME,), leader: int = ME, epoch: int = 0) -> Leader:
        topic = [] if epoch else [r.TopicRecord(name="orders", topic_id=TOPIC)]
        parts = [
            r.PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=(ME, OTHER),
                isr=isr,
                leader=leader,
                leader_epoch=epoch,
            )
            for index in (0, 1)
        ]
        self.broker.commits(*topic, *parts)
        return self

    def sets(self, name: str, value: str) -> None:
        """The controller commits a setting of the topic."""
        record = r.ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value)
        self.broker.commits(record)

    def since(self, before: int) -> list[m.Response | None]:
        """The answers among its effects from this number on."""
        return [one.message for one in replies(self.node.effects[before:])]

    def asked(self, message: m.Request) -> list[m.Response | None]:
        """The answers that leave at once when a client asks."""
        return [one.message for one in self.node.asks("CLIENT", message)]

    def fetched(self, offset: int, session: tuple[int, int] = (0, 0)) -> list[e.Reply]:
        """Broker 2 has both logs up to this offset; the answers that leave at once."""
        parts = tuple(
            m.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=MANY,
                current_leader_epoch=0,
                last_fetched_epoch=0 if offset else -1,
            )
            for index in (0, 1)
        )
        return self.node.asks(
            "REPLICATION",
            m.FetchRequest(
                max_wait=500,
                min_bytes=0,
                max_bytes=MANY,
                topics=(m.FetchTopic(partitions=parts, topic_id=TOPIC),),
                replica_state=m.ReplicaState(replica_id=OTHER, replica_epoch=2),
                session_id=session[0],
                session_epoch=session[1],
            ),
        )


def active(isr: tuple[int, ...] = (ME,)) -> Leader:
    return Leader().leads(isr)
