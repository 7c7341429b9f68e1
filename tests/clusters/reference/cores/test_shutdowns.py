"""When a broker over ZooKeeper that was asked to stop may end (HB-05)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost_clusters.reference.core.node.effects import Call, Instant, Note
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.legacy.core import settings
from fencepost_clusters.reference.legacy.core.broker.lifecycle import Lifecycle
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import BrokerStateChanged

PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "zookeeper-1:2181",
    "controlled.shutdown.timeout.ms": "5000",
}
LED = (w.RemainingPartition(topic_name="orders", partition_index=0),)


def at(ms: int) -> Instant:
    return Instant(ms * 1_000_000, ms)


class Stopping:
    """Broker 1 was asked to stop and, as far as it knows, leads no partition."""

    def __init__(self, protocol: int = 2, *, active: bool = False) -> None:
        self.out = Outbox()
        self.reasons: list[str] = []
        """The reasons of its changes of state by heartbeats."""
        self.lifecycle = Lifecycle(
            settings.read(PROPERTIES | {"inter.broker.protocol": str(protocol)}),
            lambda: (2, ("broker-2", 9094)),
            LegacyBrokerPolicies(),
            self.out,
        )
        self.lifecycle.registered(20, None, at(0))
        if active:
            self.lifecycle.tick(at(0), 0)
            self.beat(w.BrokerState.ACTIVE, 0)
        self.lifecycle.stop(at(0))

    def beat(self, answered: w.BrokerState, ms: int) -> None:
        """Answers the heartbeat."""
        (call,) = (
            one
            for one in self.out.drain()
            if isinstance(one, Call) and isinstance(one.message, w.MetadataHeartbeatRequest)
        )
        answer = w.MetadataHeartbeatResponse(error_code=Error.NONE, current_state=answered)
        self.lifecycle.answered(call.call_id, answer, at(ms))
        self.reasons += [
            one.body.reason
            for one in self.out.drain()
            if isinstance(one, Note) and isinstance(one.body, BrokerStateChanged)
        ]

    def ended(self, ms: int) -> bool:
        self.lifecycle.tick(at(ms), 0)
        return self.lifecycle.ended

    def answer(self, error: Error, remaining: Sequence[w.RemainingPartition], ms: int) -> None:
        (call,) = (one for one in self.out.drain() if isinstance(one, Call))
        answer = w.ControlledShutdownResponse(
            error_code=error, remaining_partitions=tuple(remaining)
        )
        self.lifecycle.answered(call.call_id, answer, at(ms))


def test_a_broker_ends_once_the_controller_has_left_it_nothing() -> None:
    """The LeaderAndIsr that names its partitions may arrive later."""
    broker = Stopping()
    assert not broker.ended(1)
    broker.answer(Error.NONE, LED, 10)
    assert not broker.ended(100)
    broker.answer(Error.NONE, (), 110)
    assert broker.ended(200)


@pytest.mark.parametrize("error", [Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH])
def test_a_refused_shutdown_says_nothing_of_what_is_left(error: Error) -> None:
    broker = Stopping()
    assert not broker.ended(1)
    broker.answer(error, (), 10)
    assert not broker.ended(100)
    assert broker.ended(5000)


def test_a_broker_with_heartbeats_is_stopping_once_the_controller_knows_it() -> None:
    """HB-14."""
    broker = Stopping(protocol=3, active=True)
    assert not broker.ended(1)
    assert broker.lifecycle.state is OwnState.ACTIVE
    broker.beat(w.BrokerState.STOPPING, 2)
    assert broker.lifecycle.state is OwnState.STOPPING
    assert broker.reasons[-2:] == ["unfenced", "stopping"]


def test_a_broker_that_leads_nothing_when_its_time_is_up_was_not_ended_by_the_limit() -> None:
    broker = Stopping()
    assert not broker.ended(1)
    broker.answer(Error.NONE, (), 10)
    assert broker.ended(5000)
    reasons = [
        one.body.reason
        for one in broker.out.drain()
        if isinstance(one, Note) and isinstance(one.body, BrokerStateChanged)
    ]
    assert reasons == ["shutdown_granted"]
