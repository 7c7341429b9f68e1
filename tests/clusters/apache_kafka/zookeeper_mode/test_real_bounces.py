"""KIP-380's bounces on real brokers: what 2.1.1, the last release before it, does wrong, and what
3.9.2 refuses.

Each act forces one interleaving, with the same words for both versions. On 2.1.1, the named process
violates the clauses that forbid it; on 3.9.2 they are exercised and hold. The acts share a cluster,
but for the one that needs other settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from zookeeper_servers import available

from fencepost import Condition, Shape, View
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerRegistered,
    ControlledShutdownAnswered,
    ControlRequestAnswered,
    KafkaView,
)
from fencepost_kafka.facade.node import KafkaNode

pytestmark = [pytest.mark.real, available]
EARLY, LATE = "2.1.1", "3.9.2"
PARTITIONS = 3
LONG_SESSION_MS = "30000"
"""A controller that is paused while a broker restarts keeps its session."""


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


def both(by_day: str) -> pytest.MarkDecorator:
    """Both versions, of which one is tried each night only."""
    night = {EARLY, LATE} - {by_day}
    each = {one: [brought(one), *([pytest.mark.nightly] * (one in night))] for one in (EARLY, LATE)}
    return pytest.mark.parametrize(
        "version", [pytest.param(one, marks=marks) for one, marks in each.items()]
    )


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@contextmanager
def running(plugins: Plugins, folder: Path, version: str, **settings: str) -> Iterator[Run]:
    """A cluster with a topic of which every broker has a replica. No leadership returns to its
    preferred replica: such an election may repair a stopped replica at once."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    shape = Shape(settings={"auto.leader.rebalance.enable": "false", **named})
    spec = RunSpec(plugins.system(f"apache/zookeeper@{version}"), shape)
    with Run.start(spec, plugins, RunFolder.create(folder)) as run:
        run.clients.create_topic("orders", partitions=PARTITIONS)
        # Else the controller sends again what a broker that stops has not answered.
        for broker in run.cluster.brokers:
            run.cluster.eventually(knows(EventLog(run.runtime), broker, "orders-0"))
        run.cluster.eventually(run.cluster.recovered)
        yield run


def knows(history: EventLog, broker: KafkaNode, place: str) -> Condition:
    """The broker has answered an UpdateMetadata of that partition, which comes after its roles."""
    return history.event_where(
        ControlRequestAnswered,
        lambda body: (
            body.api == "UpdateMetadata"
            and body.broker_id == broker.id
            and place in body.partitions
        ),
        f"{broker} to know {place}",
    )


def others(run: Run) -> Sequence[KafkaNode]:
    """The brokers that are not the controller."""
    controller = run.cluster.active_controller
    return [broker for broker in run.cluster.brokers if broker.id != controller.id]


def registered_anew(history: EventLog, broker: KafkaNode) -> Condition:
    """One more process of the broker registers than those that have done so."""
    known = sum(body.broker_id == broker.id for body in history.of(BrokerRegistered))

    def such(_: BrokerRegistered) -> bool:
        return sum(one.broker_id == broker.id for one in history.of(BrokerRegistered)) > known

    return history.event_where(BrokerRegistered, such, f"{broker} to register anew")


def leads_alone(broker: KafkaNode) -> Condition:
    """The ISR of a partition has that broker only."""

    def holds(view: View) -> bool:
        known = view.of(KafkaView).partitions.values()
        return any(one.isr == (broker.id,) for one in known)

    return Condition(f"{broker} to lead a partition alone", holds)


def follows(broker: KafkaNode, leader: KafkaNode) -> Condition:
    """The broker is in the ISR of each of its partitions that the other one leads."""

    def holds(view: View) -> bool:
        known = view.of(KafkaView).partitions.values()
        led = [one for one in known if one.leader == leader.id and broker.id in one.replicas]
        return bool(led) and all(broker.id in one.isr for one in led)

    return Condition(f"{broker} to follow {leader}", holds)


def received(history: EventLog, process: str, api: str, more: int = 0) -> Condition:
    """That process has answered more such requests than that."""

    def such(_: ControlRequestAnswered) -> bool:
        return sum(one.api == api for one in history.of(ControlRequestAnswered, process)) > more

    return history.event_where(ControlRequestAnswered, such, f"{process} to answer a {api}")


def once_more(history: EventLog, process: str, api: str) -> Condition:
    """That process answers one more such request than it has."""
    known = sum(one.api == api for one in history.of(ControlRequestAnswered, process))
    return received(history, process, api, known)


def restart(run: Run, broker: KafkaNode) -> str:
    """Ends the broker in order, and waits until its next process serves; that process."""
    anew = registered_anew(EventLog(run.runtime), broker)
    run.faults.bounce(broker, after_ms=0, signal="SIGTERM")
    run.cluster.eventually(anew)
    run.cluster.eventually(broker.active)
    return broker.process(run.runtime.view)


def repair(run: Run, broker: KafkaNode) -> None:
    """Restarts a broker that has obeyed an old request."""
    if run.spec.system.name.endswith(EARLY):
        restart(run, broker)


def judged(result: RunResult, version: str, broken: Sequence[Mapping[str, str]]) -> None:
    """Before KIP-380, each clause is violated by that process; since then each holds, and so does
    every other."""
    clauses = {clause for act in broken for clause in act}
    if version == LATE:
        result.check(sorted(clauses))
        return
    verdicts = {clause: result.judgement.verdicts[clause] for clause in clauses}
    by = {(c, one.at.process) for c, v in verdicts.items() for one in v.violations}
    assert by >= {violated for act in broken for violated in act.items()}, verdicts


