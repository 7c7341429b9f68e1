"""What a broker reads in ZooKeeper and watches: brokers, topics, partitions, and the requests for
state changes of its replicas (the design's listeners).

Each part is read again after each change. One read of a part runs at a time; a change meanwhile
repeats it. Every broker watches all of it: every broker answers clients about all partitions, and
no leader exists that could start a new partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator
from typing import Protocol, final

from msgspec import Struct

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.classic.core.known import Known, Read, Registration, StoredIsr
from fencepost_clusters.reference.classic.core.policies import ClassicPolicies
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode
from fencepost_clusters.reference.over_zookeeper.core.session import (
    TRY_AGAIN_NS,
    Clock,
    Session,
    Task,
    certain,
)
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import ZnodeUnreadable


class Brokers(Struct, frozen=True):
    """The registrations of all brokers."""


class Settings(Struct, frozen=True):
    """The settings of all brokers."""


class Topics(Struct, frozen=True):
    """The list of topics."""


class Topic(Struct, frozen=True):
    """A topic, and the list of its partitions."""

    name: str


class Partition(Struct, frozen=True):
    """A partition: its replicas, ISR, leader and reassignment."""

    name: str
    index: int


class State(Struct, frozen=True):
    """The requests for state changes of this broker's replica."""

    name: str
    index: int


Part = Brokers | Settings | Topics | Topic | Partition | State


class Listener(Protocol):
    """What is done upon a change."""

    def brokers_changed(self) -> None: ...
    def partitions_changed(self, keys: Collection[Key]) -> None: ...
    def requested(self, name: str, index: int) -> Task:
        """Carries out the requests for state changes of this broker's replica."""
        ...


