"""What one broker does with the answers to its heartbeats, without a cluster."""

from __future__ import annotations

import pytest
from quorum_bench import ROW, TERM, QuorumBroker

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import SnapshotStored


@pytest.fixture
def broker() -> QuorumBroker:
    return QuorumBroker().activates()


def beats_in_flight(broker: QuorumBroker) -> int:
    return sum(one.channel == "heartbeat" for one in broker.node.calls)


def test_a_heartbeat_to_a_controller_that_is_not_active_is_sent_again_before_the_interval_is_over(
    broker: QuorumBroker,
) -> None:
    """The lease runs on meanwhile."""
    broker.node.passes(0.3)
    assert beats_in_flight(broker) == 1
    broker.beats(error=Error.NOT_CONTROLLER, controller=(-1, TERM))
    broker.node.passes(0.049)
    assert beats_in_flight(broker) == 0
    broker.node.passes(0.001)
    assert beats_in_flight(broker) == 1
    assert broker.state is BrokerState.ACTIVE, "the controller that granted the lease may be alive"


@pytest.mark.parametrize(
    "error", [Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED], ids=["stale", "unknown"]
)
def test_a_broker_whose_registration_is_gone_registers_again_before_the_interval_is_over(
    broker: QuorumBroker, error: Error
) -> None:
    """QC-15. It serves no client until then."""
    broker.node.passes(0.3)
    broker.beats(error=error)
    assert broker.state is BrokerState.FENCED
    broker.node.passes(0.049)
    assert beats_in_flight(broker) == 0
    broker.node.passes(0.001)
    sent = broker.node.called("heartbeat").message
    assert isinstance(sent, m.BrokerHeartbeatRequest)
    assert sent.broker_epoch == -1


def test_a_broker_takes_a_snapshot_as_it_registers_and_none_for_a_later_heartbeat(
    broker: QuorumBroker,
) -> None:
    """REG-04. It is not due for each record that a fenced broker learns."""
    stored = [one.offset for one in broker.node.noted(SnapshotStored)]
    assert stored == [0]
    broker.node.passes(5)
    assert broker.state is BrokerState.FENCED
    for _ in range(3):
        broker.commits(ROW)
        broker.beats(BrokerState.FENCED, epoch=1)
        broker.node.passes(0.4)
    assert [one.offset for one in broker.node.noted(SnapshotStored)] == stored
    assert sum(isinstance(one, e.StoreSnapshot) for one in broker.node.effects) == len(stored)