@both(by_day=EARLY)
def test_requests_from_before_a_bounce_are_obeyed_before_kip_380_and_refused_since(
    tmp_path: Path, plugins: Plugins, version: str
) -> None:
    with running(plugins, tmp_path / "run", version) as run:
        broken = [
            a_stop_replica_of_a_controlled_shutdown_reaches_the_restarted_broker(run),
            a_controlled_shutdown_reaches_the_controller_after_the_restart(run),
            a_leader_and_isr_from_before_the_start_reaches_the_new_process(run),
        ]
        a_request_of_a_deposed_controller_is_refused(run)
        result = run.finish()
    judged(result, version, broken)
    assert result.judgement.verdicts["BE-08"].verdict is Outcome.HOLDS


def a_stop_replica_of_a_controlled_shutdown_reaches_the_restarted_broker(
    run: Run,
) -> Mapping[str, str]:
    (victim, other), history = others(run), EventLog(run.runtime)
    run.clients.create_topic("alone", partitions=6, replication=2)
    held = run.faults.hold(run.cluster.active_controller, victim, "StopReplica", topic="orders")
    with held:
        # Nothing can take over what it leads alone: it stays until the request is held.
        with run.faults.cut(other, victim):
            # A follower that lacks nothing stays in the ISR.
            run.clients.produce("alone", acks=1, count=60, rate=30)
            run.cluster.eventually(leads_alone(victim))
            restarted = restart(run, victim)
            assert held.await_receipt().true
        run.cluster.eventually(run.cluster.recovered)
        arrived = once_more(history, restarted, "StopReplica")
    run.cluster.eventually(arrived)
    repair(run, victim)
    run.cluster.eventually(run.cluster.recovered)
    return {"BE-03": restarted, "BE-02": restarted}


def a_controlled_shutdown_reaches_the_controller_after_the_restart(run: Run) -> Mapping[str, str]:
    controller, victim, history = (
        run.cluster.active_controller,
        others(run)[0],
        EventLog(run.runtime),
    )
    with run.faults.hold(victim, controller, "ControlledShutdown") as held:
        restart(run, victim)
        assert held.await_receipt().true
        run.cluster.eventually(run.cluster.recovered)
        known = len(history.of(ControlledShutdownAnswered))
    run.cluster.eventually(
        history.event_where(
            ControlledShutdownAnswered,
            lambda _: len(history.of(ControlledShutdownAnswered)) > known,
            "the old ControlledShutdown to be answered",
        )
    )
    repair(run, victim)
    run.cluster.eventually(run.cluster.recovered)
    return {"BE-04": controller.process(run.runtime.view)}


def a_leader_and_isr_from_before_the_start_reaches_the_new_process(run: Run) -> Mapping[str, str]:
    controller, (victim, other) = run.cluster.active_controller, others(run)
    history = EventLog(run.runtime)
    # The requests for its new process wait behind the old one, which so may be its first.
    with run.faults.hold(controller, victim, "LeaderAndIsr", first=0) as held:
        restart(run, other)
        assert held.await_receipt().true
        restarted = restart(run, victim)
        arrived = once_more(history, restarted, "LeaderAndIsr")
    run.cluster.eventually(arrived)
    # On 2.1.1 the old request may leave a follower that fetches no more, on either side. A fetcher
    # ends there with a NullPointerException if its partition changes hands while it truncates.
    for broker in (victim, other):
        repair(run, broker)
        run.cluster.eventually(follows(broker, controller))
    run.cluster.eventually(run.cluster.recovered)
    return {"BE-07": restarted, "BE-02": restarted}


def a_request_of_a_deposed_controller_is_refused(run: Run) -> None:
    old, victim = run.cluster.active_controller, others(run)[0]
    history = EventLog(run.runtime)
    with run.faults.hold(old, victim, "UpdateMetadata") as held:
        run.clients.create_topic("payments")
        assert held.await_receipt().true
        restart(run, old)
        run.cluster.eventually(run.cluster.another_controller(old))
        run.cluster.eventually(run.cluster.recovered)
    run.cluster.eventually(
        history.event_where(
            ControlRequestAnswered,
            lambda body: body.error == "STALE_CONTROLLER_EPOCH",
            "the old controller's request to be refused",
        )
    )


@both(by_day=LATE)
def test_a_broker_that_restarts_while_the_controller_looks_away(
    tmp_path: Path, plugins: Plugins, version: str
) -> None:
    with running(
        plugins,
        tmp_path / "run",
        version,
        controlled_shutdown_enable="false",
        zookeeper_session_timeout_ms=LONG_SESSION_MS,
    ) as run:
        controller, victim = run.cluster.active_controller, others(run)[0]
        history = EventLog(run.runtime)
        known = len(history.of(BrokerChangeHandled))
        with run.faults.pause(controller):
            restarted = restart(run, victim)
        run.cluster.eventually(
            history.event_where(
                BrokerChangeHandled,
                lambda _: len(history.of(BrokerChangeHandled)) > known,
                "the controller to compare registrations",
            )
        )
        # If the broker is never initialised: longer than the rule's bound and what a stall of this
        # machine adds to it.
        asked = received(history, restarted, "LeaderAndIsr")
        initialised = run.cluster.comes_to(asked, within_ms=20_000)
        assert initialised == (version == LATE)
        restart(run, victim)
        result = run.finish()
    judged(result, version, [{"BE-05": restarted}])
    if version == LATE:
        result.check(("BE-06",))
