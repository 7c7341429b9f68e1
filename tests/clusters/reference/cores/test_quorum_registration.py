"""What an active controller answers to the heartbeats of brokers, without a cluster."""

from __future__ import annotations

import uuid

import pytest
from quorum_bench import CONTROLLER, QuorumController

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.policies import (
    has_caught_up_with_metadata,
    is_too_far_behind,
)
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import HeartbeatAnswered, LeaseExpired, RequestRefused

ACTIVE, FENCED, SHUTDOWN = BrokerState.ACTIVE, BrokerState.FENCED, BrokerState.SHUTDOWN


@pytest.fixture
def controller() -> QuorumController:
    """It is a quorum of one; brokers 1 and 2 are active."""
    return QuorumController(CONTROLLER).elected().activates(1, 2)


def beaten(
    controller: QuorumController, state: BrokerState, target: BrokerState = ACTIVE, broker: int = 1
) -> tuple[Error, BrokerState, int]:
    """The error, the state and the epoch in the answer to a heartbeat."""
    (reply,) = controller.beat(broker, state, target)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    found = reply.message
    return Error(found.error_code), BrokerState.read(found.next_state), found.broker_epoch


def create(controller: QuorumController, replicas: tuple[int, ...]) -> None:
    placed = m.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = m.CreatableTopic(
        name="orders", num_partitions=-1, replication_factor=-1, assignments=(placed,)
    )
    controller.asks(m.CreateTopicsRequest(topics=(topic,), timeout=1000))


@pytest.mark.parametrize("state", [ACTIVE, FENCED])
def test_a_broker_that_hands_over_before_its_shutdown_keeps_the_state_that_it_has(
    controller: QuorumController, state: BrokerState
) -> None:
    """QC-18. One that fenced itself would need another epoch to be active (QC-20)."""
    create(controller, (1, 2))
    epoch = controller.core.committed.image.brokers[1].epoch
    assert beaten(controller, state, SHUTDOWN) == (Error.NONE, state, epoch)
    one = controller.core.committed.image.partition("orders", 0)
    assert one is not None
    assert (one.leader, one.isr) == (2, (1, 2))
    assert beaten(controller, state, SHUTDOWN) == (Error.NONE, SHUTDOWN, epoch)
    assert controller.core.committed.image.live() == (2,)
    one = controller.core.committed.image.partition("orders", 0)
    assert one is not None
    assert one.isr == (2,)


def test_a_broker_hands_its_leaderships_over_to_the_one_with_the_lowest_id_too() -> None:
    """QC-18. 0 is an id like any other."""
    controller = QuorumController(CONTROLLER).elected().activates(0, 1)
    create(controller, (1, 0))
    assert beaten(controller, ACTIVE, SHUTDOWN)[:2] == (Error.NONE, ACTIVE)
    one = controller.core.committed.image.partition("orders", 0)
    assert one is not None
    assert one.leader == 0


def test_a_shutdown_that_was_granted_is_granted_again_without_a_record(
    controller: QuorumController,
) -> None:
    """The answer may have been lost."""
    beaten(controller, ACTIVE, SHUTDOWN)
    end = controller.core.log.end
    assert beaten(controller, ACTIVE, SHUTDOWN)[1] is SHUTDOWN
    assert controller.core.log.end == end


def test_a_register_that_is_repeated_gets_the_same_epoch(controller: QuorumController) -> None:
    """Its answer may have been lost."""
    end, image = controller.core.log.end, controller.core.committed.image
    again = m.BrokerHeartbeatRequest(
        target_state=ACTIVE,
        broker_id=1,
        broker_epoch=-1,
        lease_start_time_ms=0,
        cur_metadata_offset=-1,
        listeners=(),
        incarnation_id=uuid.UUID(int=1),
        current_state=BrokerState.INITIAL,
        features=(m.Feature(name="metadata.format", min_level=1, max_level=2),),
    )
    (reply,) = controller.asks(again)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.error_code == Error.NONE
    assert reply.message.broker_epoch == image.brokers[1].epoch
    assert controller.core.log.end == end


