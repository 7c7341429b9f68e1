"""Simulated runs with several faults at once. No test of the suites combines them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from fencepost import Condition, Spare, View, kind_name
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import schedule
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import Run, RunSpec
from fencepost.testing import Outcome
from fencepost.testing.event_log import EventLog
from fencepost_kafka import (
    ConsumerPositioned,
    KafkaView,
    MetadataDigest,
    ReadCompleted,
    ReaderOptions,
    Role,
    SnapshotStored,
    kafka_shape,
)

OFTEN = {"metadata.snapshot.interval.records": "20", "metadata.snapshot.slice.records": "2"}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_committed_is_lost_when_nodes_die_during_a_reassignment(
    seed: int, plugins: Plugins, tmp_path: Path
) -> None:
    """In turn the new replica dies, the leader, and the active controller."""
    shape = kafka_shape(brokers=4)
    spec = RunSpec(plugins.system("reference/quorum"), shape, "simulated", seed)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        cluster, clients = run.cluster, run.clients
        clients.create_topic("orders", partitions=1)
        writes = clients.produce("orders", rate=30)
        first, second, third, fourth = cluster.brokers
        moves = (
            ((fourth, second, third), lambda: fourth),
            ((fourth, first, third), lambda: cluster.leader("orders", 0)),
            ((second, first, fourth), lambda: cluster.active_controller),
        )
        for replicas, victim in moves:
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 30))
            clients.reassign("orders", 0, replicas)
            died = victim()
            with run.faults.kill(died):
                if died.role is Role.BROKER:
                    cluster.eventually(died.fenced_by_controller)
                else:
                    cluster.eventually(cluster.another_controller(died))
            cluster.eventually(cluster.assigned("orders", 0, replicas))
            cluster.eventually(cluster.recovered)
        result = run.finish()
    result.check(marked=("RP-20", "RP-06", "JEPSEN-lost-write"))


@pytest.mark.parametrize("seed", [1, 2])
def test_second_processes_begin_soon_after_one_another_and_no_promise_breaks(
    seed: int, plugins: Plugins, tmp_path: Path
) -> None:
    """Controllers may not have noticed yet that the last one has ended."""
    spec = RunSpec(plugins.system("reference/quorum"), kafka_shape(), "simulated", seed)
    folder = RunFolder.create(tmp_path / "run")
    conducted = run_one(spec, plugins, folder, 60_000, ("duplicate_id",))
    injected = schedule.read(folder.path / "schedule.json").injections
    assert any(
        following.at_ms < one.at_ms + one.for_ms + 6_000
        for one, following in pairwise(injected)
        if one.for_ms is not None
    )
    assert conducted.trouble == ""
    assert conducted.result is not None
    assert conducted.result.judgement.of(Outcome.VIOLATED) == ()


def test_a_simulated_reader_asks_again_for_an_end_below_what_clients_were_shown(
    plugins: Plugins, tmp_path: Path
) -> None:
    """As the reader in a process does. A consumer names the broker that refused its offset, too."""
    spec = RunSpec(plugins.system("reference/quorum"), kafka_shape(), "simulated", seed=1)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        cluster, clients, history = run.cluster, run.clients, EventLog(run.runtime)
        clients.create_topic("orders", partitions=2)
        writes, reads = clients.produce("orders", count=40, rate=200), clients.consume("orders")
        cluster.eventually(writes.settled & reads.polled_at_least(40))
        reads.seek("orders", 1, 500)
        cluster.eventually(reads.polled_at_least(41))
        assert history.of(ConsumerPositioned, reads.process)[-1] == ConsumerPositioned(
            topic="orders",
            partition=1,
            offset=-2,
            out_of_range=True,
            refused_by=cluster.leader("orders", 1).id,
        )
        run.workers.drain()
        ends = dict(run.runtime.view.of(KafkaView).shown)
        assert sum(ends.values()) == len(writes.acked)
        run.runtime.view.of(KafkaView).shown["orders", 0] += 10
        assert list(clients.read_finally()) == []
        first, late = sorted(history.of(ReadCompleted), key=lambda one: one.asked_ns)
    assert [(one.partition, one.outcome) for one in (first, late)] == [(1, "ok"), (0, "ok")]
    assert {(one.topic, one.partition): one.end for one in (first, late)} == ends
    settle_ms = ReaderOptions(partitions=(), final=True).settle_ms
    assert late.asked_ns - first.asked_ns >= settle_ms * MS


def test_nodes_that_were_left_behind_get_a_snapshot_and_have_the_same_state(
    plugins: Plugins, tmp_path: Path
) -> None:
    """A standby controller and a broker miss records that are then removed from the log. A new
    broker has an empty disk."""
    shape = kafka_shape(settings=OFTEN, spares=(Spare(Role.BROKER, 4),))
    spec = RunSpec(plugins.system("reference/quorum"), shape, "simulated", seed=1)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        cluster, clients = run.cluster, run.clients
        active = cluster.active_controller
        standby = next(c for c in cluster.controllers if c != active)
        behind, newcomer = cluster.brokers[2], cluster.node("broker-4")
        with run.faults.isolate(standby), run.faults.cut_from_controllers(behind):
            cluster.eventually(behind.fenced_by_controller)
            missed = run.runtime.view.of(KafkaView).committed

            def stored_since(view: View) -> bool:
                stored = view.latest.get((active.process(view), kind_name(SnapshotStored)))
                return stored is not None and stored.body.offset > missed

            for number in range(3):
                clients.create_topic(f"orders-{number}", partitions=30, replication=2)
            cluster.eventually(Condition(f"a snapshot by {active}", stored_since))
            cluster.start(newcomer)
            cluster.eventually(newcomer.active)
        cluster.eventually(standby.from_snapshot & behind.from_snapshot & newcomer.from_snapshot)
        clients.create_topic("later", partitions=30, replication=2)  # every node stores a snapshot
        result = run.finish()
    result.check(marked=("QC-06", "QC-11", "QC-12"))
    digested = {
        event.process.partition("#")[0]
        for event in run.runtime.events()
        if isinstance(event.body, MetadataDigest)
    }
    assert digested >= {standby.name, behind.name, newcomer.name}
