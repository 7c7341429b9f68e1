"""The fault `hold`: its arguments, and its effect on a real cluster's requests, on processes, in
containers and in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests import docker_bench

from fencepost import FaultInjected, FaultTookEffect, Shape, UsageError
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.runs.schedule import read
from fencepost.testing import kit
from fencepost_clusters.reference.simulation import shell
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.codec import CLIENT_CALLS, NODE_CALLS
from fencepost_kafka.events import IsrChangeAsked, ProduceCompleted, ProduceInvoked
from fencepost_kafka.faults.hold import hold
from fencepost_kafka.layout import Ports, lay_out
from fencepost_kafka.testing import KafkaClients, KafkaCluster

TOPIC_ID = UUID(int=7)


def test_arguments_make_the_same_fault_again() -> None:
    kit.check_fault(hold, sources="broker-1", targets="controller-1", apis="Fetch")
    kit.check_fault(
        hold, sources=["broker-1", "broker-2"], targets="broker-3", apis=["AlterPartition", 50],
        topic="orders", skip=2, first=0, action="delay", delay_ms=300, overtake=True,
        outlives=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"apis": "AlterIsr"}, "no API named 'AlterIsr'; did you mean 'AlterPartition'"),
        ({"apis": []}, "at least one API"),
        ({"apis": -1}, "from 0 to 32767, not -1"),
        ({"apis": 1, "action": "keep"}, "no action named 'keep'"),
        ({"apis": 1, "skip": -1}, "a skip and a first of 0 or more"),
        ({"apis": 1, "action": "delay"}, "needs a delay_ms for the action 'delay'"),
        ({"apis": 1, "delay_ms": 5}, "needs a delay_ms for the action 'delay', and for no other"),
        ({"apis": 1, "sources": []}, "at least one node"),
    ],
)
def test_arguments_without_sense_are_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        hold(**{"sources": "broker-1", "targets": "controller-1", **arguments})  # type: ignore[arg-type]


class _Refusing:
    """A runtime of which a fault that is refused asks for the layout alone."""

    def __init__(self, **secured: object) -> None:
        self.layout = replace(lay_out(Shape(), Ports()), **secured)  # type: ignore[arg-type]


def test_what_a_secured_cluster_makes_impossible_is_refused_in_one_sentence() -> None:
    sealed: Any = _Refusing(sealed="TLS")
    with pytest.raises(
        UsageError, match="the fault 'hold' reads requests, and the links carry TLS"
    ):
        hold("broker-1", "controller-1", "Fetch").inject(sealed)
    logs_in: Any = _Refusing(logs_in=True)
    with pytest.raises(UsageError, match="begins with a login: give outlives=False"):
        hold("broker-1", "controller-1", "Fetch").inject(logs_in)


def framed(request: m.Request, to_clients: bool = False) -> bytes:
    sent = shell._Request("client", 1, request, "")
    frame = shell.frame(sent, CLIENT_CALLS if to_clients else NODE_CALLS)
    assert frame is not None
    return frame


def test_requests_are_chosen_by_their_api_and_by_the_topic_that_they_name_or_mean() -> None:
    what = hold("broker-1", "controller-1", ["AlterPartition", "Metadata"], "orders")
    chosen = what.on_links({"orders": str(TOPIC_ID)})

    def alter_partition(topic_id: UUID) -> bytes:
        topic = m.AlterPartitionTopic(topic_id=topic_id, partitions=())
        return framed(m.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=(topic,)))

    def metadata(topic: str) -> bytes:
        return framed(m.MetadataRequest(topics=(m.MetadataRequestTopic(name=topic),)), True)

    assert chosen.matches(alter_partition(TOPIC_ID))
    assert not chosen.matches(alter_partition(UUID(int=8)))
    in_base_64 = what.on_links({"orders": "AAAAAAAAAAAAAAAAAAAABw"})  # as Kafka prints the id
    assert in_base_64 == chosen
    without_ids = what.on_links({"orders": "orders"})
    assert without_ids == what.on_links({})
    assert chosen.matches(metadata("orders"))
    assert not chosen.matches(metadata("orders-2"))
    assert not chosen.matches(framed(m.VoteRequest(topics=())))


@contextmanager
def started(runtime: str, tmp_path: Path) -> Iterator[Run]:
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime=runtime, seed=3)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        yield run


@pytest.fixture(params=["simulated", pytest.param("process", marks=pytest.mark.real)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    with started(request.param, tmp_path) as run:
        yield run


def parts(run: Run) -> tuple[KafkaCluster, KafkaClients]:
    cluster, clients = run.cluster, run.clients
    assert isinstance(cluster, KafkaCluster)
    assert isinstance(clients, KafkaClients)
    return cluster, clients


def test_a_held_isr_change_is_stored_only_after_its_release(run: Run) -> None:
    cluster, clients = parts(run)
    clients.produce("orders")
    leader, follower = cluster.leader("orders", 0), cluster.followers("orders", 0)[0]
    controller = cluster.active_controller
    held = run.faults.hold(leader, controller, "AlterPartition", topic="orders", first=0)
    assert not held.receipt.true
    with run.faults.partition(leader, follower):
        receipt = held.await_receipt()
        assert receipt.true, receipt.evidence
        assert cluster.holds(follower.in_sync("orders", 0))
        healed = held.heal()
        assert healed.true, healed.evidence
        cluster.eventually(~follower.in_sync("orders", 0))
    cluster.eventually(cluster.recovered)
    result = run.finish()
    result.check(())
    events = run.runtime.events()
    (effect,) = [e.body for e in events if isinstance(e.body, FaultTookEffect)]
    assert effect.fault_id == held.fault_id
    assert "1 taken: 1 " in effect.evidence
    injected = {e.body.fault_id: e.body for e in events if isinstance(e.body, FaultInjected)}
    assert not injected[held.fault_id].receipt
    recorded = read(result.folder.schedule).injections[0]
    assert (recorded.fault, recorded.receipt) == ("hold", True)
    assert not result.missed
    assert any(isinstance(e.body, IsrChangeAsked) for e in events)


@pytest.mark.real
def test_a_held_isr_change_is_stored_only_after_its_release_in_containers(tmp_path: Path) -> None:
    docker_bench.usable_backend()
    with started("docker", tmp_path) as run:
        test_a_held_isr_change_is_stored_only_after_its_release(run)


def test_a_held_request_delays_later_requests_and_none_overtakes(run: Run) -> None:
    cluster, clients = parts(run)
    clients.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    held = run.faults.hold("clients", leader, "Produce", topic="orders")
    writes = clients.produce("orders", count=40, rate=50)
    assert held.await_receipt().true
    before = writes.acked
    run.base.comes_to(writes.acked_at_least(len(before) + 1), 300)
    assert writes.acked == before
    healed = held.heal()
    assert healed.true, healed.evidence
    assert "1 released" in healed.evidence
    cluster.eventually(writes.settled)
    assert clients.read_all("orders") == writes.acked
    run.finish().check(())
    bodies = [event.body for event in run.runtime.events()]
    sent = [body.operation for body in bodies if isinstance(body, ProduceInvoked)]
    stored = {body.operation: body.offset for body in bodies if isinstance(body, ProduceCompleted)}
    offsets = [stored[operation] for operation in sent]
    assert offsets == sorted(offsets)
    assert len(offsets) == 40


def test_a_hold_that_nothing_met_has_no_receipt(run: Run) -> None:
    cluster, _ = parts(run)
    with run.faults.hold(cluster.brokers[0], cluster.brokers[1], 999) as held:
        assert not held.await_receipt(limit_ms=50).true
    assert list(run.finish().missed) == [held.fault_id]


@pytest.mark.parametrize("target_dies", [False, True], ids=["lives", "dies"])
def test_the_fault_conforms(run: Run, target_dies: bool) -> None:
    cluster, clients = parts(run)
    clients.produce("orders")
    leader, follower = cluster.leader("orders", 0), cluster.followers("orders", 0)[0]
    fault = hold(follower.name, leader.name, "Fetch", first=2)
    kit.check_injection(run, fault, target_dies=target_dies)


def test_a_held_request_reaches_a_process_that_was_restarted_meanwhile(run: Run) -> None:
    cluster, clients = parts(run)
    clients.produce("orders")
    leader, follower = cluster.leader("orders", 0), cluster.followers("orders", 0)[0]
    held = run.faults.hold(follower, leader, "Fetch", topic="orders")
    assert held.await_receipt().true
    with run.faults.kill(leader):
        cluster.eventually(leader.dead)
    cluster.eventually(leader.active)
    healed = held.heal()
    assert healed.true, healed.evidence
    assert "1 redelivered over a new connection" in healed.evidence
    cluster.eventually(cluster.recovered)
    run.finish().check(())
