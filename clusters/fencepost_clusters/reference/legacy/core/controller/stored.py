"""The cluster's state in ZooKeeper: how it is read, and how decisions are written.

A decision is a list of records, as in every plane. Its records become writes of znodes in one
transaction with a check of /controller_epoch, so that a deposed controller can write nothing. The
position of a record is the zxid of the transaction that stored it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk


@dataclass(slots=True)
class Stored:
    """See the module. `versions` are the data versions of znodes, by path."""

    image: Image = field(default_factory=Image)
    epoch: int = 0
    epoch_version: int = 0
    versions: dict[str, int] = field(default_factory=dict)

    def replay(self, records: Iterable[r.Record]) -> None:
        """Applies records that are stored, or that only the controller keeps (a broker's state)."""
        for record in records:
            self.image.replay(record, self.image.offset)

    def transaction(self, records: Sequence[r.Record]) -> tuple[zk.Write, ...]:
        """The check of the controller's epoch, and the writes that store the records; nothing if no
        record has to be stored."""
        # Contents of znodes are made of the state after all records: a topic's znode names all of
        # its partitions, and a znode that two records change is written once.
        after = self.image.copy()
        for record in records:
            after.replay(record, after.offset)
        writes: dict[str, zk.Write] = {}
        for record in records:
            # By path: a transaction that wrote one znode twice would fail at the second version
            # check.
            for write in self._writes(record, after):
                writes[write.path] = write
        # The check is first, and `Store` relies on that. In one transaction with the writes it
        # cannot be true of one moment and the writes of a later one.
        return (self.epoch_check, *writes.values()) if writes else ()

    @property
    def epoch_check(self) -> zk.Check:
        """The check that fails once another controller has stored its epoch."""
        return zk.Check(znodes.CONTROLLER_EPOCH, self.epoch_version)

    def _writes(self, record: r.Record, after: Image) -> tuple[zk.Write, ...]:
        match record:
            case r.TopicRecord() if record.deleting:
                return (zk.Create(znodes.deletion(record.name)),)
            case r.TopicRecord():
                return self._topic_made(record, after)
            case r.PartitionRecord() | r.IsrChangeRecord():
                assert record.topic_id is not None
                name = after.names[record.topic_id]
                if name not in self.image.topics:
                    return ()  # the topic's record creates its partitions
                one = after.partitions[record.topic_id][record.partition_id]
                known = one.index in self.image.partitions[record.topic_id]
                changed = self._state(name, one) if known else self._partition_made(name, one)
                if not isinstance(record, r.PartitionRecord):
                    return changed
                # A reassignment, or a new partition, changes the assignment as well, in the same
                # transaction: without that a leader could be stored that is no replica.
                path = znodes.topic(name)
                data = encode(assignment(after, name))
                return (*changed, zk.SetData(path, data, self.versions[path]))
            case r.ConfigRecord() if record.resource_type == TOPIC_RESOURCE:
                if record.resource_name not in self.image.topics:
                    return ()
                path = znodes.config(record.resource_name)
                return (self._config(path, after.settings.get(record.resource_name, {})),)
            case r.ConfigRecord() if record.resource_type == BROKER_RESOURCE:
                return (self._config(znodes.BROKER_CONFIG, after.broker_settings),)
            case r.DeleteTopicRecord():
                assert record.name is not None
                return self._topic_deleted(self.image.names[record.name])
            case _:
                return ()

    def _config(self, path: str, values: Mapping[str, str]) -> zk.SetData:
        return zk.SetData(path, encode(znodes.Config(values)), self.versions[path])

    def _topic_made(self, record: r.TopicRecord, after: Image) -> tuple[zk.Write, ...]:
        name = record.name
        assert record.topic_id is not None
        config = znodes.Config(after.settings.get(name, {}))
        made: list[zk.Write] = [
            zk.Create(znodes.topic(name), encode(assignment(after, name))),
            zk.Create(znodes.config(name), encode(config)),
            zk.Create(znodes.partitions(name)),
        ]
        for _, one in sorted(after.partitions[record.topic_id].items()):
            made += self._partition_made(name, one)
        return tuple(made)

    def _partition_made(self, name: str, one: Partition) -> tuple[zk.Write, ...]:
        parent = zk.Create(f"{znodes.partitions(name)}/{one.index}")
        return parent, zk.Create(znodes.state(name, one.index), self.encoded(one))

    def _state(self, name: str, one: Partition) -> tuple[zk.Write, ...]:
        path = znodes.state(name, one.index)
        return (zk.SetData(path, self.encoded(one), self.versions[path]),)

    def _topic_deleted(self, name: str) -> tuple[zk.Write, ...]:
        gone: list[str] = []
        for index in sorted(self.image.partitions[self.image.topics[name]]):
            # Children before parents: ZooKeeper deletes no znode that has children.
            gone += [znodes.state(name, index), f"{znodes.partitions(name)}/{index}"]
        gone += [znodes.partitions(name), znodes.topic(name), znodes.config(name)]
        return tuple(zk.Delete(path) for path in (*gone, znodes.deletion(name)))

    def encoded(self, one: Partition) -> bytes:
        """The content of a partition's state znode in this controller's epoch."""
        content = znodes.PartitionState(one.leader, one.leader_epoch, one.isr, self.epoch)
        return encode(content)

    def wrote(self, writes: Sequence[zk.Write], results: Sequence[zk.WriteResult]) -> int | None:
        """Stores the versions after a transaction; returns its zxid, if a result has it."""
        zxid: int | None = None
        for write, result in zip(writes, results, strict=True):
            match write, result:
                case zk.SetData(path), zk.DataSet(stat):
                    self.versions[path] = stat.version
                    zxid = stat.mzxid
                # A znode's first version is 0. A transaction's answer has no stat for it, so no
                # zxid either.
                case zk.Create(path), zk.Created():
                    self.versions[path] = 0
                case zk.Delete(path), zk.Deleted():
                    self.versions.pop(path, None)
                case _:
                    pass
        return zxid

    def read_topic(self, name: str, content: znodes.Assignment, version: int) -> None:
        """Applies a topic's assignment; its partitions have no leader yet."""
        topic_id = znodes.topic_id(name)
        self.versions[znodes.topic(name)] = version
        self.replay([r.TopicRecord(name=name, topic_id=topic_id)])
        for index, replicas in content.partitions.items():
            record = r.PartitionRecord(
                partition_id=int(index),
                topic_id=topic_id,
                replicas=replicas,
                isr=(),
                adding_replicas=content.adding.get(index, ()),
                removing_replicas=content.removing.get(index, ()),
            )
            self.replay([record])

    def read_config(self, name: str, content: znodes.Config, version: int) -> None:
        """Applies the settings of a topic, or of all brokers if `name` is empty."""
        if name:
            self.versions[znodes.config(name)] = version
            self.image.settings[name] = dict(content.config)
        else:
            self.versions[znodes.BROKER_CONFIG] = version
            self.image.broker_settings.update(content.config)

    def read_state(
        self, name: str, index: int, content: znodes.PartitionState, version: int
    ) -> Partition:
        """Applies a partition's state; returns the partition with it."""
        self.versions[znodes.state(name, index)] = version
        parts = self.image.partitions[self.image.topics[name]]
        parts[index] = replace(
            parts[index],
            isr=content.isr,
            leader=content.leader,
            leader_epoch=content.leader_epoch,
        )
        return parts[index]


def assignment(image: Image, name: str) -> znodes.Assignment:
    """The content of a topic's znode."""
    every = sorted(image.partitions[image.topics[name]].items())
    return znodes.Assignment(
        {str(index): one.replicas for index, one in every},
        {str(index): one.adding for index, one in every if one.adding},
        {str(index): one.removing for index, one in every if one.removing},
    )