def test_a_broker_with_the_lowest_epoch_registers_only_if_it_asks_for_it(
    controller: QuorumController,
) -> None:
    """0 is an epoch like any other: the broker learns that its registration is gone."""
    stale = m.BrokerHeartbeatRequest(
        target_state=ACTIVE,
        broker_id=3,
        broker_epoch=0,
        lease_start_time_ms=0,
        cur_metadata_offset=-1,
        listeners=(),
        incarnation_id=uuid.UUID(int=3),
        current_state=ACTIVE,
        features=(m.Feature(name="metadata.format", min_level=1, max_level=2),),
    )
    (reply,) = controller.asks(stale)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.error_code == Error.BROKER_ID_NOT_REGISTERED
    assert 3 not in controller.core.committed.image.brokers


@pytest.mark.parametrize(("incarnation", "live"), [(1, (2,)), (77, (1, 2))])
def test_a_broker_that_is_too_old_for_the_metadata_loses_its_lease_but_ends_no_others(
    incarnation: int, live: tuple[int, ...]
) -> None:
    """QC-15."""
    settings = {"metadata.format.level": "2"}
    controller = QuorumController(CONTROLLER, settings=settings).elected().activates(1, 2)
    old = m.BrokerHeartbeatRequest(
        target_state=ACTIVE,
        broker_id=1,
        broker_epoch=controller.core.committed.image.brokers[1].epoch,
        lease_start_time_ms=0,
        cur_metadata_offset=controller.core.log.end - 1,
        listeners=(),
        incarnation_id=uuid.UUID(int=incarnation),
        current_state=ACTIVE,
        features=(m.Feature(name="metadata.format", min_level=1, max_level=1),),
    )
    for _ in range(2):
        end = controller.core.log.end
        (reply,) = controller.asks(old)
        assert isinstance(reply.message, m.BrokerHeartbeatResponse)
        assert reply.message.error_code == Error.UNSUPPORTED_VERSION
        assert controller.core.committed.image.live() == live
    assert controller.core.log.end == end, "it is fenced once"


def test_an_active_broker_may_lack_as_many_records_as_the_setting_says() -> None:
    """QC-15."""
    assert not is_too_far_behind(committed=10, replayed=5, most=5)
    assert is_too_far_behind(committed=11, replayed=5, most=5)


@pytest.mark.parametrize(
    ("newest", "replayed", "ready"), [(10, 5, True), (11, 5, False), (10, 4, False), (4, 4, False)]
)
def test_a_broker_becomes_active_with_its_registration_and_nearly_all_of_the_metadata(
    newest: int, replayed: int, ready: bool
) -> None:
    """REG-04."""
    assert has_caught_up_with_metadata(newest, replayed, registered_at=5, most=5) is ready