@final
class Reader:
    """See the module. `complete`: everything has been read once in this process."""

    def __init__(
        self,
        known: Known,
        session: Session,
        clock: Clock,
        listener: Listener,
        policies: ClassicPolicies,
    ) -> None:
        self.complete = False
        self._known = known
        self._session = session
        self._clock = clock
        self._listener = listener
        self._policies = policies
        # The parts that are being read.
        self._running: set[Part] = set()
        # Those that have changed during their read, which is repeated then.
        self._again: set[Part] = set()
        self._seen: set[Part] = set()
        """The parts that were read at least once, by this process."""
        self._fired: Counter[tuple[str, int]] = Counter()
        """How often watches of a partition's znodes have fired."""
        self._retry: dict[Part, int] = {}
        """The unreadable parts, and when they are read again."""

    # -------------------------------------------------------------------------------------- driver

    def everything(self) -> None:
        """Reads all parts again, which renews the watches."""
        for part in (Settings(), Brokers(), Topics()):
            self.want(part)
        for name in sorted(self._known.image.topics):
            self._want_topic(name)

    def _want_topic(self, name: str) -> None:
        self.want(Topic(name))
        topic_id = self._known.image.topics[name]
        for index in sorted(self._known.image.partitions[topic_id]):
            self.want(Partition(name, index))
            self.want(State(name, index))

    def fired(self, fired: zk.Fired) -> None:
        """Reads the part again whose watch has fired."""
        if fired.path == znodes.BROKERS:
            self.want(Settings())
        elif fired.path.startswith(znodes.BROKER_IDS):
            self.want(Brokers())
        elif fired.path == znodes.TOPICS:
            self.want(Topics())
        elif fired.path.startswith(znodes.REASSIGNED):
            name, index = fired.path.split("/")[3:5]
            self._partition_fired(name, int(index))
        elif fired.path.startswith(znodes.TOPICS):
            name, *below = fired.path.split("/")[3:]
            if not below:
                self.want(Topic(name))
            elif "state" in below:
                self.want(State(name, int(below[0])))
            else:
                self._partition_fired(name, int(below[0]))

    def _partition_fired(self, name: str, index: int) -> None:
        self._fired[name, index] += 1
        self.want(Partition(name, index))

    def want(self, part: Part) -> None:
        """Reads a part, at once or after the read of it that is running."""
        if not self._policies.notices(type(part).__name__, part in self._seen):
            return
        # A second read beside the first could end before it, and be overwritten by what is older.
        if part in self._running:
            self._again.add(part)
        elif self._session.connected is not None:
            self._session.start(self._run(part))

    def deadline_ns(self) -> int | None:
        """When an unreadable part is read again."""
        return min(self._retry.values(), default=None)

    def tick(self, now: Instant) -> None:
        """Reads the unreadable parts that are due."""
        for part, due_ns in list(self._retry.items()):
            if now.monotonic_ns >= due_ns:
                del self._retry[part]
                self.want(part)

    def _run(self, part: Part) -> Task:
        self._running.add(part)
        try:
            while True:
                self._again.discard(part)
                try:
                    yield from self._read(part)
                # A znode that is missing may have no watch, so it is looked at again in any case.
                except BadZnode as bad:
                    self._known.out.note(ZnodeUnreadable(reason=str(bad)))
                    self._retry[part] = self._clock.now.monotonic_ns + TRY_AGAIN_NS
                self._seen.add(part)
                if part not in self._again:
                    break
        finally:
            self._running.discard(part)
        # A part that leads to others has started them before it ended, so none is missing when no
        # read is left.
        if not self._running:
            self.complete = True

    def _read(self, part: Part) -> Task:
        match part:
            case Settings():
                yield from self._settings()
            case Brokers():
                yield from self.brokers()
            case Topics():
                yield from self.topics()
            case Topic(name):
                yield from self.topic(name)
            case Partition(name, index):
                yield from self.partition(name, index)
            case State(name, index):
                yield from self._listener.requested(name, index)

    # --------------------------------------------------------------------------------------- parts

    def _settings(self) -> Task:
        read = certain((yield zk.GetData(znodes.BROKERS, watch=True)))
        if isinstance(read, zk.Data):
            self._known.versions[znodes.BROKERS] = read.stat.version
            content = decode(znodes.BROKERS, read.data, znodes.BrokerSettings)
            self._known.image.broker_settings = dict(content.config)

    def brokers(self) -> Task:
        """Reads all registrations; an unreadable one is left out."""
        listed = certain((yield zk.GetChildren(znodes.BROKER_IDS, watch=True)))
        if not isinstance(listed, zk.Children):
            raise BadZnode(f"{znodes.BROKER_IDS} is missing")
        found: dict[int, Registration] = {}
        for name in listed.names:
            read = certain((yield zk.GetData(f"{znodes.BROKER_IDS}/{name}", watch=True)))
            if not isinstance(read, zk.Data):
                continue  # it was deleted after it was listed, so the list is read again
            try:
                found[int(name)] = _registration(name, read)
            except BadZnode as bad:
                self._known.out.note(ZnodeUnreadable(reason=str(bad)))
        self._known.set_registrations(found, listed.stat.pzxid)
        self._listener.brokers_changed()

    def topics(self) -> Task:
        """Reads the list of topics, and begins to read the new ones."""
        listed = certain((yield zk.GetChildren(znodes.TOPICS, watch=True)))
        if not isinstance(listed, zk.Children):
            raise BadZnode(f"{znodes.TOPICS} is missing")
        known = self._known.image.topics
        for name in sorted(known.keys() - set(listed.names)):
            self._gone(name, listed.stat.pzxid)
        for name in sorted(listed.names):
            if name not in known:
                self.want(Topic(name))

    def _gone(self, name: str, offset: int) -> None:
        self._listener.partitions_changed(self._known.forget_topic(name, offset))

    def topic(self, name: str) -> Task:
        """Reads a topic, and begins to read its new partitions."""
        path = znodes.topic(name)
        read = certain((yield zk.GetData(path, watch=True)))
        listed = certain((yield zk.GetChildren(path, watch=True)))
        if not isinstance(read, zk.Data) or not isinstance(listed, zk.Children):
            return  # it was deleted: the watch on the list of topics fires
        content = decode(path, read.data, znodes.Topic)
        image = self._known.image
        # The topic was deleted, and made again under its name, between two reads. The old one goes
        # first, just before the creation of the new one.
        if image.topics.get(name, content.id) != content.id:
            self._gone(name, read.stat.czxid - 1)
        self._known.versions[path] = read.stat.version
        before = content.id in image.deleting
        self._known.set_topic(name, content, read.stat.czxid, read.stat.mzxid)
        for index in sorted(int(one) for one in listed.names if one.isdecimal()):
            # Known partitions have watches of their own. A mark of deletion changes what each of
            # them may do, so they are read again.
            if index not in image.partitions[content.id] or content.deleting != before:
                self.want(Partition(name, index))
                self.want(State(name, index))

    def partition(self, name: str, index: int) -> Task:
        """Reads a partition."""
        topic_id = self._known.image.topics.get(name)
        if topic_id is None:
            return
        read = yield from self._of_partition(name, index)
        key = (topic_id, index)
        if read is not None and topic_id in self._known.image.names:
            self._known.set_partition(key, read)
            self._listener.partitions_changed((key,))

    def _of_partition(self, name: str, index: int) -> Generator[zk.Request, zk.Answer, Read | None]:
        """Reads the znodes of a partition as they were at one time: if one of them changes before
        the last is read, its watch fires first, and all are read again. Without a leader, the
        newest change of the partition's children is that it went."""
        place = (name, index)
        while True:
            # ZooKeeper sends the event of a watch before the answer that shows the change. So if
            # the counter has not moved when the last answer is there, all answers are of one time.
            fired = self._fired.get(place, 0)
            leader = yield from _stat(znodes.leader(name, index))
            parent = None
            if leader is None:
                parent = yield from _stat(znodes.partition(name, index), watch=False)
            path = znodes.replicas(name, index)
            assigned = certain((yield zk.GetData(path, watch=True)))
            moves = yield from self._reassigned(name, index)
            isr = certain((yield zk.GetData(znodes.isr(name, index), watch=True)))
            if not isinstance(assigned, zk.Data) or not isinstance(isr, zk.Data):
                return None  # it was deleted
            stored = StoredIsr(znodes.isr_of(znodes.isr(name, index), isr.data), isr.stat.version)
            if self._fired.get(place, 0) != fired:
                continue
            if leader is None and parent is None:
                return None  # it was deleted
            children = 0 if parent is None else parent.pzxid
            # An election writes both in one transaction. A leader's znode that is newer was made by
            # something else.
            if leader is not None and leader.czxid > isr.stat.mzxid:
                raise BadZnode(f"{znodes.leader(name, index)} was created without an ISR")
            # The position of this state in events: each transaction that changes the partition
            # changes one of these.
            times = (children, assigned.stat.mzxid, isr.stat.mzxid, moves[1] if moves else 0)
            led = leader is not None and self._is_current(leader, stored)
            versions = {path: assigned.stat.version}
            if moves:
                versions[znodes.reassigned(name, index)] = moves[2]
            return Read(
                offset=max(times) if led or leader is None else -1,
                led=led,
                assigned=decode(path, assigned.data, znodes.Assigned).replicas,
                target=moves[0] if moves else None,
                isr=stored,
                versions=versions,
            )

    def _is_current(self, leader: zk.Stat, stored: StoredIsr) -> bool:
        """Whether the leader's znode is that of a live process: this broker's own is, if it belongs
        to its present session."""
        # A leader's znode of this broker's former session is about to go. Taken for its own, the
        # broker would lead without an election.
        mine = stored.content.leader == self._known.me
        return not mine or leader.owner == self._session.connected

    @staticmethod
    def _reassigned(
        name: str, index: int
    ) -> Generator[zk.Request, zk.Answer, tuple[tuple[int, ...], int, int] | None]:
        """The new replicas of a reassignment, its newest transaction, and its znode's version."""
        path = znodes.reassigned(name, index)
        stat = yield from _stat(path)
        if stat is None:
            return None
        read = certain((yield zk.GetData(path, watch=True)))
        if not isinstance(read, zk.Data):
            return None
        wanted = decode(path, read.data, znodes.Assigned).replicas
        return wanted, read.stat.mzxid, read.stat.version


def _stat(path: str, watch: bool = True) -> Generator[zk.Request, zk.Answer, zk.Stat | None]:
    found = certain((yield zk.Exists(path, watch=watch)))
    return found.stat if isinstance(found, zk.Found) else None


def _registration(name: str, read: zk.Data) -> Registration:
    if not name.isdecimal():
        raise BadZnode(f"{znodes.BROKER_IDS}/{name} is not a broker id")
    info = decode(znodes.broker(int(name)), read.data, znodes.BrokerInfo)
    return Registration(int(name), read.stat.czxid, read.stat.version, info)
