from pathlib import Path

import pytest

import fencepost
from fencepost import Condition, Ready, Shape

HERE = Path(__file__).parent


@pytest.fixture
def fencepost_shape():
    return Shape(apps={"billing": 2})


@fencepost.check("every order is billed", within_s=60)
def all_billed(run):
    orders = {one.value.split()[0] for one in run.clients.messages("orders")}
    lost = orders - {one.key for one in run.clients.messages("bills")}
    assert not lost, f"{len(lost)} of {len(orders)} orders are not billed"


def wrote(slot):
    written = (f"{slot}#1", "client.produce_completed")  # its first process has told of a bill
    return Condition(f"a bill of {slot}", lambda view: written in view.latest)


def test_no_order_is_lost_when_billing_is_killed(cluster, clients, apps, faults):
    clients.create_topic("orders")
    clients.create_topic("bills")
    argv = ["node", HERE / "billing.js", "{bootstrap}"]
    apps.start("billing", argv, ready=Ready(line="ready"))
    orders = clients.produce("orders", rate=100, count=1500)
    for killed, orders_so_far in (("billing-1", 300), ("billing-2", 600)):
        cluster.eventually(orders.acked_at_least(orders_so_far) & wrote(killed))
        faults.bounce(killed, after_ms=500).heal()
    cluster.eventually(orders.acked_at_least(1500))
