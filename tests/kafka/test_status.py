"""What `fencepost status` shows of a Kafka cluster, by the view alone."""

from __future__ import annotations

from collections import Counter

from tests.kafka.kafka_views import kafka_view

from fencepost import Layout, Slot
from fencepost_kafka.status import status
from fencepost_kafka.view import PartitionView

LAYOUT = Layout(
    (
        Slot("controller-1", "controller", 101, 1),
        Slot("broker-1", "broker", 1, 2),
        Slot("broker-2", "broker", 2, 3),
        Slot("broker-3", "broker", 3, 4, spare=True),
    ),
    (),
)


def partition(leader: int, serving: int | None, **more: int) -> PartitionView:
    return PartitionView(
        **{"offset": 1, "leader_epoch": 4, "isr": (1, 2), "replicas": (1, 2, 3)},
        **{"leader": leader, "serving": serving, "serving_epoch": 4, **more},
    )


def test_partitions_have_their_leader_epoch_isr_and_lag() -> None:
    view = kafka_view(
        partitions={
            ("orders", 0): partition(1, 1, log_end=9, high_watermark=7),
            ("orders", 1): partition(2, 1),
            ("audit", 0): partition(-1, None),
            ("__consumer_offsets", 0): partition(1, 1),
        }
    )
    view.kinds["replica.high_watermark"] = 1
    (table,) = status(view, LAYOUT)
    assert table.title == "partitions, without 1 of Kafka's own topics"
    assert table.rows == (
        ("audit-0", None, 4, False, (1, 2), (1, 2, 3), 0, 0, 0),
        ("orders-0", 1, 4, True, (1, 2), (1, 2, 3), 9, 7, 2),
        ("orders-1", 2, 4, False, (1, 2), (1, 2, 3), 0, 0, 0),
    )


def test_where_no_node_reports_watermarks_the_lag_is_not_known() -> None:
    (table,) = status(kafka_view(partitions={("orders", 0): partition(1, 1)}), LAYOUT)
    assert table.rows[0][6:] == (None, None, None)


def test_brokers_have_their_state_and_epoch() -> None:
    view = kafka_view(
        state={"broker-1#2": "ACTIVE"},
        fenced={1: False, 2: True},
        broker_epoch={1: 12},
        newest={"broker-1": "broker-1#2", "broker-2": "broker-2#1"},
        alive={"broker-1#2"},
    )
    (table,) = status(view, LAYOUT)
    assert table.rows == (("broker-1", "ACTIVE", False, 12), ("broker-2", "ended", True, None))


def test_the_controller_and_the_clients_have_a_row_each() -> None:
    view = kafka_view(
        active_controller=101,
        controller_epoch=3,
        controller_process="controller-1#1",
        committed=20,
        invoked=Counter({"clients/producer-1#1": 5}),
        completed=Counter({("clients/producer-1#1", "ok"): 4}),
        polled=Counter({"clients/consumer-1#1": 3}),
    )
    controller, clients = status(view, LAYOUT)
    assert controller.rows == ((101, 3, "controller-1#1", 20),)
    assert clients.rows == (
        ("clients/consumer-1#1", 0, 0, 0, 0, 3),
        ("clients/producer-1#1", 5, 4, 0, 0, 0),
    )
