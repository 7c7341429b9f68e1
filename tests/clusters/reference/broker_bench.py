"""One broker over a model of ZooKeeper, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench_time import SECOND, pass_time

from fencepost_clusters.reference.assembly import Core, DiskContents, assemble, read_settings
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_clusters.zookeeper.client.chroot import answer_within, below, within
from fencepost_clusters.zookeeper.simulation.tree import Tree, Watched
from fencepost_kafka import ZnodeUnreadable

ME, OTHER = 1, 2
REQUESTS = 2_000
"""More requests than a broker sends in a second; a broker that sends as many is in a loop."""


class BrokerBench:
    """One broker over a model of ZooKeeper, in one session."""

    def __init__(self, chroot: str = "", **more: str) -> None:
        self.tree = Tree()
        for session in (ME, OTHER):
            self.tree.begin(session, 10**9, 0)
        self.chroot = chroot
        self.notes: list[object] = []
        self.now_ns = SECOND
        self.calls: list[e.Call] = []
        """Its calls of other nodes, in order; the test answers them."""
        self.answers: list[e.Reply | e.Close] = []
        """What it did with requests, in order."""
        self.checkpoints: list[e.Checkpoint] = []
        self.opened = 0
        """How often it has opened a session."""
        self.closed = False
        """Whether it has closed its session."""
        self.exited = False
        self.loses = False
        """Whether requests to ZooKeeper are lost with their answers."""
        self.meddles: Callable[[zk.Request], zk.Answer | None] | None = None
        """Called with each of its requests to ZooKeeper, just before that is carried out. If it
        returns an answer, that is the broker's, and the request is not carried out."""
        self.asked: list[zk.Request] = []
        """Its requests to ZooKeeper, in order."""
        self.effects: list[e.Effect] = []
        """All its effects, in order."""
        self._inputs: list[e.Input] = []
        self._giving = False
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

    def start(
        self,
        logs: Mapping[str, tuple[Entry, ...]] | None = None,
        watermarks: Mapping[str, int] | None = None,
    ) -> None:
        """Starts the broker with these logs on its disk, and connects it."""
        self.give(e.Tick())
        self.give(e.Recovered(logs or {}, watermarks or {}))
        self.give(e.ZooKeeperEvent(zk.Connected(ME)))

    def passes(self, seconds: float) -> None:
        """Lets time pass, from each Tick that the broker wants to the next."""
        pass_time(self, seconds)

    def give(self, what: e.Input) -> None:
        """Handles an input, then ZooKeeper's answers to all requests that follow from it."""
        self._inputs.append(what)
        if self._giving:
            return  # another client writes between two requests of this broker
        self._giving, before = True, len(self.asked)
        try:
            while self._inputs and not self.exited:
                for effect in self.core.handle(self._inputs.pop(0), e.Instant(self.now_ns, 0)):
                    self._carry_out(effect)
                assert len(self.asked) - before < REQUESTS, "the broker goes round in a circle"
        finally:
            self._giving = False
            self._inputs.clear()

    def _carry_out(self, effect: e.Effect) -> None:
        self.effects.append(effect)
        match effect:
            case e.Note(body):
                self.notes.append(body)
            case e.Checkpoint():
                self.checkpoints.append(effect)
            case e.OpenSession():
                self.opened += 1
            case e.CloseSession():
                self.closed = True
            case e.Exit():
                self.exited = True
            case e.Call():
                self.calls.append(effect)
            case e.Reply() | e.Close():
                self.answers.append(effect)
            case e.ToZooKeeper(request_id, request):
                self.asked.append(request)
                self._answer(request_id, request)
            case _:
                pass

    def _answer(self, request_id: int, request: zk.Request) -> None:
        instead: zk.Answer | None = zk.Unknown() if self.loses else None
        if self.meddles is not None and instead is None:
            instead = self.meddles(request)
        answer = self.carries_out(request) if instead is None else instead
        self._inputs.append(e.ZooKeeperAnswer(request_id, answer))

    def carries_out(self, request: zk.Request) -> zk.Answer:
        """Carries out a request of this broker. The events of its watches come before the answer,
        as from ZooKeeper."""
        answer, fired = self.tree.request(ME, below(self.chroot, request), 0)
        self._inputs += self._fired(fired)
        return answer_within(self.chroot, answer)

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

    def session_ends(self) -> None:
        """ZooKeeper ends this broker's session."""
        self.tree.end(ME)
        self.give(e.ZooKeeperEvent(zk.Ended(zk.End.EXPIRED)))

    def session_begins(self) -> None:
        """The next session has the same number."""
        self.tree.begin(ME, 10**9, 0)
        self.give(e.ZooKeeperEvent(zk.Connected(ME)))

    def asks(self, listener: str, message: m.Request) -> list[e.Reply | e.Close]:
        """The answers that the broker gives at once to a request."""
        before = len(self.answers)
        self.give(
            e.Received(
                request_id=1, listener=listener, client="test", correlation=1, message=message
            )
        )
        return self.answers[before:]

    def answer(self, call: e.Call, message: m.Response) -> None:
        """Answers a call of this broker."""
        self.calls.remove(call)
        self.give(e.Answered(call.call_id, message))

    def called(self, kind: type[m.Request]) -> e.Call:
        """The one call of this kind that is not answered."""
        (found,) = (one for one in self.calls if isinstance(one.message, kind))
        return found

    def registers(self, broker: int) -> None:
        """Another broker registers."""
        info = znodes.BrokerInfo(5, (("REPLICATION", f"broker-{broker}", 9094),))
        self.write(zk.Create(znodes.broker(broker), encode(info), ephemeral=True))

    def reasons(self) -> list[str]:
        """What it could not read, and why, since the last call."""
        found = [one.reason for one in self.notes if isinstance(one, ZnodeUnreadable)]
        self.notes = [one for one in self.notes if not isinstance(one, ZnodeUnreadable)]
        return found

    def did(self, kind: type) -> int:
        return sum(isinstance(one, kind) for one in self.notes)
