"""Missing or unreadable znodes: a broker logs which, and keeps running."""

from __future__ import annotations

from fencepost import NodeStopped
from fencepost_clusters.reference.core.assembly import (
    Core,
    DiskContents,
    assemble,
    read_settings,
)
from fencepost_clusters.reference.core.legacy import znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.policies import Policies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_clusters.zookeeper.client.chroot import answer_within, below, within
from fencepost_clusters.zookeeper.simulation.tree import Tree, Watched
from fencepost_kafka import BrokerRegistered, ControllerBegan, ControllerEnded, ZnodeUnreadable

SECOND = 1_000_000_000
ME, OTHER = 1, 2
REQUESTS = 2_000
"""More requests than a broker sends in a second; a broker that sends as many is in a loop."""


class Bench:
    """One broker over a model of ZooKeeper, in one session."""

    def __init__(self, chroot: str = "", **more: str) -> None:
        self.tree = Tree()
        for session in (ME, OTHER):
            self.tree.begin(session, 10**9, 0)
        self.chroot = chroot
        self.notes: list[object] = []
        self.now_ns = SECOND
        self._watches: list[zk.Fired] = []
        ports = {"REPLICATION": 9091, "CLIENT": 9092}
        settings = read_settings(
            {
                "broker.id": "1",
                "broker.listeners": "REPLICATION,CLIENT",
                "zookeeper.connect": f"zookeeper-1:2181{chroot}",
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        self.core: Core = assemble(
            settings,
            Site("broker-1", "broker-1", ports, "broker-1#1"),
            stored=DiskContents(),
            chance=lambda low, high: low,
            policies=Policies(),
            now=e.Instant(self.now_ns, 0),
        )

    def start(self) -> None:
        self.give(e.Tick())
        self.give(e.Recovered({}, {}))
        self.give(e.ZooKeeperEvent(zk.Connected(ME)))

    def passes(self, seconds: float) -> None:
        """Lets time pass, a tenth of a second at once."""
        for _ in range(round(seconds * 10)):
            self.now_ns += SECOND // 10
            self.give(e.Tick())

    def give(self, what: e.Input) -> None:
        """Handles an input, then ZooKeeper's answers to all requests that follow from it."""
        inputs, requests = [what], 0
        while inputs:
            for effect in self.core.handle(inputs.pop(0), e.Instant(self.now_ns, 0)):
                if isinstance(effect, e.Note):
                    self.notes.append(effect.body)
                elif isinstance(effect, e.ToZooKeeper):
                    requests += 1
                    assert requests < REQUESTS, "the broker goes round in a circle"
                    asked = below(self.chroot, effect.request)
                    answer, fired = self.tree.request(ME, asked, 0)
                    inputs.append(
                        e.ZooKeeperAnswer(effect.request_id, answer_within(self.chroot, answer))
                    )
                    inputs += self._fired(fired)

    def write(self, request: zk.Request) -> None:
        """Another client's request."""
        answer, fired = self.tree.request(OTHER, request, 0)
        assert not isinstance(answer, zk.Refused), answer
        for event in self._fired(fired):
            self.give(event)

    def _fired(self, fired: object) -> list[e.ZooKeeperEvent]:
        assert isinstance(fired, list | tuple)
        return [
            e.ZooKeeperEvent(
                zk.Fired(within(self.chroot, one.fired.path), one.fired.watch, one.fired.change)
            )
            for one in fired
            if isinstance(one, Watched) and one.session == ME
        ]

    def asks(self, listener: str, message: m.Request) -> list[e.Effect]:
        """What the broker does with a request, except for its events."""
        asked = e.Received(
            request_id=1, listener=listener, client="test", correlation=1, message=message
        )
        done = self.core.handle(asked, e.Instant(self.now_ns, 0))
        return [one for one in done if isinstance(one, e.Reply | e.Close)]

    def reasons(self) -> list[str]:
        """What it could not read, and why, since the last call."""
        found = [one.reason for one in self.notes if isinstance(one, ZnodeUnreadable)]
        self.notes = [one for one in self.notes if not isinstance(one, ZnodeUnreadable)]
        return found

    def did(self, kind: type) -> int:
        return sum(isinstance(one, kind) for one in self.notes)


def test_a_broker_registers_once_its_chroot_exists() -> None:
    bench = Bench("/nowhere")
    bench.start()
    bench.passes(3)
    reasons = bench.reasons()
    assert set(reasons) == {"the chroot '/nowhere' of zookeeper.connect does not exist"}
    assert 3 <= len(reasons) <= 4
    bench.write(zk.Create("/nowhere"))
    bench.passes(1)
    assert bench.did(BrokerRegistered) == 1
    assert bench.did(ControllerBegan) == 1


def test_a_controller_whose_epoch_is_unreadable_begins_once_it_is_mended() -> None:
    bench = Bench()
    bench.write(zk.Create(znodes.CONTROLLER_EPOCH, b"three"))
    bench.start()
    bench.passes(3)
    reasons = bench.reasons()
    assert len(reasons) in (3, 4)
    assert all(znodes.CONTROLLER_EPOCH in reason for reason in reasons)
    assert bench.did(BrokerRegistered) == 1
    assert bench.did(ControllerBegan) == 0
    found, _ = bench.tree.request(OTHER, zk.Exists(znodes.CONTROLLER), 0)
    assert isinstance(found, zk.Found)
    assert found.stat is None, "it keeps /controller, so no other broker can begin"
    bench.write(zk.SetData(znodes.CONTROLLER_EPOCH, b"3"))
    bench.passes(1)
    (began,) = (one for one in bench.notes if isinstance(one, ControllerBegan))
    assert began.epoch == 4


def test_an_unreadable_controller_znode_names_no_controller_until_it_is_gone() -> None:
    bench = Bench()
    bench.write(zk.Create(znodes.CONTROLLER, b"{"))
    bench.start()
    bench.passes(2)
    assert bench.did(ControllerBegan) == 0
    assert any(znodes.CONTROLLER in reason for reason in bench.reasons())
    bench.write(zk.Delete(znodes.CONTROLLER))
    assert bench.did(ControllerBegan) == 1


def test_unreadable_settings_of_brokers_leave_the_defaults() -> None:
    bench = Bench()
    bench.start()
    bench.write(zk.SetData(znodes.BROKER_CONFIG, b"["))
    assert any(znodes.BROKER_CONFIG in reason for reason in bench.reasons())
    bench.passes(2)
    assert bench.did(ControllerEnded) == 0


def test_an_unreadable_registration_is_named_and_is_no_broker() -> None:
    bench = Bench()
    bench.start()
    bench.write(zk.Create(znodes.broker(2), b"{"))
    bench.passes(2)
    assert any(znodes.broker(2) in reason for reason in bench.reasons())
    assert bench.did(ControllerEnded) == 0


def test_a_broker_serves_no_client_before_a_controller_has_sent_it_metadata() -> None:
    """It is active as soon as it has registered, if its protocol knows no heartbeats."""
    bench = Bench(inter_broker_protocol="2")
    bench.write(zk.Create(znodes.CONTROLLER, znodes.encode(znodes.ControllerInfo(2))))
    bench.start()
    (registered,) = (one for one in bench.notes if isinstance(one, BrokerRegistered))
    (closed,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
    assert isinstance(closed, e.Close)
    metadata = w.UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=registered.broker_epoch,
        topic_states=(),
        live_brokers=(),
    )
    (answered,) = bench.asks("REPLICATION", metadata)
    assert isinstance(answered, e.Reply)
    (served,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
    assert isinstance(served, e.Reply)


def test_a_later_registration_names_the_first_one_of_its_process() -> None:
    """RP-06: so the process that has run for the longest is known after a time without
    ZooKeeper."""
    bench = Bench()
    bench.start()
    bench.tree.end(ME)
    bench.give(e.ZooKeeperEvent(zk.Ended(zk.End.EXPIRED)))
    bench.tree.begin(ME, 10**9, 0)
    bench.give(e.ZooKeeperEvent(zk.Connected(ME)))
    first, again = (one for one in bench.notes if isinstance(one, BrokerRegistered))
    assert again.broker_epoch > first.broker_epoch
    stored = bench.tree.request(OTHER, zk.GetData(znodes.broker(1)), 0)[0]
    assert isinstance(stored, zk.Data)
    assert znodes.decode("", stored.data, znodes.BrokerInfo).since == first.broker_epoch


def test_a_process_whose_id_another_one_has_taken_does_not_register_in_a_new_session() -> None:
    """HB-24."""
    bench = Bench()
    bench.start()
    bench.tree.end(ME)
    bench.give(e.ZooKeeperEvent(zk.Ended(zk.End.EXPIRED)))
    bench.write(zk.Create(znodes.broker(1), b"{}", ephemeral=True))
    bench.tree.begin(ME, 10**9, 0)
    bench.give(e.ZooKeeperEvent(zk.Connected(ME)))
    assert bench.did(BrokerRegistered) == 1
    stored = bench.tree.request(OTHER, zk.GetData(znodes.broker(1)), 0)[0]
    assert isinstance(stored, zk.Data)
    assert stored.stat.owner == OTHER


def test_a_broker_that_is_asked_to_stop_before_it_registered_ends_at_once() -> None:
    bench = Bench()
    bench.give(e.Tick())
    bench.give(e.Recovered({}, {}))
    bench.give(e.ShutdownAsked())
    assert bench.did(NodeStopped) == 1
