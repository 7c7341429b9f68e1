"""The transactions in which decisions are stored: pure functions of the known cluster.

A decision is a list of records, as in every plane. Its records become writes of znodes in one
transaction. Each write names the version that the decision was based on, so that a transaction
fails if another broker has changed the same znodes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.classic.core.known import Known
from fencepost_clusters.reference.classic.core.znodes import StateChange, StateRequest
from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk

NEVER_STORED = znodes.Isr(epoch=0, leader=-1, isr=(), since=(), version=1)
"""The ISR of a new partition."""
UNKNOWN_PROCESS = -1
"""In place of the process of an ISR's member that is not known: no process is that one."""


def transaction(known: Known, records: Sequence[r.Record]) -> tuple[zk.Write, ...]:
    """The writes that store the records of one decision."""
    after = known.image.copy()
    for record in records:
        after.replay(record, after.offset)
    writes: dict[str, zk.Write] = {}
    for record in records:
        for write in _writes(known, record, after):
            # By path, as each znode has one version: two records that change one znode are written
            # once, from the state after both.
            writes[write.path] = write
    return tuple(writes.values())


def _writes(known: Known, record: r.Record, after: Image) -> Iterable[zk.Write]:
    match record:
        case r.TopicRecord() if record.deleting:
            return _topic_marked(known, record.name)
        case r.TopicRecord():
            return _topic_made(known, record, after)
        case r.PartitionRecord() | r.IsrChangeRecord():
            assert record.topic_id is not None
            key = (record.topic_id, record.partition_id)
            one = after.partitions[record.topic_id][record.partition_id]
            if record.topic_id not in known.image.names:
                return ()  # the topic's record creates its partitions
            if known.partition(key) is None:
                return _partition_added(known, one, after)
            if isinstance(record, r.IsrChangeRecord):
                # Nobody appoints a leader here. A decision that wants another one takes the
                # leader's znode away, and the replicas elect.
                return unled(known, known.image.partitions[key[0]][key[1]])
            return reassigned(known, one)
        case r.ConfigRecord() if record.resource_type == TOPIC_RESOURCE:
            if record.resource_name not in known.image.topics:
                return ()
            return (_topic(known, record.resource_name, after, deleting=False),)
        case r.ConfigRecord() if record.resource_type == BROKER_RESOURCE:
            settings = znodes.BrokerSettings(version=1, config=after.broker_settings)
            path = znodes.BROKERS
            return (zk.SetData(path, encode(settings), known.versions[path]),)
        case _:
            return ()


def _topic(known: Known, name: str, after: Image, deleting: bool) -> zk.SetData:
    path, config = znodes.topic(name), after.settings.get(name, {})
    content = znodes.Topic(id=after.topics[name], version=1, config=config, deleting=deleting)
    return zk.SetData(path, encode(content), known.versions[path])


def _topic_made(known: Known, record: r.TopicRecord, after: Image) -> Iterable[zk.Write]:
    assert record.topic_id is not None
    config = after.settings.get(record.name, {})
    content = znodes.Topic(id=record.topic_id, version=1, config=config)
    yield zk.Create(znodes.topic(record.name), encode(content))
    for _, one in sorted(after.partitions[record.topic_id].items()):
        yield from partition_made(record.name, one)
        yield from _live(known, one.replicas)
    yield zk.Create(znodes.reassignments(record.name))


def partition_made(name: str, one: Partition) -> Iterable[zk.Write]:
    """The znodes of a new partition. No ISR was stored yet, so any of its replicas may lead it."""
    yield zk.Create(znodes.partition(name, one.index))
    yield zk.Create(znodes.isr(name, one.index), encode(NEVER_STORED))
    yield zk.Create(znodes.states(name, one.index))
    for broker in one.replicas:
        yield zk.Create(znodes.state(name, one.index, broker))
    assigned = znodes.Assigned(replicas=one.replicas, version=1)
    yield zk.Create(znodes.replicas(name, one.index), encode(assigned))


def _partition_added(known: Known, one: Partition, after: Image) -> Iterable[zk.Write]:
    """A new partition of a known topic. The topic's znode is written, too, so that it keeps its
    version: a deletion decided without this partition fails, and so does this after a deletion."""
    name = after.names[one.topic_id]
    yield _topic(known, name, known.image, deleting=False)
    yield from partition_made(name, one)
    yield from _live(known, one.replicas)


