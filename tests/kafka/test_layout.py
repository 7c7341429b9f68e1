"""Ids of nodes: one space for brokers and controllers, however many brokers there are."""

from __future__ import annotations

import pytest

from fencepost import Shape, UsageError
from fencepost.supervision.addresses import check_layout
from fencepost_kafka import Role, kafka_shape
from fencepost_kafka.layout import Ports, lay_out
from fencepost_kafka.vocabulary import with_spare_broker


@pytest.mark.parametrize(
    ("brokers", "first"), [(1, 101), (60, 101), (99, 101), (100, 201), (200, 301), (400, 501)]
)
def test_controllers_begin_where_no_broker_reaches(brokers: int, first: int) -> None:
    layout = lay_out(with_spare_broker(kafka_shape(brokers=brokers)), Ports())
    controllers = [slot.node_id for slot in layout.of(Role.CONTROLLER)]
    assert controllers == [first, first + 1, first + 2]
    assert not {slot.node_id for slot in layout.of(Role.BROKER)} & set(controllers)


def test_a_combined_process_has_the_id_of_its_controller() -> None:
    layout = lay_out(kafka_shape(brokers=120, combined=3), Ports())
    assert [slot.id_as(Role.CONTROLLER) for slot in layout.of(Role.BROKER)][:3] == [201, 202, 203]


def test_the_loopback_network_has_a_limit_and_names_it() -> None:
    check_layout(lay_out(kafka_shape(brokers=122), Ports()))
    with pytest.raises(UsageError, match="has slots 1 to 250: take fewer nodes, or the simulator"):
        check_layout(lay_out(kafka_shape(brokers=124), Ports()))


@pytest.mark.parametrize("shape", [Shape({"broker": 401}), Shape({"broker": 0})])
def test_more_brokers_than_a_layout_has_are_refused(shape: Shape) -> None:
    with pytest.raises(UsageError, match="a cluster has 1 to 400 brokers"):
        lay_out(shape, Ports())
