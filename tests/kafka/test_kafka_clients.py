"""Real clients against a real cluster, through links: their events agree with their actions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from fencepost import Condition, Violation
from fencepost.model.clock import MS
from fencepost.plugins.manager import load_from
from fencepost.runs.run import Run, RunSpec, new_folder
from fencepost.testing.event_log import EventLog
from fencepost_clusters.reference import plugin as reference
from fencepost_kafka import (
    AdminCompleted,
    ConsumerPositioned,
    KafkaView,
    Polled,
    ProduceCompleted,
    ReadCompleted,
    ReaderOptions,
    kafka_shape,
)
from fencepost_kafka import plugin as kafka
from fencepost_kafka.clients.started import Writes
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_plugins import bounce, partition

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One controller and three brokers; each test works on topics of its own."""
    plugins = load_from(
        (),
        {
            "bounce": bounce,
            "kafka": kafka,
            "partition": partition,
            "reference": reference,
        },
    )
    spec = RunSpec(plugins.system("reference/quorum"), kafka_shape(controllers=1, brokers=3))
    with Run.start(spec, plugins, new_folder(tmp_path_factory.mktemp("runs"), "clients")) as run:
        yield run


@pytest.fixture
def cluster(run: Run) -> KafkaCluster:
    return run.cluster


@pytest.fixture
def clients(run: Run) -> KafkaClients:
    return run.clients


@pytest.fixture
def history(run: Run) -> EventLog:
    return EventLog(run.runtime)


@pytest.mark.parametrize("acks", ["all", 1])
def test_acknowledged_messages_are_read_back(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog, acks: str | int
) -> None:
    topic = f"acks-{acks}"
    writes = clients.produce(topic, acks=acks, count=60, rate=500)
    cluster.eventually(writes.settled)
    completed = history.of(ProduceCompleted, writes.process)
    assert {c.outcome for c in completed} == {"ok"}
    places = {(c.partition, c.offset) for c in completed}
    assert places == {(partition, offset) for partition in range(3) for offset in range(20)}
    assert len(writes.acked) == 60
    cluster.eventually(cluster.all_committed)  # by one alone, if acks=1
    assert clients.read_all(topic) == writes.acked


