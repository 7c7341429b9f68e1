"""Kafka's clients as a test sees them: workers that are sent commands, and their events.

This module holds no client object and starts no thread: every call starts a worker or sends it a
command, and lets time pass until an event answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import final

from fencepost import (
    MS,
    ClientSession,
    Condition,
    Event,
    Inconclusive,
    RunsApps,
    UsageError,
    View,
    Violation,
    Workers,
    kind_name,
    no_such,
    plain,
)
from fencepost_kafka.clients.asking import ADMIN_LIMIT_MS, administer
from fencepost_kafka.clients.commands import (
    AddBrokers,
    AdminCommand,
    AdminOptions,
    AlterSettings,
    ClientOptions,
    ConsumerOptions,
    CreateTopic,
    DeleteBroker,
    DeleteTopic,
    DescribeCluster,
    ElectPreferred,
    ListReassignments,
    ListTopics,
    ProbeBytes,
    ProbeCommand,
    ProbeController,
    ProbeFetch,
    ProbeMetadata,
    ProbeMetrics,
    ProbeOptions,
    ProbeProduce,
    ProducerOptions,
    ReaderOptions,
    Reassign,
    Rebalance,
)
from fencepost_kafka.clients.messages import Message, messages_of
from fencepost_kafka.clients.probe_result import ProbeResult
from fencepost_kafka.clients.scheduled import Scheduled
from fencepost_kafka.clients.started import Reads, Writes
from fencepost_kafka.events import AdminCompleted, Polled, ProbeCompleted
from fencepost_kafka.facade.cluster import KafkaCluster, kafka_cluster
from fencepost_kafka.facade.node import KafkaNode
from fencepost_kafka.facade.voters import VoterChange, Voters, controller_port
from fencepost_kafka.faults.administration import concerned
from fencepost_kafka.view import KafkaView

LOADED_TOPICS = ("orders", "audit")
LOAD_RATE = 20.0
LOAD_LINGER_MS = 150
"""Of one of the producers: with that rate, it sends batches of three messages."""
MOST_LINGER_MS = 10_000
CONSUMERS = 2
ACKS = {"all": -1, "1": 1, "0": 0}
PROBE_LIMIT_MS = 5_000
READ_LIMIT_MS = 30_000
END_LIMIT_MS = 20_000
"""How long a reader may take to end, beyond its own limit."""


@final
class KafkaClients:
    """Starts clients in the clients' slot, and sends requests to the cluster through them."""

    def __init__(self, workers: Workers, cluster: KafkaCluster) -> None:
        self._workers = workers
        self._runtime = cluster.base.runtime
        self._cluster = cluster
        self._admin: ClientSession | None = None
        self._probe: ClientSession | None = None
        self._loaded: tuple[str, ...] = ()
        self._scheduled = Scheduled(self._runtime, self._start, workers.next_operation)
        self.quorum = Voters(self._runtime, cluster, self._change_voters)

    # ---------------------------------------------------------------------------------- topics

    def create_topic(
        self,
        topic: str,
        partitions: int = 3,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic, on at most three brokers, and waits until every partition is led.

        A call whose outcome is unknown (its connection ended) is repeated, each time as an
        operation of its own, unless the metadata show that it succeeded. Raises Violation if the
        cluster refuses, does not answer, or does not lead the partitions in time.
        """
        self._check_own(topic)
        replicas = min(3, len(self._cluster.brokers)) if replication is None else replication
        self._administer(
            CreateTopic(
                operation=self._workers.next_operation(),
                topic=topic,
                partitions=partitions,
                replication=replicas,
                config=config or {},
            ),
            Condition(
                f"the topic {topic} to exist", lambda view: topic in view.of(KafkaView).topics
            ),
        )
        for partition in range(partitions):
            self._cluster.eventually(self._cluster.led(topic, partition))

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic and waits until the metadata show it; as `create_topic`."""
        self._check_own(topic)
        gone = Condition(
            f"the topic {topic} to be gone", lambda view: topic not in view.of(KafkaView).topics
        )
        self._administer(DeleteTopic(operation=self._workers.next_operation(), topic=topic), gone)
        self._cluster.eventually(gone)

    def list_topics(self) -> AdminCompleted:
        """Lists all topics; returns the outcome."""
        return self._ask_admin(ListTopics(operation=self._workers.next_operation()))

    def describe_cluster(self) -> AdminCompleted:
        """Lists the cluster's nodes; returns the outcome."""
        return self._ask_admin(DescribeCluster(operation=self._workers.next_operation()))

    # ---------------------------------------------------------------------- replicas and brokers

    def reassign(self, topic: str, partition: int, replicas: Sequence[KafkaNode | int]) -> None:
        """Begins to move a partition to these brokers; without brokers, cancels the move under way.

        Returns once the request is stored; `cluster.assigned` is the condition for its end. Raises
        Violation if the cluster refuses. As for every change here, a call whose outcome is unknown
        is repeated, as in `create_topic`.
        """
        self._check_own(topic)
        ids = tuple(r.id if isinstance(r, KafkaNode) else r for r in replicas)
        self._administer(
            Reassign(operation=self._workers.next_operation(), moves=((topic, partition, ids),))
        )

    def reassignments(self) -> tuple[str, ...]:
        """The partitions that are being reassigned, by name (`orders-0`)."""
        return self._administer(ListReassignments(operation=self._workers.next_operation())).details

    def elect_preferred(self, topic: str) -> AdminCompleted:
        """Elects the preferred replicas of a topic; raises as `reassign` does."""
        self._check_own(topic)
        partitions = self._partitions(topic)
        return self._administer(
            ElectPreferred(
                operation=self._workers.next_operation(), topic=topic, partitions=partitions
            )
        )

    def alter_settings(self, topic: str, config: Mapping[str, str]) -> None:
        """Sets a topic's own settings; raises Violation when the cluster refuses."""
        self._check_own(topic)
        self._administer(
            AlterSettings(operation=self._workers.next_operation(), topic=topic, config=config)
        )

    def delete_broker(self, node: KafkaNode) -> None:
        """Deletes a broker; a running broker registers again. Raises as `reassign` does."""
        self._check_own()
        self._administer(DeleteBroker(operation=self._workers.next_operation(), broker=node.id))

    def add_brokers(self, *nodes: KafkaNode) -> None:
        """Begins to move replicas to brokers that have none yet; raises as `reassign` does."""
        self._check_own()
        ids = tuple(node.id for node in nodes)
        self._administer(AddBrokers(operation=self._workers.next_operation(), brokers=ids))

    def rebalance(self) -> None:
        """Begins to place every partition again over all brokers; raises as `reassign` does."""
        self._check_own()
        self._administer(Rebalance(operation=self._workers.next_operation()))

    # ------------------------------------------------------------------- producers, consumers

    def produce(
        self,
        *topics: str,
        acks: str | int = "all",
        count: int = 0,
        rate: float = 50.0,
        idempotent: bool | None = None,
        size: int = 100,
        linger_ms: int = 0,
        settings: Mapping[str, str] | None = None,
        may_die: bool = False,
        user: str = "",
    ) -> Writes:
        """Starts a producer in the background: `rate` messages a second, `count` of them (0: no
        limit).

        It writes to all partitions of the topics in turn. A topic that does not exist is created
        first. The messages of `linger_ms` are one batch, to one partition. Producers with acks=all
        are idempotent by default. `settings` are the client library's own. `may_die`: a crash of
        that library is recorded and does not end the run. `user` is whom a secured cluster knows
        the client by, such as `fencepost_kafka.security.STRANGER`; by default its slot.

        Raises UsageError for a `linger_ms` after which a message would be too old to be sent.
        """
        if not 0 <= linger_ms <= MOST_LINGER_MS:
            raise UsageError(f"linger_ms is 0 to {MOST_LINGER_MS} milliseconds, not {linger_ms}")
        acknowledged = ACKS[str(acks)]
        options = ProducerOptions(
            partitions=self._places(topics),
            acks=acknowledged,
            idempotent=acknowledged == -1 if idempotent is None else idempotent,
            count=count,
            rate=rate,
            size=size,
            linger_ms=linger_ms,
            settings=settings or {},
            user=user,
        )
        return Writes(self._runtime, self._start("producer", options, may_die), count)

    def consume(
        self,
        *topics: str,
        settings: Mapping[str, str] | None = None,
        may_die: bool = False,
        user: str = "",
    ) -> Reads:
        """Starts a consumer of all partitions of these topics, from their beginning on; `settings`,
        `may_die` and `user` as of `produce`."""
        places = self._places(topics)
        options = ConsumerOptions(partitions=places, settings=settings or {}, user=user)
        return Reads(self._start("consumer", options, may_die))

    def read_all(self, topic: str) -> frozenset[str]:
        """Reads every partition from its start to its present end; returns the operations found.

        Raises Inconclusive if a partition could not be read to its end in time.
        """
        places = tuple((topic, partition) for partition in self._partitions(topic))
        process = self._read(places, final=False)
        if process is None or (process, "client.failed") in self._runtime.view.latest:
            raise Inconclusive(f"{topic} could not be read to its end")
        return frozenset(
            operation
            for event in self._runtime.events()
            if event.process == process and isinstance(event.body, Polled)
            for operation in event.body.operations
        )

    def messages(self, topic: str, *, committed: bool = False) -> tuple[Message, ...]:
        """Reads every partition from its start to its present end; returns the messages, by
        partitions and offsets.

        `committed`: those of transactions that are open or aborted are left out. Raises
        Inconclusive if a partition could not be read to its end in time, UsageError for a topic
        that does not exist, and in the simulator, whose clients keep no contents.
        """
        if not isinstance(self._runtime, RunsApps):
            raise UsageError("the simulator's clients keep no contents of messages")
        if topic not in self._kafka.topics:
            raise no_such("topic", topic, self._kafka.topics)
        places = tuple((topic, partition) for partition in self._partitions(topic))
        level = "read_committed" if committed else "read_uncommitted"
        process = self._read(places, final=False, contents={"isolation.level": level})
        if process is None or (process, "client.failed") in self._runtime.view.latest:
            raise Inconclusive(f"{topic} could not be read to its end")
        return messages_of(one.body for one in self._runtime.events() if one.process == process)

    # ----------------------------------------------------------------------------------- probes

    def fetch_directly(
        self, node: KafkaNode, topic: str, partition: int, offset: int = 0
    ) -> ProbeResult:
        """Sends one Fetch to this node, whether it leads or not; returns its answer, if any."""
        return self._ask_node(
            ProbeFetch(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                topic=topic,
                partition=partition,
                offset=offset,
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    def produce_directly(
        self, node: KafkaNode, topic: str, partition: int, acks: str | int = "all"
    ) -> ProbeResult:
        """Sends one Produce of one message to this node; as `fetch_directly`."""
        return self._ask_node(
            ProbeProduce(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                topic=topic,
                partition=partition,
                acks=ACKS[str(acks)],
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    def ask_metadata(self, node: KafkaNode, topic: str) -> ProbeResult:
        """Sends one Metadata request to this node; as `fetch_directly`."""
        return self._ask_node(
            ProbeMetadata(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                topic=topic,
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    def send_bytes(
        self, node: KafkaNode, frame: bytes, *, to_controller: bool = False
    ) -> ProbeResult:
        """Sends one request, given as bytes without its length, to the listener of this node that
        clients can reach: a broker's own, or a controller's. As `fetch_directly`.

        `to_controller`: to a broker's listener for requests to it as the controller.
        """
        layout = self._runtime.layout
        by_nodes = controller_port(layout, node) if to_controller else None
        return self._ask_node(
            ProbeBytes(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                port=layout.client_port(node.name) if by_nodes is None else by_nodes,
                frame=frame.hex(),
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    def read_metrics(self, node: KafkaNode) -> ProbeResult:
        """Reads the metrics page of this node's process over HTTP; as `fetch_directly`."""
        return self._ask_node(
            ProbeMetrics(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                port=self._runtime.layout.metrics_port,
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    def command_controller(self, node: KafkaNode, topic: str) -> ProbeResult:
        """Sends a CreateTopics to a controller's own endpoint, without credentials; as
        `fetch_directly`."""
        return self._ask_node(
            ProbeController(
                operation=self._workers.next_operation(),
                slot=node.name,
                broker=node.id,
                topic=topic,
                port=controller_port(self._runtime.layout, node),
                limit_ms=PROBE_LIMIT_MS,
            )
        )

    # ------------------------------------------------------------- what the framework asks for

    def load(self, selectors: Sequence[str] = ()) -> None:
        """Two topics of three partitions, two producers, two consumers: it is evidence if only one
        of them gets a message. The producers differ in their acks and in the size of their batches.

        If selectors name topics (`@leader/orders/0`), these are used instead. librdkafka sometimes
        crashes when a leader is lost; the run goes on with the other clients.
        """
        named = sorted({s.split("/")[1] for s in selectors if s.count("/") == 2})
        topics = tuple(named) or tuple(f"{self._cluster.topics}{one}" for one in LOADED_TOPICS)
        for topic in topics:
            self._ensure_topic(topic)
        self._loaded = topics
        self.produce(*topics, acks="all", rate=LOAD_RATE, may_die=True)
        linger_ms = LOAD_LINGER_MS
        self.produce(topics[-1], acks="1", rate=LOAD_RATE, linger_ms=linger_ms, may_die=True)
        for _ in range(CONSUMERS):
            self.consume(*topics, may_die=True)

    def probe(self, random: Random, victims: Sequence[str]) -> None:
        """Sends a request directly to a broker: to one that a fault affects, if there is one."""
        brokers = [b for b in self._cluster.brokers if not victims or b.name in victims]
        if not brokers:
            brokers = list(self._cluster.brokers)
        node = brokers[random.randrange(len(brokers))]
        topic = self._loaded[random.randrange(len(self._loaded))]
        partition = random.randrange(3)
        kind = random.randrange(4)
        try:
            if kind == 0:
                self.ask_metadata(node, topic)
            elif kind == 1:
                self.produce_directly(node, topic, partition, acks=1)
            else:
                self.fetch_directly(node, topic, partition)
        except Violation:
            return  # an unanswered probe is in the history; rules decide what it means

    @property
    def administering(self) -> bool:
        """Whether an operation of the schedule is not completed."""
        return self._scheduled.administering

    def concerns(self, operation: str, arguments: Mapping[str, object]) -> Sequence[str]:
        """The nodes that an operation of the schedule concerns."""
        return concerned(operation, arguments, self._runtime.view, self._runtime.layout)

    def administer(self, operation: str, arguments: Mapping[str, object]) -> None:
        """See `fencepost_kafka.clients.scheduled`."""
        self._scheduled.administer(operation, arguments)

    def read_finally(self) -> Sequence[str]:
        """Reads every partition; returns those that could not be read to their end.

        The messages stored last are still being replicated, and a reading now would miss them. So
        this waits first until they are replicated, at most as long as a recovery may take.
        """
        self._admin = self._probe = None
        bound_ns = self._cluster.timing.recovery_bound_ms * MS
        self._runtime.advance(self._cluster.all_committed, self._runtime.now_ns() + bound_ns)
        places = tuple(sorted(self._kafka.partitions))
        if places:
            self._read(places, final=True, shown=[self._kafka.shown.get(p, 0) for p in places])
        read = self._kafka.read_completed
        return [f"{topic}-{n}" for topic, n in places if read.get((topic, n)) != "ok"]

    # --------------------------------------------------------------------------------- workings

    @property
    def _kafka(self) -> KafkaView:
        return self._runtime.view.of(KafkaView)

    def _partitions(self, topic: str) -> tuple[int, ...]:
        return tuple(sorted(p for t, p in self._kafka.partitions if t == topic))

    def _places(self, topics: Sequence[str]) -> tuple[tuple[str, int], ...]:
        """Every partition of these topics; a topic that does not exist is created."""
        for topic in topics:
            self._ensure_topic(topic)
        return tuple((t, p) for t in topics for p in self._partitions(t))

    def _check_own(self, topic: str = "") -> None:
        """Raises UsageError if the cluster is somebody else's, and the topic none that a run may
        touch; without a topic, for what concerns all of them."""
        ours = self._cluster.topics
        if not topic.startswith(ours):
            what = f"the topic {topic}" if topic else "the whole cluster"
            raise UsageError(
                f"{what} is not this run's to change: the cluster runs already, and the names of "
                f"topics of a run there begin with {ours}"
            )

    def _ensure_topic(self, topic: str) -> None:
        if topic not in self._kafka.topics:
            self.create_topic(topic)

    def _start(self, kind: str, options: ClientOptions, may_die: bool = False) -> ClientSession:
        return self._workers.start_kind(kind, plain(options), may_die)

    def _administer(self, command: AdminCommand, done: Condition | None = None) -> AdminCompleted:
        return administer(
            command, done, self._runtime, self._ask_admin, self._workers.next_operation
        )

    def _ask_admin(self, command: AdminCommand) -> AdminCompleted:
        if self._admin is None:
            self._admin = self._start("admin", AdminOptions(limit_ms=ADMIN_LIMIT_MS))
        body = self._ask(self._admin, command, AdminCompleted, ADMIN_LIMIT_MS).body
        assert isinstance(body, AdminCompleted)
        return body

    def _ask_node(self, command: ProbeCommand) -> ProbeResult:
        if self._probe is None:
            self._probe = self._start("probe", ProbeOptions())
        event = self._ask(self._probe, command, ProbeCompleted, PROBE_LIMIT_MS)
        assert isinstance(event.body, ProbeCompleted)
        return ProbeResult(event, event.body)

    def _change_voters(self, change: VoterChange, broker: KafkaNode) -> ProbeCompleted:
        return self._ask_node(change.command(self._workers.next_operation(), broker)).body

    def _ask(
        self,
        session: ClientSession,
        command: AdminCommand | ProbeCommand,
        answer: type[AdminCompleted | ProbeCompleted],
        limit_ms: int,
    ) -> Event:
        """Sends a command and waits for the event that completes it."""
        kind = kind_name(answer)

        def completed(view: View) -> bool:
            event = view.latest.get((session.process, kind))
            if event is None or not isinstance(event.body, answer):
                return False
            return event.body.operation == command.operation

        answered = Condition(f"{session.process} to complete {command.operation}", completed)
        self._workers.command(session, plain(command), answered, limit_ms)
        return self._runtime.view.latest[session.process, kind]

    def _read(
        self,
        places: Sequence[tuple[str, int]],
        final: bool,
        shown: Sequence[int] = (),
        contents: Mapping[str, str] | None = None,
    ) -> str | None:
        """Reads these partitions with a reader of its own; returns its process, or None if it
        hung."""
        options = ReaderOptions(
            partitions=tuple(places),
            final=final,
            shown=tuple(shown),
            limit_ms=READ_LIMIT_MS,
            settings=contents or {},
            contents=contents is not None,
        )
        session = self._start("reader", options)
        ended = self._workers.await_end([session], READ_LIMIT_MS + END_LIMIT_MS)
        return session.process if ended else None


def kafka_clients(workers: Workers, cluster: object) -> KafkaClients:
    """The facade of a workload of Kafka clients; raises UsageError for another kind of cluster."""
    return KafkaClients(workers, kafka_cluster(cluster))
