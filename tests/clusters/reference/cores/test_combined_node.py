"""One process that is a controller and a broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from quorum_bench import SECOND, QuorumNode

from fencepost import NodeStopped
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import BrokerStateChanged, MetadataCommitted, RequestRefused


def alone(policies: Policies | None = None) -> QuorumNode:
    """The only voter of the quorum, which is its only broker, too."""
    node = QuorumNode(
        {
            "process.roles": "broker,controller",
            "broker.id": "1",
            "controller.id": "101",
            "controller.listeners": "CONTROLLER",
            "controller.connect": "101@broker-1:9093",
            "registration.lease.timeout.ms": "3000",
            "registration.heartbeat.interval.ms": "300",
        },
        Site(
            "broker-1",
            "broker-1",
            {"CLIENT": 9092, "REPLICATION": 9091, "CONTROLLER": 9093},
            "broker-1#1",
        ),
        policies=policies,
    )
    node.give(e.Tick())
    node.give(e.Recovered({}, {}))
    node.now_ns += 30 * SECOND
    node.passes(5)
    return node


def test_the_controller_alone_stores_the_metadata_that_both_read() -> None:
    node = alone()
    assert [one.new for one in node.noted(BrokerStateChanged)] == ["FENCED", "ACTIVE"]
    stored = [one for one in node.effects if isinstance(one, e.Append) and one.log == LOG_NAME]
    assert stored
    assert set(Counter(one.data for one in stored).values()) == {1}
    committed = (one for one in node.effects if isinstance(one, e.Note))
    first = next(one for one in committed if isinstance(one.body, MetadataCommitted))
    assert node.effects.index(stored[0]) < node.effects.index(first), "it stores what it commits"


def test_its_controller_ends_after_its_broker_with_one_word_of_both() -> None:
    node = alone()
    node.give(e.ShutdownAsked())
    node.passes(10)
    assert node.exited
    assert [one.new for one in node.noted(BrokerStateChanged)][-1] == "SHUTDOWN"
    assert [one.reason for one in node.noted(NodeStopped)] == ["asked to stop"]
    assert sum(isinstance(one, e.Exit) for one in node.effects) == 1


def test_its_broker_asks_again_when_its_controller_closes_a_request_without_an_answer() -> None:
    """As over a connection. A controller closes what it does not admit."""
    healthy = Policies()
    registration = replace(
        healthy.controller.registration, is_admitted=lambda rights, principal: False
    )
    controller = replace(healthy.controller, registration=registration)
    node = alone(replace(healthy, controller=controller))
    assert node.noted(BrokerStateChanged) == []
    before = len(node.noted(RequestRefused))
    node.passes(1)
    assert len(node.noted(RequestRefused)) > before > 0


def test_every_request_of_a_client_is_answered_though_its_nodes_ask_each_other() -> None:
    """Requests of both kinds have numbers."""
    node = alone()
    for _ in range(200):
        assert len(node.asks("CLIENT", m.MetadataRequest(topics=None))) == 1