def _live(known: Known, replicas: Sequence[int]) -> Iterable[zk.Write]:
    """New partitions are stored only while the brokers that were live when they were placed still
    are (RP-28)."""
    placed = (broker for broker in replicas if broker in known.registrations)
    return (zk.Check(znodes.broker(broker)) for broker in placed)


def request(name: str, index: int, broker: int, change: StateChange) -> zk.Create:
    """A request for a state change of a replica."""
    content = encode(StateRequest(change=change, version=1))
    return zk.Create(znodes.request(name, index, broker), content, sequential=True)


def _topic_marked(known: Known, name: str) -> Iterable[zk.Write]:
    """Marks a topic as being deleted, and requests the deletion of each replica."""
    yield _topic(known, name, known.image, deleting=True)
    for index, one in sorted(known.image.partitions[known.image.topics[name]].items()):
        entry = znodes.reassigned(name, index)
        if one.adding or one.removing:
            yield zk.Delete(entry, known.versions[entry])
        for broker in known.assigned[one.topic_id, index]:
            yield request(name, index, broker, StateChange.DELETE)


def topic_gone(known: Known, name: str) -> tuple[zk.Write, ...]:
    """Deletes a topic of which no replica is left: fails if one is, or a leader's znode."""
    gone: list[str] = []
    for index in sorted(known.image.partitions[known.image.topics[name]]):
        of_one = (znodes.replicas, znodes.isr, znodes.states, znodes.partition)
        gone += [path(name, index) for path in of_one]
    gone += [znodes.reassignments(name), znodes.topic(name)]
    return tuple(zk.Delete(path) for path in gone)


def isr_write(known: Known, one: Partition, content: znodes.Isr) -> zk.SetData:
    """Stores the ISR of a partition, if no other was stored since this broker read it."""
    key = (one.topic_id, one.index)
    path = znodes.isr(known.image.names[one.topic_id], one.index)
    return zk.SetData(path, encode(content), known.isrs[key].version)


def isr_with(known: Known, one: Partition, members: Sequence[int]) -> znodes.Isr:
    """The present ISR with other members. A new member is the registered process of its broker;
    A member that stays keeps its process."""
    content = known.isrs[one.topic_id, one.index].content
    since: list[int] = []
    for broker in members:
        stays = content.process_of(broker)
        process = known.process_of(broker) if stays is None else stays
        since.append(UNKNOWN_PROCESS if process is None else process)
    return znodes.Isr(
        epoch=content.epoch,
        leader=content.leader,
        isr=tuple(members),
        since=tuple(since),
        version=1,
        preparing=content.preparing,
    )


def unled(known: Known, one: Partition) -> tuple[zk.Write, ...]:
    """Deletes the leader's znode, which triggers an election, if the leader epoch is the known
    one."""
    name = known.image.names[one.topic_id]
    version = known.isrs[one.topic_id, one.index].version
    return (
        zk.Check(znodes.isr(name, one.index), version),
        zk.Delete(znodes.leader(name, one.index)),
    )


def reassigned(known: Known, one: Partition) -> Iterable[zk.Write]:
    """Begins, changes, calls off or ends a reassignment; `one` is the partition after that.

    The replicas are written each time, so that their newest transaction tells of each change. The
    end leaves the partition without a leader, so that one is elected among the new replicas.
    """
    name = known.image.names[one.topic_id]
    before = known.image.partitions[one.topic_id][one.index]
    moving = bool(one.adding or one.removing)
    was_moving = bool(before.adding or before.removing)
    path, former = znodes.replicas(name, one.index), known.assigned[one.topic_id, one.index]
    assigned = znodes.Assigned(replicas=former if moving else one.replicas, version=1)
    yield zk.SetData(path, encode(assigned), known.versions[path])
    entry = znodes.reassigned(name, one.index)
    if moving:
        wanted = tuple(b for b in one.replicas if b not in one.removing)
        data = encode(znodes.Assigned(replicas=wanted, version=1))
        if was_moving:
            yield zk.SetData(entry, data, known.versions[entry])
        else:
            yield zk.Create(entry, data)
    elif was_moving:
        yield zk.Delete(entry, known.versions[entry])
    if set(one.isr) != set(before.isr):
        yield isr_write(known, before, isr_with(known, before, one.isr))
    ends = not moving and set(one.replicas) != set(former)
    if before.leader >= 0 and (ends or before.leader not in one.isr):
        yield zk.Delete(znodes.leader(name, one.index))
    for broker in before.replicas:
        if broker not in one.replicas:
            yield request(name, one.index, broker, StateChange.UNASSIGNED)
