"""The controller's reads and writes of the cluster's state in ZooKeeper, and their events."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import final
from uuid import UUID

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.controller.election import Won
from fencepost_clusters.reference.legacy.core.controller.stored import Stored
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode
from fencepost_clusters.reference.over_zookeeper.core.session import certain
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import TopicCommitted, TopicMarked, ZnodeUnreadable

Steps = Generator[zk.Request, zk.Answer, None]
Decide = Callable[[], Sequence[r.Record]]


class Deposed(Exception):
    """A write was refused: another controller has stored its epoch."""


class Occupied(Exception):
    """A znode that has to be created exists, and this controller knows nothing of it. Its content
    is unreadable, or another client has created it."""


@final
class Store:
    """See the module. `stored` is the state that was read or written last."""

    def __init__(self, won: Won, out: Outbox) -> None:
        self.stored = Stored(epoch=won.epoch, epoch_version=won.version)
        self.written: dict[Key, int] = {}
        """Partition -> the zxid of its state's last write before the term began."""
        self.over = False
        """Whether the term has ended: no more znodes are written."""
        self._out = out

    @property
    def image(self) -> Image:
        """The cluster's state as an image."""
        return self.stored.image

    def read(self) -> Steps:
        """Reads topics and settings, and reads and watches partitions. Raises Disconnected."""
        yield from self._read_topics()
        config = certain((yield zk.GetData(znodes.BROKER_CONFIG)))
        if isinstance(config, zk.Data):
            self._read_broker_config(config)
        marked = certain((yield zk.GetChildren(znodes.DELETE_TOPICS, watch=True)))
        if not isinstance(marked, zk.Children):
            return
        for name in marked.names:
            topic_id = self.image.topics.get(name)
            # A mark of a topic that is gone, or unreadable, is left as it is.
            if topic_id is not None:
                mark = r.TopicRecord(name=name, topic_id=topic_id, deleting=True)
                self.stored.replay([mark])
                # The controller that set the mark may have died before it could report it.
                self._note([mark], {}, marked.stat.pzxid)

    def _read_topics(self) -> Steps:
        listed = certain((yield zk.GetChildren(znodes.TOPICS, watch=True)))
        names = listed.names if isinstance(listed, zk.Children) else ()
        states: list[tuple[int, Partition]] = []
        for name in names:
            try:
                states += yield from self._read_topic(name)
            except BadZnode as bad:
                self.unreadable(str(bad))
        # In the order in which they were written, as every other event about the stored state.
        for zxid, one in sorted(states, key=lambda found: found[0]):
            self._note_partition(one, zxid)

    def _read_topic(
        self, name: str
    ) -> Generator[zk.Request, zk.Answer, Sequence[tuple[int, Partition]]]:
        """Reads a topic with its settings and the states of its partitions, each with the zxid of
        its last write.

        Raises BadZnode if a znode of the topic is missing or unreadable. Then nothing of the topic
        is known: a topic that was known in part would lose the rest with its next write.
        """
        path, of_config = znodes.topic(name), znodes.config(name)
        # All is read and decoded before anything is applied: see the docstring.
        read = yield from self._data(path)
        content = decode(path, read.data, znodes.Assignment)
        states: dict[int, tuple[zk.Stat, znodes.PartitionState]] = {}
        for key in content.partitions:
            if not key.isdecimal():
                raise BadZnode(f"{path} names a partition '{key}', which is no number")
            of_state = znodes.state(name, int(key))
            state = yield from self._data(of_state, watch=True)
            decoded = decode(of_state, state.data, znodes.PartitionState)
            states[int(key)] = state.stat, decoded
        config = yield from self._data(of_config)
        settings = decode(of_config, config.data, znodes.Config)
        self.stored.read_topic(name, content, read.stat.version)
        self.stored.read_config(name, settings, config.stat.version)
        found: list[tuple[int, Partition]] = []
        for index, (stat, decoded) in sorted(states.items()):
            one = self.stored.read_state(name, index, decoded, stat.version)
            found.append((stat.mzxid, one))
            self.written[one.topic_id, index] = stat.mzxid
        return found

    @staticmethod
    def _data(path: str, *, watch: bool = False) -> Generator[zk.Request, zk.Answer, zk.Data]:
        """Reads a znode; raises BadZnode if it is missing, or Disconnected."""
        read = certain((yield zk.GetData(path, watch=watch)))
        if not isinstance(read, zk.Data):
            raise BadZnode(f"{path} is missing")
        return read

    def _read_broker_config(self, read: zk.Data) -> None:
        """Applies the settings of all brokers. If they are unreadable, they stay at their defaults
        until another process writes them."""
        try:
            settings = decode(znodes.BROKER_CONFIG, read.data, znodes.Config)
        except BadZnode as bad:
            self.stored.versions[znodes.BROKER_CONFIG] = read.stat.version
            self.unreadable(str(bad))
            return
        self.stored.read_config("", settings, read.stat.version)

    def unreadable(self, reason: str) -> None:
        """Records that a znode is unreadable; it is left as it is."""
        self._out.note(ZnodeUnreadable(reason=reason))

    def carry_out(self, decide: Decide) -> Generator[zk.Request, zk.Answer, Sequence[r.Record]]:
        """Stores the records of `decide`. If a znode has changed meanwhile, it decides again.

        Raises Occupied if a znode that it has to create exists; Deposed or Disconnected.
        """
        # Each round decides upon the versions that are known. A refused transaction has changed
        # nothing, so to repeat the round is safe.
        while True:
            records = decide()
            writes = self.stored.transaction(records)
            # Records that only the controller keeps, such as a broker's state.
            if not writes:
                self.stored.replay(records)
                return records
            answer = certain((yield zk.Multi(writes)))
            assert isinstance(answer, zk.Done), answer
            refused = [
                (write, result)
                for write, result in zip(writes, answer.results, strict=True)
                if isinstance(result, zk.Refused)
            ]
            if not refused:
                break
            # One write of a transaction is refused for a reason; the others are rolled back with
            # it.
            write, result = next(
                one
                for one in refused
                if one[1].why not in (zk.Reason.ROLLED_BACK, zk.Reason.AFTER_REFUSED)
            )
            # Another controller has stored its epoch. Even without that, a term that is over
            # decides nothing again.
            if isinstance(write, zk.Check) or self.over:
                raise Deposed
            yield from self._read_again(write.path, result.why)
        before = dict(self.image.names)
        zxid = self.stored.wrote(writes, answer.results)
        if zxid is None:
            zxid = yield from self._zxid_of(writes)
        self.stored.replay(records)
        self._note(records, before, zxid)
        for write in writes:
            if isinstance(write, zk.Create) and write.path.endswith("/state"):
                yield from self.refresh(write.path)  # watches what a leader may write (HB-22)
        return records

    def _zxid_of(self, writes: Sequence[zk.Write]) -> Generator[zk.Request, zk.Answer, int]:
        """The zxid of a transaction whose results have none: that of a znode that it has made; or
        of the last change among topics, which only this controller makes and deletes."""
        # The first write is the check of the epoch.
        deleted = isinstance(writes[1], zk.Delete)
        found = certain((yield zk.Exists(znodes.TOPICS if deleted else writes[1].path)))
        stat = found.stat if isinstance(found, zk.Found) else None
        if stat is None:
            return 0
        return stat.pzxid if deleted else stat.czxid

    def confirm(self) -> Steps:
        """Raises Deposed if another controller has stored its epoch, or Disconnected."""
        # An answer NONE to a leader says that its ISR is stored now. A deposed controller cannot
        # know that without asking.
        answer = certain((yield zk.Multi((self.stored.epoch_check,))))
        assert isinstance(answer, zk.Done), answer
        if any(isinstance(result, zk.Refused) for result in answer.results):
            raise Deposed

    def _read_again(self, path: str, why: zk.Reason) -> Steps:
        """Reads a znode whose version has changed since this controller read it. If another client
        has removed it or put znodes below it, the term ends, and the next controller reads all
        state again."""
        if why is zk.Reason.NODE_EXISTS:
            raise Occupied(path)
        of_partition = path.endswith("/state")
        read = certain((yield zk.GetData(path, watch=of_partition)))
        if why is not zk.Reason.BAD_VERSION or not isinstance(read, zk.Data):
            self.unreadable(f"{path} was changed by another client: {why}")
            raise Deposed
        if of_partition:
            self._take_state(path, read)
        else:
            self.stored.versions[path] = read.stat.version

    def _take_state(self, path: str, read: zk.Data) -> Partition:
        """Applies a partition's state that was read. If it is unreadable, the term ends, and the
        next controller reads all state again."""
        name, index = znodes.place(path)
        try:
            content = decode(path, read.data, znodes.PartitionState)
        except BadZnode as bad:
            self.unreadable(str(bad))
            raise Deposed from bad
        one = self.stored.read_state(name, index, content, read.stat.version)
        self._note_partition(one, read.stat.mzxid)
        return one

    def refresh(self, path: str) -> Generator[zk.Request, zk.Answer, Partition | None]:
        """Reads and watches a partition's state; returns the partition if its state has changed."""
        before = self.image.partition(*znodes.place(path))
        if before is None:
            return None
        known = self.stored.versions[path]
        read = certain((yield zk.GetData(path, watch=True)))
        # This controller's own write has fired the watch, or the topic is gone.
        if not isinstance(read, zk.Data) or read.stat.version <= known:
            return None
        after = self._take_state(path, read)
        return after if after != before else None

    def _note(self, records: Iterable[r.Record], before: Mapping[UUID, str], zxid: int) -> None:
        image = self.image
        for record in records:
            match record:
                case r.TopicRecord(deleting=True):
                    self._out.note(
                        TopicMarked(offset=zxid, topic=record.name, topic_id=str(record.topic_id))
                    )
                case r.TopicRecord():
                    self._out.note(
                        TopicCommitted(
                            offset=zxid,
                            topic=record.name,
                            topic_id=str(record.topic_id),
                            deleted=False,
                            role="controller",
                        )
                    )
                case r.DeleteTopicRecord():
                    assert record.name is not None
                    self._out.note(
                        TopicCommitted(
                            offset=zxid,
                            topic=before[record.name],
                            topic_id=str(record.name),
                            deleted=True,
                            role="controller",
                        )
                    )
                case r.PartitionRecord() | r.IsrChangeRecord():
                    self._note_partition(image.named(record), zxid)
                case _:
                    pass

    def _note_partition(self, one: Partition, zxid: int) -> None:
        self._out.note(self.image.committed(one, zxid, "controller"))
