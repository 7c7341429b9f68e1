import sys
from pathlib import Path

import pytest

import fencepost
from fencepost import Ready, Shape

HERE = Path(__file__).parent


@pytest.fixture
def fencepost_shape():
    return Shape(apps={"billing": 2})


@fencepost.check("every order is billed")
def all_billed(run):
    orders = {one.value.split()[0] for one in run.clients.messages("orders")}
    lost = orders - {one.key for one in run.clients.messages("bills")}
    assert not lost, f"{len(lost)} of {len(orders)} orders are not billed"


def test_no_order_is_lost_when_billing_is_killed(cluster, clients, apps, faults):
    clients.create_topic("orders")
    clients.create_topic("bills")
    argv = [sys.executable, HERE / "billing.py", "{bootstrap}"]
    apps.start("billing", argv, ready=Ready(line="ready"))
    orders = clients.produce("orders", rate=100, count=600)
    for killed, orders_so_far in (("billing-1", 200), ("billing-2", 400)):
        cluster.eventually(orders.acked_at_least(orders_so_far))
        faults.bounce(killed, after_ms=500).heal()
    cluster.eventually(orders.acked_at_least(600))