def test_a_request_without_cluster_action_rights_has_no_effect() -> None:
    """QC-04."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.users": "admin:secret",
        "super.users": "admin",
        "sasl.username": "admin",
        "sasl.password": "secret",
    }
    controller = QuorumController(CONTROLLER, settings=settings).elected()
    end = controller.core.log.end
    topic = m.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    (reply,) = controller.asks(m.CreateTopicsRequest(topics=(topic,), timeout=1000))
    assert isinstance(reply.message, m.CreateTopicsResponse)
    assert reply.message.topics[0].error_code == Error.CLUSTER_AUTHORIZATION_FAILED
    assert controller.beat(1, BrokerState.INITIAL) == []
    assert isinstance(controller.node.effects[-1], e.Close)
    assert [one.api for one in controller.node.noted(RequestRefused)] == [
        "CreateTopics",
        "BrokerHeartbeat",
    ]
    assert controller.core.log.end == end


def test_the_answer_to_a_heartbeat_names_the_incarnation_of_that_heartbeat(
    controller: QuorumController,
) -> None:
    one, two = uuid.UUID(int=1), uuid.UUID(int=7)
    for incarnation in (one, one, two, None, one):
        controller.asks(
            m.BrokerHeartbeatRequest(
                target_state=ACTIVE,
                broker_id=1,
                broker_epoch=controller.core.committed.image.brokers[1].epoch,
                lease_start_time_ms=0,
                cur_metadata_offset=controller.core.log.end - 1,
                listeners=(),
                incarnation_id=incarnation,
                current_state=ACTIVE,
            )
        )
    said = [event.incarnation for event in controller.node.noted(HeartbeatAnswered)[-5:]]
    assert said == [str(one), str(one), str(two), "", str(one)]


def test_a_silent_broker_is_fenced_when_its_lease_ends_and_not_before() -> None:
    """QC-13, QC-14."""
    lease = {"registration.lease.timeout.ms": "3000", "registration.heartbeat.interval.ms": "300"}
    controller = QuorumController(CONTROLLER, settings=lease).elected().activates(1, 2)
    controller.node.passes(1)
    controller.beat(2)
    controller.node.passes(1.999)
    assert controller.core.committed.image.live() == (1, 2)
    controller.node.passes(0.001)
    assert [one.broker_id for one in controller.node.noted(LeaseExpired)] == [1]
    controller.node.passes(1)
    assert [one.broker_id for one in controller.node.noted(LeaseExpired)] == [1, 2]


@pytest.mark.parametrize(("broker", "error"), [(0, 0), (CONTROLLER, 42)])
def test_a_broker_registers_under_any_id_that_is_no_controllers(broker: int, error: int) -> None:
    """QC-03: there is one space of ids, from 0 on."""
    controller = QuorumController(CONTROLLER).elected()
    (reply,) = controller.beat(broker, BrokerState.INITIAL)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.error_code == error
    assert list(controller.core.committed.image.brokers) == ([0] if error == 0 else [])


def beat(process: int, epoch: int = -1) -> m.BrokerHeartbeatRequest:
    """A heartbeat of a process of broker 1, which wants to be registered unless it has an epoch."""
    return m.BrokerHeartbeatRequest(
        target_state=BrokerState.ACTIVE,
        broker_id=1,
        broker_epoch=epoch,
        lease_start_time_ms=0,
        cur_metadata_offset=-1,
        listeners=(),
        incarnation_id=uuid.UUID(int=process),
        current_state=BrokerState.INITIAL,
        features=(m.Feature(name="metadata.format", min_level=1, max_level=2),),
    )


@pytest.mark.parametrize(
    ("process", "error"),
    [(7, Error.STALE_BROKER_EPOCH), (1, Error.DUPLICATE_BROKER_REGISTRATION)],
    ids=["the registered one", "the one before"],
)
def test_a_heartbeat_of_an_earlier_registration_says_whether_its_process_lost_the_id(
    process: int, error: Error
) -> None:
    """QC-15, QC-19: a process that has lost its id may not register again."""
    controller = QuorumController(CONTROLLER).elected().activates(1)
    former = controller.core.committed.image.brokers[1].epoch
    controller.asks(beat(7))
    assert controller.core.committed.image.brokers[1].incarnation == uuid.UUID(int=7)
    (reply,) = controller.asks(beat(process, former))
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.error_code == error


def test_a_granted_heartbeat_is_refused_if_another_process_took_the_id_before_its_commit() -> None:
    """QC-19."""
    controller = QuorumController().elected().activates(1)
    controller.beat(2, BrokerState.INITIAL)  # a change that the next answers wait for
    assert controller.beat(1) == []
    assert controller.asks(beat(99)) == []
    errors = [
        one.message.error_code
        for one in controller.followed()
        if isinstance(one.message, m.BrokerHeartbeatResponse)
    ]
    assert errors == [Error.NONE, Error.DUPLICATE_BROKER_REGISTRATION, Error.NONE]
