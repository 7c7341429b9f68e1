"""Decisions of the plane over ZooKeeper at their borders."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.legacy.core import policies, znodes
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_clusters.reference.wire.legacy import BrokerState

PARTITION = Partition(
    topic_id=UUID(int=1), index=0, replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=4
)


@pytest.mark.parametrize(
    ("isr", "live", "valid"),
    [
        ((1, 2, 3), (2, 3), True),
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (1, 2), False),
        ((2, 3), (1, 2, 3), False),
        ((1, 1), (1, 2, 3), False),
        ((1, 4), (1, 4), False),
        ((1,), (), True),
    ],
)
def test_an_isr_has_its_leader_and_adds_only_live_replicas(
    isr: tuple[int, ...], live: tuple[int, ...], valid: bool
) -> None:
    """HB-20."""
    assert policies.is_valid_isr(PARTITION, isr, live) is valid


@pytest.mark.parametrize(
    ("state", "answered", "stopping", "expected"),
    [
        (OwnState.STARTING, BrokerState.ACTIVE, False, OwnState.ACTIVE),
        (OwnState.ACTIVE, BrokerState.STOPPING, True, OwnState.STOPPING),
        (OwnState.STARTING, BrokerState.INACTIVE, False, OwnState.STARTING),
        (OwnState.ACTIVE, BrokerState.INACTIVE, False, OwnState.FENCED),
    ],
)
def test_a_brokers_state_follows_from_the_answer_and_from_whether_it_stops(
    state: OwnState, answered: BrokerState, stopping: bool, expected: OwnState
) -> None:
    """HB-04, HB-08."""
    assert policies.state_when_accepted(state, answered, stopping) is expected


@pytest.mark.parametrize(
    ("name", "host", "port", "valid"),
    [
        ("REPLICATION", "broker-2", 1, True),
        ("REPLICATION", "broker-2", 65535, True),
        ("REPLICATION", "broker-2", 0, False),
        ("REPLICATION", "broker-2", 65536, False),
        ("REPLICATION", "", 9094, False),
        ("CLIENT", "broker-2", 9094, False),
    ],
)
def test_a_registration_has_an_address_only_if_it_can_be_dialled(
    name: str, host: str, port: int, valid: bool
) -> None:
    """HB-15."""
    info = znodes.BrokerInfo(5, (("CLIENT", "broker-2", 9092), (name, host, port)))
    assert info.endpoint("REPLICATION") == ((host, port) if valid else None)
