"""A seeded scenario in the world of bare cores: clients work, authority changes hands, all heals.

What comes out is a history like any run's, so the rules judge it. The strikes are the same whatever
the seed; the seed moves every delay, and where the clients are when a strike comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from world import MS, SECOND, World, produce_request, read_values

from fencepost import Event, RunEnd, RunEnded, RunStarted
from fencepost_clusters.reference.core.node.effects import ShutdownAsked
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import Polled, ProbeCompleted, ProduceCompleted, ProduceInvoked, ReadCompleted

CONTROLLERS = ("controller-1", "controller-2", "controller-3")
BROKERS = ("broker-1", "broker-2", "broker-3")
PRODUCER = "clients/producer#1"
READER = "clients/reader#1"
PROBE = "clients/probe#1"


class Clients:
    """A producer that sends to the leader it knows, and probes that ask a given broker."""

    def __init__(self, world: World, topic: str) -> None:
        self.world = world
        self.topic = topic
        self._seq: dict[str, int] = {}
        self._operations = 0
        self._producing = False

    def record(self, process: str, body: object) -> None:
        """Adds an event of a client."""
        seq = self._seq[process] = self._seq.get(process, -1) + 1
        self.world.events.append(
            Event(run="world", process=process, node_seq=seq, at_ns=self.world.now_ns, body=body)
        )  # type: ignore[arg-type]

    def _operation(self) -> str:
        self._operations += 1
        return f"op-{self._operations}"

    def start_producing(self, acks: int = -1) -> None:
        """Produces one message after another, until stopped."""
        self._producing = True
        self._produce_next(acks)

    def stop_producing(self) -> None:
        self._producing = False

    def _produce_next(self, acks: int) -> None:
        if not self._producing:
            return
        world = self.world
        operation = self._operation()
        leader = world.leader(self.topic)
        self.record(
            PRODUCER, ProduceInvoked(operation=operation, topic=self.topic, partition=0, acks=acks)
        )
        if leader not in world.alive:
            self._end(operation, acks, "failed", -1, "no leader")
            world.later(50 * MS, lambda: self._produce_next(acks))
            return
        request_id = world.ask(
            leader, produce_request(self.topic, operation.encode(), acks), PRODUCER
        )
        deadline = world.now_ns + 1500 * MS

        def look() -> None:
            answered = request_id in world.answers or request_id in world.closed
            if not answered and world.now_ns < deadline:
                world.later(5 * MS, look)
                return
            self._settle(operation, acks, world.answers.get(request_id))
            world.later(30 * MS, lambda: self._produce_next(acks))

        world.later(2 * MS, look)

    def _settle(self, operation: str, acks: int, answer: m.Response | None) -> None:
        if not isinstance(answer, m.ProduceResponse):
            self._end(operation, acks, "unknown", -1, "no answer")
            return
        part = answer.responses[0].partition_responses[0]
        error = Error(part.error_code)
        if error is Error.NONE:
            self._end(operation, acks, "ok", part.base_offset, "")
        else:
            # A leader that steps down answers so for what it has stored, too: unknown.
            self._end(operation, acks, "unknown", -1, error.name)

    def _end(self, operation: str, acks: int, outcome: str, offset: int, error: str) -> None:
        body = ProduceCompleted(
            operation=operation,
            topic=self.topic,
            partition=0,
            acks=acks,
            outcome=outcome,
            offset=offset,
            error=error,
        )
        self.record(PRODUCER, body)

    def probe(self, slot: str, api: str) -> ProbeCompleted:
        """Asks one broker, leader or not."""
        world = self.world
        sent = world.now_ns
        operation = self._operation()
        request: m.Request
        if api == "Produce":
            self.record(
                PROBE, ProduceInvoked(operation=operation, topic=self.topic, partition=0, acks=1)
            )
            request = produce_request(self.topic, operation.encode(), 1)
        elif api == "Metadata":
            request = m.MetadataRequest(topics=None)
        else:
            part = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = m.FetchRequest(
                max_wait=0,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=(m.FetchTopic(partitions=(part,), topic=self.topic),),
            )
        request_id = world.ask(slot, request, PROBE)
        world.until(lambda: request_id in world.answers or request_id in world.closed, 2.0)
        answer = world.answers.get(request_id)
        outcome, error, records, offset = "timeout", "", 0, -1
        brokers: tuple[int, ...] = ()
        if request_id in world.closed:
            outcome = "closed"
        elif isinstance(answer, m.ProduceResponse):
            part_answer = answer.responses[0].partition_responses[0]
            error, offset = Error(part_answer.error_code).name, part_answer.base_offset
            outcome = "answered" if part_answer.error_code == 0 else "refused"
        elif isinstance(answer, m.MetadataResponse):
            outcome, brokers = "answered", tuple(b.node_id for b in answer.brokers)
        elif isinstance(answer, m.FetchResponse):
            fetched = answer.responses[0].partitions[0]
            error = Error(fetched.error_code).name
            outcome = "answered" if fetched.error_code == 0 else "refused"
            records = len(read_values(fetched)) if outcome == "answered" else 0
        broker = int(slot.removesuffix("-duplicate").rpartition("-")[2])
        body = ProbeCompleted(
            operation=operation,
            api=api,
            broker=broker,
            slot=slot,
            topic=self.topic,
            partition=-1 if api == "Metadata" else 0,
            outcome=outcome,
            error=error,
            records=records,
            base_offset=offset,
            sent_at_ns=sent,
            brokers=brokers,
        )
        if api == "Produce":
            ended = {"answered": "ok", "refused": "failed"}.get(outcome, "unknown")
            self.record(
                PROBE,
                ProduceCompleted(
                    operation=operation,
                    topic=self.topic,
                    partition=0,
                    acks=1,
                    outcome=ended,
                    offset=offset,
                    error=error,
                ),
            )
        self.record(PROBE, body)
        return body

    def read_all(self) -> list[str]:
        """Reads the partition from start to end: the final reading."""
        world = self.world
        found: list[str] = []
        offset = 0
        while True:
            part = world.fetch(world.leader(self.topic), self.topic, offset)
            assert part is not None
            assert part.error_code == 0, part
            values = [v.decode() for v in read_values(part)]
            if not values:
                break
            offsets = tuple(range(offset, offset + len(values)))
            self.record(
                READER,
                Polled(
                    topic=self.topic,
                    partition=0,
                    offsets=offsets,
                    operations=tuple(values),
                    final=True,
                ),
            )
            found += values
            offset += len(values)
        self.record(
            READER,
            ReadCompleted(
                topic=self.topic, partition=0, start=0, end=offset, outcome="ok", error=""
            ),
        )
        return found


Strike = Callable[[World, "Clients"], None]


def chaos(
    seed: int,
    defects: tuple[str, ...] = (),
    strikes: Sequence[Strike] | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[list[Event], RunEnd, bool]:
    """Runs the strikes, `STRIKES` by default: the history, its end, whether all recovered."""
    world = World(seed, defects, **(settings or {}))  # type: ignore[arg-type]
    world.note("harness", RunStarted(system="reference/quorum", runtime="world", seed=seed))
    world.until(world.healthy, 20)
    world.create_topic("orders")
    clients = Clients(world, "orders")
    clients.start_producing()
    world.run(1.0)
    for strike in STRIKES if strikes is None else strikes:
        strike(world, clients)
        world.cuts.clear()
        if not world.until(world.healthy, 20):
            break  # a cluster that cannot recover is not struck again
        world.run(0.5)
    recovered = world.until(world.healthy, 30)
    clients.stop_producing()
    world.run(2.0)
    if recovered:
        clients.read_all()
    world.run(1.0)
    world.note("harness", RunEnded(True))
    return world.events, RunEnd(complete=True, ended_at_ns=world.now_ns), recovered


def _cut_from_controllers(world: World, clients: Clients) -> None:
    victim = world.leader("orders")
    world.isolate(victim, *CONTROLLERS)
    for _ in range(8):
        world.run(0.6)
        clients.probe(victim, "Fetch")
        clients.probe(victim, "Produce")


def _one_way_between_brokers(world: World, clients: Clients) -> None:
    leader = world.leader("orders")
    follower = next(b for b in ("broker-1", "broker-2", "broker-3") if b != leader)
    world.cut((follower, leader))
    world.run(0.1)
    clients.probe(leader, "Produce")
    clients.probe(leader, "Fetch")  # what is not committed yet is not in it
    world.run(4)


def _isolate_controller(world: World, clients: Clients) -> None:
    old = world.active_slot()
    world.isolate(old)
    world.run(1.0)
    world.until(lambda: world.active() is not None and world.active_slot() != old, 10)
    world.run(4)


def _kill_leader(world: World, clients: Clients) -> None:
    leader = world.leader("orders")
    world.kill(leader)
    world.run(0.7)
    world.start(leader)
    for _ in range(3):
        clients.probe(leader, "Fetch")


def _duplicate(world: World, clients: Clients) -> None:
    old = world.leader("orders")
    duplicate = f"{old}-duplicate"
    world.start(duplicate, copy_disk_of=old)
    for _ in range(6):
        world.run(0.5)
        clients.probe(old, "Fetch")
        clients.probe(old, "Produce")
    world.kill(duplicate)
    world.kill(old)
    world.run(0.2)
    world.start(old)


def _isolated_follower(world: World, clients: Clients) -> None:
    leader = world.leader("orders")
    follower = next(b for b in ("broker-3", "broker-2", "broker-1") if b != leader)
    world.isolate(follower, *(b for b in ("broker-1", "broker-2", "broker-3") if b != follower))
    world.run(4)


def _shutdown_leader(world: World, clients: Clients) -> None:
    leader = world.leader("orders")
    world.step(leader, ShutdownAsked())
    world.until(lambda: leader not in world.alive, 10)
    if leader in world.alive:
        world.kill(leader)
    world.run(0.5)
    world.start(leader)


def _bounce_controller(world: World, clients: Clients) -> None:
    old = world.active_slot()
    world.kill(old)
    world.run(5)
    world.start(old)


def _isolate_leader(world: World, clients: Clients) -> None:
    """An isolated leader must drop what it stored without followers; it is asked again later."""
    old = world.leader("orders")
    world.isolate(old)
    for _ in range(3):
        clients.probe(old, "Produce")
    world.until(lambda: world.leader("orders") not in (old, "broker--1"), 10)
    world.run(1)
    new = world.leader("orders")
    world.cuts.clear()
    world.until(lambda: world.broker(old).lifecycle.state.name == "ACTIVE", 10)
    world.run(0.3)
    for slot in BROKERS:
        if slot != new:
            clients.probe(slot, "Produce")


def _controllers_apart(world: World, clients: Clients) -> None:
    """The active controller hears brokers and no controller."""
    old = world.active_slot()
    world.isolate(old, *(c for c in CONTROLLERS if c != old))
    world.run(5)


def _controllers_apart_writing(world: World, clients: Clients) -> None:
    """The same, and it is asked for a change: it writes, and cannot commit."""
    old = world.active_slot()
    world.isolate(old, *(c for c in CONTROLLERS if c != old))
    topic = m.CreatableTopic(name=f"lost-{world.now_ns}", num_partitions=1, replication_factor=3)
    world.ask(old, m.CreateTopicsRequest(topics=(topic,), timeout=2000), PROBE, "CONTROLLER")
    world.run(5)


def _start_unreachable(world: World, clients: Clients) -> None:
    """A broker that starts and reaches no controller."""
    victim = world.leader("orders")
    world.kill(victim)
    world.isolate(victim, *CONTROLLERS)
    world.start(victim)
    world.run(0.1)
    for api in ("Fetch", "Produce", "Metadata"):
        clients.probe(victim, api)


def _kill_past_lease(world: World, clients: Clients) -> None:
    victim = world.leader("orders")
    world.kill(victim)
    world.run(5)
    world.start(victim)


def _follower_out_then_leader_killed(world: World, clients: Clients) -> None:
    """A follower falls out of the ISR; then the leader dies, and only the other one may lead."""
    leader = world.leader("orders")
    out = world.partition("orders").replicas
    first = next(f"broker-{r}" for r in out if f"broker-{r}" != leader)
    others = [b for b in BROKERS if b != first]
    world.isolate(first, *others)
    world.until(lambda: len(world.isr("orders")) == 2, 10)
    world.run(0.5)
    world.kill(leader)
    world.run(4)
    world.start(leader)


STRIKES = (
    _cut_from_controllers,
    _one_way_between_brokers,
    _isolate_controller,
    _kill_leader,
    _duplicate,
    _isolated_follower,
    _shutdown_leader,
    _bounce_controller,
    _isolate_leader,
    _controllers_apart,
    _controllers_apart_writing,
    _start_unreachable,
    _kill_past_lease,
    _follower_out_then_leader_killed,
)

__all__ = ["SECOND", "chaos"]
