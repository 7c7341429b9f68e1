"""A broker node over ZooKeeper, which can also be the controller. It registers, carries out control
requests, replicates, and serves clients."""

from __future__ import annotations

from typing import final

from msgspec.structs import replace

from fencepost import Cause, NodeStopped
from fencepost_clusters.reference.core.cluster.changes import CHANGES
from fencepost_clusters.reference.core.cluster.data_plane import DataPlane
from fencepost_clusters.reference.core.cluster.forwarding import Forwarding
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import (
    Address,
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
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.broker import registration
from fencepost_clusters.reference.legacy.core.broker.commands import Commands
from fencepost_clusters.reference.legacy.core.broker.isr_requests import (
    IsrChanges,
    KnownZnodes,
    ZnodeWrites,
)
from fencepost_clusters.reference.legacy.core.broker.lifecycle import Lifecycle
from fencepost_clusters.reference.legacy.core.broker.registration import Peers, TakenOver
from fencepost_clusters.reference.legacy.core.controller.controller import Controller
from fencepost_clusters.reference.legacy.core.loopback import Loopback
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies, PlanePolicies
from fencepost_clusters.reference.legacy.core.settings import ADVERTISED
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode
from fencepost_clusters.reference.over_zookeeper.core.registering import Registering
from fencepost_clusters.reference.over_zookeeper.core.session import Clock, Session, Task, certain
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerRegistered, ZnodeUnreadable


def _broker_info(
    settings: Settings, process: Process, policies: LegacyBrokerPolicies
) -> znodes.BrokerInfo:
    """The content of the broker's znode."""
    version = policies.info_version(settings.ms("inter.broker.protocol"))
    hidden = () if settings.ms(ADVERTISED) else (REPLICATION_LISTENER,)
    return znodes.BrokerInfo(
        version, tuple(one for one in process.site.endpoints() if one[0] not in hidden)
    )


@final
class LegacyNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(self, settings: Settings, process: Process, policies: PlanePolicies) -> None:
        self.settings = settings
        self._out = out = process.start("broker", settings.node_id)
        now = process.started
        self._clock = Clock(now)
        self._policies = policies.legacy.broker
        self._info = _broker_info(settings, process, self._policies)
        self._loopback = Loopback(process.site)
        self.session = Session(
            settings.zookeeper, settings.chroot, settings.ms("zookeeper.session.timeout.ms"), out
        )
        # All sessions of this process. A znode of one of them is this process's own, not a taken
        # id.
        self._sessions: frozenset[int] = frozenset()
        self._registering = Registering(self.session, self._clock, self._register, out)
        self._ever_registered = False
        self.peers = Peers(self._peers_changed, lambda said: out.note(ZnodeUnreadable(reason=said)))
        # One mapping, which `Forwarding` holds; it is cleared and filled again.
        self._addresses: dict[int, Address] = {}
        self.controller = Controller(settings, self.session, self._clock, policies, out)
        self.lifecycle = Lifecycle(settings, self._controller, self._policies, out)
        known = KnownZnodes()
        self.isr_changes = IsrChanges(
            settings,
            self.lifecycle,
            ZnodeWrites(self.session, known, self._isr_written, out),
            controller=self._controller,
            policies=self._policies,
            out=out,
        )
        self.forwarding = Forwarding(settings, self._addresses, CHANGES, out)
        self.data = DataPlane(
            settings,
            self.lifecycle,
            isr_requests=self.isr_changes,
            changes=self.forwarding,
            policies=policies,
            out=out,
        )
        self.commands = Commands(
            settings, self.lifecycle, self.data.replicas, known, policies=self._policies, out=out
        )
        self._due_ns: int | None = now.monotonic_ns
        self.data.recover()

    @property
    def elected(self) -> int | None:
        """The controller's broker id, as far as this broker knows."""
        return self.controller.elected

    def _controller(self) -> tuple[int, Address] | None:
        """The controller's broker id and address, if both are known."""
        known = ((broker, at) for broker, at in self._addresses.items() if broker == self.elected)
        return next(known, None)

    # ------------------------------------------------------------------------------------- driver

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """Handles an input, and the inputs that follow from calls of this node to itself."""
        outward: list[Effect] = []
        # The controller is a broker, too: a call to itself becomes the next input of this same
        # step, so no other input comes between.
        self._loopback.tick(now)
        self._loopback.inputs.append(what)
        while self._loopback.inputs:
            for effect in self._step(self._loopback.inputs.popleft(), now):
                if not self._loopback.takes(effect, now):
                    outward.append(effect)
        return tuple(outward)

    def _step(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        self._clock.now = now
        self._out.cause = None
        self._tick_if_due(now)
        match what:
            case Received():
                self._out.cause = Cause(process=what.client, seq=what.correlation, request=True)
                self._request(what, now)
            case Answered():
                self._answered(what, now)
            case CallFailed():
                self._failed(what, now)
            case ZooKeeperAnswer():
                self.session.answered(what.request_id, what.answer)
            case ZooKeeperEvent():
                self._session_event(what.event, now)
            case Recovered():
                self.data.take_disk(what)
                # Over ZooKeeper a process acts as the broker of its id from the start: it obeys
                # control requests only once it is registered, and leads by nothing else.
                self.data.join()
                self.session.open()
            case ShutdownAsked():
                self.lifecycle.stop(now)
            case Tick():
                pass
        self._out.cause = None
        self._finish_step(now)
        self._due_ns = self._earliest_ns()
        if self.lifecycle.ended:
            self._stop(now)
        return self._out.drain()

    def _finish_step(self, now: Instant) -> None:
        """Runs the work that may be due after any input."""
        # Jobs first: what they store may settle requests below.
        self.controller.go_on(now)
        for name in sorted(self.commands.new_topics):
            self.session.start(self._read_config(name))
        self.commands.new_topics.clear()
        self.data.settle(self.commands.metadata, now)

    def deadline_ns(self) -> int | None:
        """The monotonic time of the next Tick."""
        return earliest((self._due_ns, self._loopback.deadline_ns()))

    def _earliest_ns(self) -> int | None:
        return earliest(
            (
                self._registering.deadline_ns(),
                self.controller.deadline_ns(),
                self.lifecycle.deadline_ns(),
                self.forwarding.deadline_ns(),
                self.data.deadline_ns(),
            )
        )

    def _tick_if_due(self, now: Instant) -> None:
        if self._due_ns is None or now.monotonic_ns < self._due_ns:
            return
        self._registering.tick(now)
        self.controller.tick(now)
        self.lifecycle.tick(now, sum(1 for one in self.data.replicas.all() if one.leading))
        self.forwarding.tick(now, self.elected)
        self.data.tick(self.commands.metadata, now)

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
            if event.path.startswith(znodes.BROKER_IDS):
                self._read_peers()
            elif event.path.startswith("/config/"):
                name = event.path.rpartition("/")[2]
                of_brokers = event.path == znodes.BROKER_CONFIG
                self.session.start(self._read_config("" if of_brokers else name))
            self.controller.fired(event)
            return
        self.session.changed(event, now)
        match event:
            case zk.Connected(session):
                self._sessions |= {session}
                # A session that was only suspended has kept its znodes, and lost its watches with
                # the connection: a broker that read nothing again obeyed old settings for the rest
                # of its life.
                if self._registering.registered_in == session:
                    self._read_watched()
                else:
                    self._registering.start()
            case zk.Suspended():
                # The session may go on at the servers. The broker stays registered; only the
                # controller's authority depends on the connection (HB-27).
                self.controller.lost_connection()
            case zk.Ended():
                self.controller.lost_connection()
                self._registering.registered_in = None
                if not self.lifecycle.lost:
                    self.lifecycle.unregistered()

    def _register(self, session: int) -> Task:
        """Registers in a new session, and stands for the controller's election. Raises BadZnode if
        a znode that it needs is missing."""
        if self.lifecycle.lost:
            return
        yield from registration.make_paths(self.settings.chroot)
        made = yield from registration.register(
            self.settings.node_id,
            self._info,
            session,
            self._sessions,
            first=not self._ever_registered,
        )
        if isinstance(made, TakenOver):
            self._taken_over()
            return
        # The first registration names the process for good.
        if not self._ever_registered:
            self._info = replace(self._info, since=made.epoch)
        self._ever_registered = True
        self._registering.registered_in = session
        self._out.note(
            BrokerRegistered(
                broker_id=self.settings.node_id,
                broker_epoch=made.epoch,
                session=session,
                version=self._info.version,
                overwrote=made.overwrote,
                protocol=self.settings.ms("inter.broker.protocol"),
                reachable=self._info.endpoint(REPLICATION_LISTENER) is not None,
            )
        )
        self.lifecycle.registered(made.epoch, made.former, self._clock.now)
        self._read_watched()

    def _read_watched(self) -> None:
        """Reads the watched znodes again, which renews the watches."""
        self._read_peers()
        self.controller.stand()
        self.session.start(self._read_config(""))
        for name in sorted(self.commands.metadata.topics):
            self.session.start(self._read_config(name))

    def _read_peers(self) -> None:
        if self.peers.start():
            self.session.start(self.peers.read())

    def _peers_changed(self) -> None:
        """Applies the registrations that were read: broker epochs, and addresses."""
        self._addresses.clear()
        for broker, one in self.peers.known.items():
            address = one.endpoint(REPLICATION_LISTENER)
            if address is not None:
                self._addresses[broker] = address
        self.commands.set_epochs({b: one.epoch for b, one in self.peers.known.items()})
        mine = self.peers.known.get(self.settings.node_id)
        registered = self.lifecycle.is_registered
        # A higher czxid under this id is another process's. A lower one is a read from before this
        # process's own registration.
        if mine is not None and registered and mine.epoch > self.lifecycle.epoch:
            self._taken_over()
        self.data.following.hurry(self._clock.now)

    def _taken_over(self) -> None:
        """Another process has registered with a newer czxid: this one stops acting (HB-24)."""
        if not self.lifecycle.lost:
            self.lifecycle.taken_over()
            self.data.leave("taken_over")
            self.controller.resign()

    def _read_config(self, name: str) -> Task:
        path = znodes.config(name) if name else znodes.BROKER_CONFIG
        read = certain((yield zk.GetData(path, watch=True)))
        if not isinstance(read, zk.Data):
            return
        try:
            values = decode(path, read.data, znodes.Config).config
        except BadZnode as bad:
            self._out.note(ZnodeUnreadable(reason=str(bad)))
            return
        image = self.commands.metadata
        if not name:
            image.broker_settings = dict(values)
        elif name in image.topics:
            image.settings[name] = dict(values)

    # ------------------------------------------------------------------------------------ answers

    def _answered(self, what: Answered, now: Instant) -> None:
        if self.data.replicas.is_isr_request(what.call_id):
            self._isr_answered(what.call_id, self.isr_changes.outcome(what.call_id, what.message))
            return
        self.lifecycle.answered(what.call_id, what.message, now)
        self.controller.queues.answered(what.call_id, what.message, now)
        self.data.following.answered(what.call_id, what.message, now)
        self.forwarding.answered(what.call_id, what.message, now)

    def _failed(self, what: CallFailed, now: Instant) -> None:
        self.isr_changes.wanted.pop(what.call_id, None)
        self.lifecycle.failed(what.call_id, now)
        self.controller.queues.failed(what.call_id, now)
        self.data.failed(what.call_id, now)
        self.forwarding.failed(what.call_id, now)

    def _isr_answered(self, call_id: int, outcome: IsrOutcome, version: int | None = None) -> None:
        """Applies an answer. A granted ISR counts at once if this broker still leads in the leader
        epoch of its request. It leads no more once another process has its id (HB-24)."""
        key, _ = self.isr_changes.wanted.pop(call_id)
        one = self.data.replicas.by_key.get(key)
        # The answer may come after this leader was deposed, or after another request of it.
        current = one is not None and one.asked == call_id and not self.lifecycle.lost
        self.data.replicas.answered(call_id, outcome, self._clock.now)
        if outcome.error is Error.NONE and current:
            self.commands.isr_stored(key, outcome.isr, version, self._clock.now)

    def _isr_written(self, call_id: int, outcome: IsrOutcome | None, version: int) -> None:
        if outcome is not None:
            self._isr_answered(call_id, outcome, version)
            return
        self.isr_changes.wanted.pop(call_id, None)
        self.data.replicas.failed(call_id, self._clock.now)

    # ------------------------------------------------------------------------------------ requests

    def _request(self, received: Received, now: Instant) -> None:
        if received.listener == REPLICATION_LISTENER:
            self._from_node(received, now)
        else:
            unread = "" if self.commands.informed else "no controller has sent metadata yet"
            self.data.client_request(received, self.commands.metadata, now, unread)

    def _from_node(self, received: Received, now: Instant) -> None:
        message = received.message
        # A control request opens replicas, which need their recovered logs. The controller sends it
        # again.
        if not self.data.recovered:
            self._out.add(Close(received.request_id, "the logs are not recovered yet"))
            return
        match message:
            case m.FetchRequest():
                if self.lifecycle.lost:
                    self.data.refuse_follower(received)
                else:
                    self.data.fetching.fetch(received, message, self.commands.metadata, now)
            case w.LeaderAndIsrRequest() | w.UpdateMetadataRequest() | w.StopReplicaRequest():
                self.commands.handle(received, message, now)
            case w.MetadataHeartbeatRequest():
                self.controller.heartbeat(received, message, now)
            case w.IsrChangeRequest():
                self.controller.isr_change(received, message)
            case w.ControlledShutdownRequest():
                self.controller.controlled_shutdown(received, message)
            case _ if CHANGES.is_change(message):
                self.controller.change(received)
            case _:
                self._out.add(Close(received.request_id, "no request for a broker"))
