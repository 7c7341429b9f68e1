"""A node of the plane without a controller. It registers in ZooKeeper, follows what it reads there,
takes part in elections, replicates, and serves clients."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from msgspec.structs import replace

from fencepost import Cause, NodeStopped
from fencepost_clusters.reference.classic.core import registration, znodes
from fencepost_clusters.reference.classic.core import settings as s
from fencepost_clusters.reference.classic.core.administration import Administration
from fencepost_clusters.reference.classic.core.context import Context
from fencepost_clusters.reference.classic.core.elections import Elections
from fencepost_clusters.reference.classic.core.isr_writes import IsrWrites
from fencepost_clusters.reference.classic.core.known import Known
from fencepost_clusters.reference.classic.core.leading import Leading
from fencepost_clusters.reference.classic.core.lifecycle import Lifecycle
from fencepost_clusters.reference.classic.core.policies import PlanePolicies
from fencepost_clusters.reference.classic.core.reading import Reader
from fencepost_clusters.reference.classic.core.state_changes import StateChanges
from fencepost_clusters.reference.core.cluster.data_plane import DataPlane
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import (
    EXIT_UNREADABLE,
    Answered,
    CallFailed,
    Close,
    CloseSession,
    Effect,
    Exit,
    Input,
    Instant,
    Received,
    Recovered,
    ShutdownAsked,
    Tick,
    ZooKeeperAnswer,
    ZooKeeperEvent,
)
from fencepost_clusters.reference.core.node.process import Process
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.replica import Key, log_name
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.over_zookeeper.core.registering import Registering, Taken
from fencepost_clusters.reference.over_zookeeper.core.session import Clock, Session, Task
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerRegistered

LIVE_AFTER_SESSIONS = 2
"""A session that has an id for that many session timeouts is that of a live process."""
EXIT_REFUSED = EXIT_UNREADABLE
"""The exit code of a process that cannot join: its id belongs to a live process, or the cluster has
another format."""


@final
class ClassicNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(self, settings: Settings, process: Process, policies: PlanePolicies) -> None:
        self.settings = settings
        self._out = out = process.start("broker", settings.node_id)
        self._clock = clock = Clock(process.started)
        self._info = znodes.BrokerInfo(process.site.endpoints(), version=1)
        self.session = Session(settings.zookeeper, settings.chroot, settings.ms(s.SESSION), out)
        self.known = Known(settings.node_id, out)
        self.lifecycle = Lifecycle(settings, out)
        self.reader = Reader(self.known, self.session, clock, self, policies.classic)
        self.state_changes = StateChanges(self.known, self, policies.classic, out)
        context = Context(
            settings=settings,
            known=self.known,
            lifecycle=self.lifecycle,
            session=self.session,
            clock=clock,
            reader=self.reader,
            policies=policies,
        )
        self.data = DataPlane(
            settings,
            self.lifecycle,
            isr_requests=IsrWrites(self.known, self.lifecycle, self.session, self._isr_written),
            changes=Administration(context, process.incarnation),
            policies=policies,
            out=out,
        )
        hosts = self.data.replicas.by_key.__contains__
        self.elections = Elections(context, hosts, self._adopt_one)
        self.leading = Leading(context, self.elections, self.data.replicas, self._adopt_one)
        self._hosted: set[Key] = set()
        """The partitions of reassignments under way that this broker was requested to start."""
        self._registering = Registering(self.session, clock, self._register, out)
        self._taken: tuple[int, int] | None = None
        """The registration of another session under this id, by its czxid, and since when."""
        self._checked_disk = False
        self._due_ns: int | None = process.started.monotonic_ns
        self.data.recover()

    # ------------------------------------------------------------------------------------- driver

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """Handles an input; returns its effects, in order."""
        self._clock.now = now
        self._tick_if_due(now)
        match what:
            case Received():
                self._out.cause = Cause(process=what.client, seq=what.correlation, request=True)
                self._request(what, now)
            case Answered():
                self.data.following.answered(what.call_id, what.message, now)
            case CallFailed():
                self.data.failed(what.call_id, now)
            case ZooKeeperAnswer():
                self.session.answered(what.request_id, what.answer)
            case ZooKeeperEvent():
                self._session_event(what.event, now)
            case Recovered():
                self.data.take_disk(what)
                self.data.join()
                self.session.open()
            case ShutdownAsked():
                self._shut_down(now)
            case Tick():
                pass
        self._out.cause = None
        if self.reader.complete and not self._checked_disk:
            self._check_disk()
        self.leading.go_on(now)
        self.data.settle(self.known.image, now)
        if self.lifecycle.stopping:
            self.lifecycle.go_on(len(self.known.led_by_me()), now)
        self._due_ns = self._earliest_ns()
        if self.lifecycle.ended:
            self._stop(now)
        return self._out.drain()

    def deadline_ns(self) -> int | None:
        """The monotonic time of the next Tick."""
        return self._due_ns

    def _earliest_ns(self) -> int | None:
        return earliest(
            (
                self._registering.deadline_ns(),
                self.reader.deadline_ns(),
                self.lifecycle.deadline_ns(),
                self.elections.deadline_ns(),
                self.leading.deadline_ns(),
                self.data.deadline_ns(),
            )
        )

    def _tick_if_due(self, now: Instant) -> None:
        if self._due_ns is None or now.monotonic_ns < self._due_ns:
            return
        self._registering.tick(now)
        self.reader.tick(now)
        self.elections.tick(now)
        self.leading.tick(now)
        self.data.tick(self.known.image, now)

    def _shut_down(self, now: Instant) -> None:
        """Begins a controlled shutdown: others lead what they can lead, then it ends."""
        self.lifecycle.stop(now)
        if self.session.connected is not None and not self.lifecycle.ended:
            self.session.start(self._tell_stopping())

    def _tell_stopping(self) -> Task:
        info = encode(replace(self._info, stopping=True))
        yield zk.SetData(znodes.broker(self.settings.node_id), info)

    def _stop(self, now: Instant) -> None:
        self.data.stop(now)
        self._out.add(CloseSession())
        self._out.note(NodeStopped(reason="shut down"))
        self._out.add(Exit("shut down"))

    # ----------------------------------------------------------------------------------- ZooKeeper

    def _session_event(
        self, event: zk.Connected | zk.Suspended | zk.Ended | zk.Fired, now: Instant
    ) -> None:
        if isinstance(event, zk.Fired):
            if self._registering.registered_in is not None:
                self.reader.fired(event)
            else:  # it watches only the znode of its id
                self._registering.start()
            return
        self.session.changed(event, now)
        self._taken = None  # while ZooKeeper cannot be reached, it ends no session
        match event:
            case zk.Connected(session):
                if self._registering.registered_in == session:
                    self.reader.everything()
                else:
                    self._registering.start()
            # The leader's znodes have gone with the session. It stops leading before it is told of
            # another leader, and stands again once it is registered.
            case zk.Ended():
                self._registering.registered_in = None
                self.lifecycle.unregistered()
                self.elections.give_up()
                for key in self.known.led_by_me():
                    self.known.unled(key)
                    self._adopt_one(key)
            case zk.Suspended():
                pass

    def _register(self, session: int) -> Task:
        """Registers in a new session, and reads the cluster. If the id is taken, it waits until the
        other session is over, and ends if that is the session of a live process. A process that was
        never registered ends if the cluster has another format. Raises BadZnode if a znode that it
        needs is missing."""
        yield from registration.make_paths(self.settings.chroot)
        first = self._info.since < 0
        if first and (why := (yield from registration.other_format())):
            self._out.end(why, EXIT_REFUSED)
            return
        made = yield from registration.register(self.settings.node_id, self._info, session)
        if isinstance(made, Taken):
            self._wait_for_id(made)
            return
        if first:
            self.elections.process = made.czxid
            self._info = replace(self._info, since=made.czxid)
        self._registering.registered_in = session
        self._out.note(
            BrokerRegistered(
                broker_id=self.settings.node_id,
                broker_epoch=made.czxid,
                session=session,
                version=self._info.version,
                overwrote=False,
            )
        )
        self.lifecycle.registers(made.czxid)
        self.reader.everything()

    def _wait_for_id(self, taken: Taken) -> None:
        now_ns = self._clock.now.monotonic_ns
        if self._taken is None or self._taken[0] != taken.czxid:
            self._taken = (taken.czxid, now_ns)
        due_ns = self._taken[1] + LIVE_AFTER_SESSIONS * self.settings.ns(s.SESSION)
        if now_ns < due_ns:
            self._registering.try_again(due_ns)
            return
        self._out.end(
            f"broker id {self.settings.node_id} is taken by a live process: "
            f"{znodes.broker(self.settings.node_id)} belongs to session {taken.session:x}",
            EXIT_REFUSED,
        )

    # ----------------------------------------------------------------- what has changed (Listener)

    def brokers_changed(self) -> None:
        """Applies the registrations that were read: which brokers are live, and as which
        processes."""
        now = self._clock.now
        # What a former process of a broker has fetched proves nothing about the new one's disk.
        for one in self.data.replicas.all():
            for broker, follower in list(one.followers.items()):
                known = self.known.registrations.get(broker)
                if known is not None and 0 <= follower.broker_epoch < known.epoch:
                    one.forget(broker)
            if one.leading:
                self._expel_replaced(one.key, now)
        self.elections.consider(self.known.isrs.keys(), now)
        self.data.following.hurry(now)

    def _expel_replaced(self, key: Key, now: Instant) -> None:
        """Takes brokers out of the ISR whose processes are not those that are its members."""
        content = self.known.isrs[key].content
        for broker in content.isr:
            process = self.known.process_of(broker)
            replaced = process is not None and process != content.process_of(broker)
            if replaced and broker != self.settings.node_id:
                self.data.replicas.expel(key, broker)

    def partitions_changed(self, keys: Collection[Key]) -> None:
        """Adopts the partitions that were read."""
        now = self._clock.now
        # The order: the first ISR is reported before the replica serves by it; the replica takes
        # its role before this broker's terms and candidacies are made from it.
        self.leading.note_stored(keys)
        self.data.replicas.adopt(self.known.image, [k for k in keys if self._is_adopted(k)], now)
        self.leading.consider(keys, now)
        self.elections.consider(keys, now)
        for key in sorted(keys):
            one = self.known.partition(key)
            if one is not None and one.leader < 0 and key[0] in self.known.image.deleting:
                name = self.known.image.names[key[0]]
                self.session.start(self.state_changes.finish_deletion(name))

    def _is_adopted(self, key: Key) -> bool:
        """Whether a partition's new state concerns a replica here. A replica is removed only upon a
        request, and a new one of a reassignment starts upon one."""
        one, me = self.known.partition(key), self.settings.node_id
        if one is None:
            return key in self.data.replicas.by_key
        if key[0] in self.known.image.deleting or me not in one.replicas:
            return False
        return me not in one.adding or key in self._hosted or key in self.data.replicas.by_key

    def _adopt_one(self, key: Key) -> None:
        self.partitions_changed((key,))

    def _check_disk(self) -> None:
        """Removes the logs on disk that belong to no partition of this broker (RP-25)."""
        self._checked_disk = True
        self.data.replicas.delete_strays(self.known.image)

    def requested(self, name: str, index: int) -> Task:
        """Carries out the requests for state changes of a replica."""
        yield from self.state_changes.listen(name, index)

    def reread(self, name: str, index: int) -> Task:
        """Reads a partition again, and adopts it."""
        yield from self.reader.partition(name, index)

    def host(self, key: Key) -> None:
        """Starts a replica of a partition to which this broker was assigned."""
        self._hosted.add(key)
        self._adopt_one(key)

    def remove(self, name: str, key: Key) -> None:
        """Stops a replica, and deletes its log."""
        self._hosted.discard(key)
        if key in self.data.replicas.by_key:
            deleted = key[0] in self.known.image.deleting
            self.data.replicas.remove(key, "deleted" if deleted else "unassigned")
        self.data.replicas.delete_unopened({log_name(name, key)})

    def _isr_written(self, call_id: int, key: Key, outcome: IsrOutcome | None) -> None:
        now = self._clock.now
        if outcome is None:
            self.data.replicas.failed(call_id, now)
            return
        one = self.data.replicas.by_key.get(key)
        current = one is not None and one.asked == call_id
        self.data.replicas.answered(call_id, outcome, now)
        if outcome.error is Error.NONE and current and one is not None:
            self._adopt_one(key)
            self.data.replicas.confirmed(one.key)
            self._expel_replaced(key, now)

    # ------------------------------------------------------------------------------------ requests

    def _request(self, received: Received, now: Instant) -> None:
        if received.listener == REPLICATION_LISTENER:
            self._from_node(received, now)
        else:
            unread = "" if self.reader.complete else "the cluster is not read yet"
            self.data.client_request(received, self.known.image, now, unread)

    def _from_node(self, received: Received, now: Instant) -> None:
        message = received.message
        if not isinstance(message, m.FetchRequest):
            self._out.add(Close(received.request_id, "no request for a broker"))
            return
        if not self.lifecycle.registered:
            self.data.refuse_follower(received)
        else:
            self.data.fetching.fetch(received, message, self.known.image, now)