def test_without_acknowledgement_nothing_is_known(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("acks-0", acks=0, count=10)
    cluster.eventually(writes.settled)
    completed = history.of(ProduceCompleted, writes.process)
    assert [(c.outcome, c.offset) for c in completed] == [("unknown", -1)] * 10
    assert writes.acked == frozenset()


def test_a_message_that_gets_no_answer_in_time_is_unknown(
    run: Run, cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("mute", partitions=1)
    settings = {"message.timeout.ms": "1000"}
    writes = clients.produce("mute", rate=50, settings=settings)
    cluster.eventually(writes.acked_at_least(10))
    with run.faults.partition("clients", cluster.leader("mute", 0)) as parted:
        assert parted.receipt.true, parted.receipt.evidence
        cluster.eventually(unknown_at_least(writes, 10))
    writes.stop()
    cluster.eventually(writes.settled)
    completed = history.of(ProduceCompleted, writes.process)
    errors = {(c.outcome, c.error) for c in completed}
    assert errors == {("ok", ""), ("unknown", "_MSG_TIMED_OUT")}


def unknown_at_least(writes: Writes, count: int) -> Condition:
    return Condition(
        f"{count} writes of unknown outcome",
        lambda view: view.of(KafkaView).completed[writes.process, "unknown"] >= count,
    )


def test_a_consumer_reads_each_partition_in_order_and_again_after_a_seek(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("consumed", count=60, rate=500)
    reads = clients.consume("consumed")
    cluster.eventually(writes.settled & reads.polled_at_least(60))
    polled = history.of(Polled, reads.process)
    assert not any(p.final for p in polled)
    assert {o for p in polled for o in p.operations} == writes.acked
    offsets = [o for p in polled if p.partition == 1 for o in p.offsets]
    assert all(b - a == 1 for a, b in pairwise(offsets))
    reads.seek("consumed", 1, 5)
    cluster.eventually(reads.polled_at_least(60 + 15))
    positions = history.of(ConsumerPositioned, reads.process)
    assert [(p.partition, p.offset) for p in positions] == [(0, -2), (1, -2), (2, -2), (1, 5)]
    assert history.of(Polled, reads.process)[-1].offsets[-1] == 19
    reads.seek("consumed", 1, 500)
    cluster.eventually(reads.polled_at_least(60 + 15 + 20))
    beyond, begun = history.of(ConsumerPositioned, reads.process)[-2:]
    assert (beyond.offset, beyond.out_of_range) == (500, False)
    assert (begun.partition, begun.offset, begun.out_of_range) == (1, -2, True)
    assert begun.refused_by == cluster.leader("consumed", 1).id
    reads.stop()


def test_topics_come_and_go(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("brief", partitions=2)
    with pytest.raises(Violation, match="create_topic brief ended as failed: TOPIC_ALREADY_EXISTS"):
        clients.create_topic("brief", partitions=2)
    assert clients.list_topics().outcome == "ok"
    assert clients.describe_cluster().outcome == "ok"
    clients.delete_topic("brief")
    assert not cluster.holds(cluster.led("brief", 0))
    apis = [(b.api, b.outcome) for b in history.of(AdminCompleted)]
    assert apis[-1] == ("delete_topic", "ok")


def test_a_probe_has_the_answer_of_one_broker(cluster: KafkaCluster, clients: KafkaClients) -> None:
    clients.create_topic("probed", partitions=1)
    leader, follower = cluster.leader("probed", 0), cluster.followers("probed", 0)[0]
    written = clients.produce_directly(leader, "probed", 0)
    assert written.answered
    assert written.body.base_offset == 0
    assert clients.read_all("probed") == {written.body.operation}
    fetched = clients.fetch_directly(leader, "probed", 0)
    assert (fetched.answered, fetched.records) == (True, 1)
    refused = clients.fetch_directly(follower, "probed", 0)
    assert (refused.refused, refused.error) == (True, "NOT_LEADER_OR_FOLLOWER")
    assert clients.produce_directly(follower, "probed", 0).refused
    assert clients.ask_metadata(follower, "probed").answered
    assert clients.fetch_directly(leader, "no-such-topic", 0).refused


def test_a_dead_broker_answers_no_probe(
    run: Run, cluster: KafkaCluster, clients: KafkaClients
) -> None:
    victim = cluster.brokers[2]
    with run.faults.kill(victim):
        answer = clients.ask_metadata(victim, "probed")
        assert not answer.answered
        assert answer.refused
    cluster.eventually(cluster.recovered)


def test_the_final_reading_covers_every_partition(
    run: Run, cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    """The last test of the module: it stops every client. A leader that names an end below what
    clients were shown is asked again until ends have settled, and then believed."""
    cluster.eventually(clients.produce("late", count=5).settled)
    run.workers.drain()
    kafka = run.runtime.view.of(KafkaView)
    late = min(place for place in kafka.shown if place[0] == "late")
    kafka.shown[late] += 10
    assert list(clients.read_finally()) == []
    read = {(r.topic, r.partition): r for r in history.of(ReadCompleted)}
    assert set(read) == set(kafka.partitions)
    assert {one.outcome for one in read.values()} == {"ok"}
    assert read[late].end == kafka.shown[late] - 10
    first_ns = min(one.asked_ns for one in read.values())
    # The time counts from before the first request; a last request may be answered as it is over.
    nearly_ns = ReaderOptions(partitions=(), final=True).settle_ms * MS // 2
    asked_late = {place for place, one in read.items() if one.asked_ns >= first_ns + nearly_ns}
    assert asked_late == {late}
    finals = [p for p in history.of(Polled) if p.final]
    assert {o for p in finals for o in p.operations} >= {
        c.operation for c in history.of(ProduceCompleted) if c.outcome == "ok"
    }
