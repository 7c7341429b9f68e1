"""Which partition a test is about, where the controller is one of the brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from fencepost_kafka.testing import KafkaCluster
from fencepost_suites.common.places import apart_from_controller, led_elsewhere

LEADERS = (1, 2, 3)
FOLLOWERS = ((2,), (1,), (2,))


def cluster(*controllers: int) -> KafkaCluster:
    """Three partitions: broker 1 leads the first one, and follows in the second one."""

    def node(number: int) -> SimpleNamespace:
        return SimpleNamespace(id=number)

    made = SimpleNamespace(
        controllers=[node(one) for one in controllers],
        active_controller=node(controllers[0] if controllers else -1),
        leader=lambda topic, index: node(LEADERS[index]),
        followers=lambda topic, index: [node(one) for one in FOLLOWERS[index]],
    )
    return cast(KafkaCluster, made)


def test_a_partition_that_the_controller_does_not_lead_is_chosen() -> None:
    assert led_elsewhere(cluster(1), "orders") == 1
    assert led_elsewhere(cluster(101), "orders") == 0
    assert led_elsewhere(cluster(), "orders") == 0


def test_a_partition_of_which_the_controller_has_no_replica_is_chosen() -> None:
    assert apart_from_controller(cluster(1), "orders", 3) == 2
    assert apart_from_controller(cluster(101), "orders", 3) == 0
    assert apart_from_controller(cluster(), "orders", 3) == 0
