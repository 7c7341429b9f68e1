"""A world for bare cores: virtual time, an in-memory network and disks, nothing else.

Every delay is drawn from one seed; cuts, kills and restarts are method calls. What it is for: the
protocols' corner cases in milliseconds, and each defect seen by its rule. It does not imitate
connections (no order between two calls), partial writes, or clocks that drift. A disk forgets what
was not synced when its machine loses power.
"""

from __future__ import annotations

import heapq
import itertools
import random  # noqa: TID251 - the world's own seeded stream
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from fencepost import Event, ProcessExited, ProcessSpawned, Stalled
from fencepost_clusters.reference.cluster import (
    PORTS,
    ReferenceQuorum,
)
from fencepost_clusters.reference.core.assembly import assemble
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.defects.catalogue import policies_with
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_kafka import kafka_shape

MS = 1_000_000
SECOND = 1_000 * MS
MOST_STEPS = 20_000
"""How many steps a virtual second may take; a cluster under load needs some thousands."""


@dataclass
class Living:
    """A process: its core, and the requests and calls it has open."""

    name: str
    slot: str
    core: BrokerNode | ControllerNode
    disk: MemoryDisk
    seq: int = 0
    wake_ns: int = -1


class World:
    """See the module."""

    def __init__(
        self,
        seed: int = 1,
        defects: tuple[str, ...] = (),
        brokers: int = 3,
        later: tuple[str, ...] = (),
        **settings: str,
    ) -> None:
        """`later` are the slots in which nothing is started yet."""
        names = {key.replace("_", "."): value for key, value in settings.items()}
        self.shape = kafka_shape(3, brokers, names, defects=defects)
        self._stays = "never-goes-back" in defects
        self.system = ReferenceQuorum()
        self.layout = self.system.layout(self.shape)
        self.timing = self.system.timing(self.shape)
        self.now_ns = SECOND
        self.events: list[Event] = []
        self.cuts: set[tuple[str, str]] = set()
        self.alive: dict[str, Living] = {}
        self.disks: dict[str, MemoryDisk] = {}
        self.answers: dict[int, m.Response | None] = {}
        self.closed: set[int] = set()
        self._draw = random.Random(seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._requests: dict[int, tuple[str, int | None, str]] = {}
        self._next_request = itertools.count(1)
        self._started: dict[str, int] = {}
        self._notes: dict[str, int] = {}
        self._open_calls: dict[tuple[str, int], bool] = {}
        self.metadata_delay_ns: dict[str, int] = {}
        """slot -> how much longer the metadata it fetches is under way."""
        self._paused: dict[str, list[e.Input]] = {}
        self._paused_at: dict[str, int] = {}
        for slot in self.layout.slots:
            if not slot.duplicate and slot.role != "client" and slot.name not in later:
                self.start(slot.name)

    # ---------------------------------------------------------------------------------- processes

    def start(self, slot_name: str, copy_disk_of: str | None = None) -> str:
        """Starts a process in a slot; its name."""
        slot = self.layout.slot(slot_name)
        number = self._started[slot_name] = self._started.get(slot_name, 0) + 1
        name = f"{slot_name}#{number}"
        disk = self.disks.setdefault(slot_name, MemoryDisk())
        if copy_disk_of is not None:
            disk = self.disks[slot_name] = self.disks[copy_disk_of].copy()
        core = assemble(
            s.read(self.system.properties(slot, self.layout, self.shape, "world")),
            Site(slot_name, slot_name, self.system.ports(slot), name),
            disk.stored(),
            self._draw.randint,
            policies_with(self.shape.defects),
            self.instant(),
        )
        assert isinstance(core, BrokerNode | ControllerNode)
        spawned = ProcessSpawned(
            started=name,
            slot=slot_name,
            role=slot.role.value,
            node_id=slot.node_id,
            pid=next(self._order),
        )
        self.note("harness", spawned)
        self._paused.pop(slot_name, None)
        self.alive[slot_name] = Living(name, slot_name, core, disk)
        self.step(slot_name, e.Tick())
        return name

    def kill(self, slot_name: str) -> None:
        """kill -9: the disk stays."""
        gone = self.alive.pop(slot_name)
        self.note("harness", ProcessExited(ended=gone.name, exit_code=-9, signal=9, expected=True))

    def lose_power(self, slot_name: str) -> None:
        """The machine goes: the disk forgets what was not synced."""
        disk = self.alive[slot_name].disk
        self.kill(slot_name)
        disk.lose_power(self._draw.randint)

    def pause(self, slot_name: str) -> None:
        """SIGSTOP: nothing is handled; what comes in waits."""
        self._paused[slot_name] = []
        self._paused_at[slot_name] = self.now_ns

    def resume(self, slot_name: str) -> None:
        """SIGCONT: a due timer is seen first, then what came in meanwhile."""
        waiting = self._paused.pop(slot_name)
        stood_ns = self.now_ns - self._paused_at[slot_name]
        self._record(self.alive[slot_name], e.Note(Stalled(stood_ns)))
        self.step(slot_name, e.Tick())
        for what in waiting:
            self.step(slot_name, what)

    # --------------------------------------------------------------------------------------- time

    def instant(self) -> e.Instant:
        return e.Instant(self.now_ns, 1_700_000_000_000 + self.now_ns // MS)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Lets time pass until something holds; whether it came to hold."""
        end = self.now_ns + int(seconds * SECOND)
        steps, most = 0, MOST_STEPS + int(seconds * MOST_STEPS)
        while not holds():
            steps += 1
            assert steps < most, "the world spins: a deadline is always due"
            if not self._queue or self._queue[0][0] > end:
                self.now_ns = end
                return holds()
            at, _, action = heapq.heappop(self._queue)
            self.now_ns = max(self.now_ns, at)
            action()
        return True

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Does something after a while."""
        heapq.heappush(self._queue, (self.now_ns + delay_ns, next(self._order), action))

    def _delay(self) -> int:
        return self._draw.randint(100_000, 2 * MS)

    # ------------------------------------------------------------------------------------ stepping

    def step(self, slot: str, what: e.Input) -> None:
        living = self.alive.get(slot)
        if living is None:
            return
        if slot in self._paused:
            if not isinstance(what, e.Tick):
                self._paused[slot].append(what)
            return
        for effect in living.core.handle(what, self.instant()):
            self._carry_out(living, effect)
        deadline = living.core.deadline_ns()
        if deadline is not None and slot in self.alive:
            wake = max(deadline, self.now_ns + 1)
            if living.wake_ns <= self.now_ns or wake < living.wake_ns:
                living.wake_ns = wake
                self.later(wake - self.now_ns, lambda: self._wake(living, wake))

    def _wake(self, living: Living, due: int) -> None:
        if self.alive.get(living.slot) is living and living.wake_ns == due:
            self.step(living.slot, e.Tick())

    def _carry_out(self, living: Living, effect: e.Effect) -> None:
        match effect:
            case e.Note():
                self._record(living, effect)
            case e.Recover():
                self.later(self._draw.randint(MS, 50 * MS), lambda: self._recovered(living))
            case (
                e.Append()
                | e.Truncate()
                | e.Sync()
                | e.Delete()
                | e.StoreVote()
                | e.StoreSnapshot()
                | e.Checkpoint()
            ):
                living.disk.carry_out(effect)
            case e.Call():
                self._call(living, effect)
            case e.Reply():
                self._reply(living, effect)
            case e.Close():
                self.closed.add(effect.request_id)
            case e.Exit():
                self.alive.pop(living.slot, None)
                self.note(
                    "harness",
                    ProcessExited(ended=living.name, exit_code=0, signal=0, expected=True),
                )

    def _recovered(self, living: Living) -> None:
        if self.alive.get(living.slot) is living:
            self.step(living.slot, living.disk.recover())

    def note(self, process: str, body: Struct) -> None:
        """Records an event of the harness."""
        seq = self._notes[process] = self._notes.get(process, -1) + 1
        self.events.append(
            Event(run="world", process=process, node_seq=seq, at_ns=self.now_ns, body=body)
        )

    def _record(self, living: Living, note: e.Note) -> None:
        event = Event(
            run="world",
            process=living.name,
            node_seq=living.seq,
            at_ns=self.now_ns,
            body=note.body,
            cause=note.cause,
        )
        living.seq += 1
        self.events.append(event)

    # ------------------------------------------------------------------------------------- network

    def _call(self, living: Living, call: e.Call) -> None:
        target, port = call.address
        key = (living.name, call.call_id)
        self._open_calls[key] = True
        listener = {PORTS.controller: "CONTROLLER", PORTS.replication: "REPLICATION"}[port]

        def fail(reason: str) -> None:
            if self._open_calls.pop(key, False) and self.alive.get(living.slot) is living:
                self.step(living.slot, e.CallFailed(call.call_id, reason))

        def arrive() -> None:
            if (living.slot, target) in self.cuts:
                return
            if target not in self.alive:
                self.later(self._delay(), lambda: fail("refused"))
                return
            request_id = next(self._next_request)
            self._requests[request_id] = (living.name, call.call_id, living.slot)
            received = e.Received(
                request_id=request_id,
                listener=listener,
                client=living.name,
                correlation=call.call_id,
                message=call.message,
            )
            self.step(target, received)

        self.later(self._delay(), arrive)
        self.later(call.timeout_ms * MS, lambda: fail("timed out"))

    def _reply(self, living: Living, reply: e.Reply) -> None:
        asker, call_id, slot = self._requests.pop(reply.request_id, ("", None, ""))
        message = reply.message
        if isinstance(message, m.FetchResponse):
            message = living.disk.fill(message)
        if call_id is None:
            self.answers[reply.request_id] = message
            return
        if message is None:
            return

        def arrive() -> None:
            target = self.alive.get(slot)
            if (living.slot, slot) in self.cuts or target is None or target.name != asker:
                return
            if self._open_calls.pop((asker, call_id), False):
                self.step(slot, e.Answered(call_id, message))

        delay_ns = self._delay()
        if isinstance(message, m.FetchResponse) and isinstance(living.core, ControllerNode):
            delay_ns += self.metadata_delay_ns.get(slot, 0)
        self.later(delay_ns, arrive)

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Nothing the first sends reaches the second, for each pair."""
        self.cuts.update(pairs)

    def isolate(self, name: str, *others: str) -> None:
        """Both ways, from the others named, or from every node."""
        for other in others or [x.name for x in self.layout.slots if x.name != name]:
            self.cuts |= {(name, other), (other, name)}

    # -------------------------------------------------------------------------------------- clients

    def ask(
        self,
        slot: str,
        message: m.Request,
        client: str = "clients/probe#1",
        listener: str = "CLIENT",
    ) -> int:
        """Sends a client's request to a node; the number under which its answer appears."""
        request_id = next(self._next_request)
        self._requests[request_id] = (client, None, "")
        received = e.Received(
            request_id=request_id,
            listener=listener,
            client=client,
            correlation=request_id,
            message=message,
        )
        self.later(self._delay(), lambda: self.step(slot, received))
        return request_id

    def answer(self, slot: str, message: m.Request, seconds: float = 10.0) -> m.Response | None:
        """Sends a request and waits for its answer; None if there is none, or it was refused."""
        request_id = self.ask(slot, message)
        self.until(lambda: request_id in self.answers or request_id in self.closed, seconds)
        return self.answers.get(request_id)

    # ---------------------------------------------------------------------------------- questions

    def active(self) -> ControllerNode | None:
        """The active controller of the highest epoch."""
        found = [
            x.core
            for x in self.alive.values()
            if isinstance(x.core, ControllerNode) and x.core.active
        ]
        return max(found, key=lambda core: core.raft.epoch, default=None)

    def active_slot(self) -> str:
        """The slot of the active controller, once there is one."""
        assert self.until(lambda: self.active() is not None)
        core = self.active()
        return next(name for name, x in self.alive.items() if x.core is core)

    def broker(self, slot: str) -> BrokerNode:
        core = self.alive[slot].core
        assert isinstance(core, BrokerNode)
        return core

    def brokers_active(self) -> bool:
        return all(
            x.core.lifecycle.state.name == "ACTIVE"
            for name, x in self.alive.items()
            if isinstance(x.core, BrokerNode)
        )

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """A partition as the controller that has replayed most has it."""
        cores = [x.core for x in self.alive.values() if isinstance(x.core, ControllerNode)]
        newest = max(cores, key=lambda core: core.committed.applied)
        found = newest.committed.image.partition(topic, partition)
        assert found is not None, f"no {topic}-{partition}"
        return found

    def leader(self, topic: str, partition: int = 0) -> str:
        """The slot of the partition's leader, by the committed metadata."""
        return f"broker-{self.partition(topic, partition).leader}"

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        return self.partition(topic, partition).isr

    def healthy(self) -> bool:
        """Every broker active, every ISR full, and the preferred replica leads and knows it."""
        core = self.active()
        if core is None or not self.brokers_active():
            return False
        parts = core.committed.image.all_partitions()
        return all(len(p.isr) == len(p.replicas) and self._led(p) for p in parts)

    def _led(self, one: Partition) -> bool:
        living = self.alive.get(f"broker-{one.leader}")
        if living is None or not isinstance(living.core, BrokerNode):
            return False
        replica = living.core.replicas.get(one.topic_id, one.index)
        serves = replica is not None and replica.leading and replica.epoch == one.leader_epoch
        return serves and (one.leader == one.replicas[0] or self._stays)

    def bodies(self, kind: type) -> list[tuple[str, object]]:
        """(process, body) of every event of a kind."""
        return [(x.process, x.body) for x in self.events if isinstance(x.body, kind)]

    # ------------------------------------------------------------------------------- conveniences

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3) -> None:
        """Creates a topic and waits until all brokers know its leader."""
        request = m.CreateTopicsRequest(
            topics=(
                m.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas),
            ),
            timeout=2000,
        )
        made = (0, 36)  # NONE, or TOPIC_ALREADY_EXISTS after an answer that was lost

        def created() -> bool:
            answer = self.answer("broker-1", request)
            return (
                isinstance(answer, m.CreateTopicsResponse) and answer.topics[0].error_code in made
            )

        assert self.until(created)
        assert self.until(
            lambda: all(
                name in x.core.committed.image.topics
                for x in self.alive.values()
                if isinstance(x.core, BrokerNode)
            )
        )

    def produce(
        self, slot: str, topic: str, value: bytes, acks: int = -1, timeout_ms: int = 1000
    ) -> m.PartitionProduceResponse | None:
        """Produces one message to partition 0 through one broker; its answer, if any."""
        request = produce_request(topic, value, acks, timeout_ms)
        answer = self.answer(slot, request)
        if answer is None:
            return None
        assert isinstance(answer, m.ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(self, slot: str, topic: str, offset: int = 0) -> m.PartitionData | None:
        """Fetches partition 0 from one broker without waiting; the answer, if any."""
        part = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = m.FetchRequest(
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(m.FetchTopic(partitions=(part,), topic=topic),),
        )
        answer = self.answer(slot, request)
        if answer is None:
            return None
        assert isinstance(answer, m.FetchResponse)
        return answer.responses[0].partitions[0]


def produce_request(
    topic: str, value: bytes, acks: int = -1, timeout_ms: int = 1000
) -> m.ProduceRequest:
    batch = record_batch.build([value], 0, -1, 1_700_000_000_000)
    data = m.PartitionProduceData(index=0, records=batch)
    return m.ProduceRequest(
        acks=acks,
        timeout=timeout_ms,
        topic_data=(m.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def read_values(part: m.PartitionData) -> list[bytes]:
    """The values in a fetch answer."""
    assert isinstance(part.records, bytes)
    return [v for _, b in record_batch.split(part.records) for v in record_batch.values(b)]


__all__ = ["MS", "SECOND", "World", "produce_request", "read_values"]
