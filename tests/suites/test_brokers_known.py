"""Which brokers are in the cluster, by declarations of controllers and by records."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import acked, invoke_named, poll, read, verdict

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import AdminCompleted, BrokerDeclared, BrokerDeleted
from fencepost_kafka.committed import Brokers


def declared(broker: int, epoch: int, new: str = "Active") -> BrokerDeclared:
    return BrokerDeclared(
        broker_id=broker,
        incarnation_id=7,
        old="Absent",
        new=new,  # type: ignore[arg-type]
        reason="heartbeat",
        version=5,
        silent_ms=0,
        timeout_ms=2_000,
        controller_epoch=epoch,
    )


def test_a_broker_that_the_next_controller_does_not_declare_is_out() -> None:
    brokers = Brokers()
    for broker in (1, 2):
        brokers.take(declared(broker, epoch=1))
    assert brokers.live() == (1, 2)
    brokers.take(declared(1, epoch=2))
    assert brokers.live() == (1,)


def test_a_controller_that_goes_on_keeps_the_brokers_that_it_declared() -> None:
    brokers = Brokers()
    for broker in (1, 2, 3):
        brokers.take(declared(broker, epoch=2))
    brokers.take(declared(3, epoch=2, new="Inactive"))
    brokers.take(declared(3, epoch=2))
    assert brokers.live() == (1, 2, 3)


def test_a_deletion_of_an_unknown_broker_removes_no_registration() -> None:
    assert not Brokers().forget(BrokerDeleted(offset=4, broker_id=9))


@pytest.mark.parametrize(
    ("api", "outcome"), [("create_topic", "ok"), ("delete_topic", "failed"), ("list_topics", "ok")]
)
def test_only_an_answered_deletion_begins_a_topic_anew(api: str, outcome: str) -> None:
    h = HistoryBuilder()
    invoke_named(h, "op-0")
    acked(h, 0)
    answer = AdminCompleted(
        operation="a",
        api=api,
        subject="orders",
        outcome=outcome,  # type: ignore[arg-type]
        error="",
    )
    h.add("clients/admin#1", answer)
    poll(h, "clients/reader#1", 1)
    read(h, 2)
    assert verdict(h, "lost-write").verdict is Outcome.VIOLATED
