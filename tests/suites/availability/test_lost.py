"""Which partitions are lost to clients: fewer than are forfeited."""

from __future__ import annotations

from fencepost import FaultInjected, NodeStarted, ProcessSpawned
from fencepost.testing import HistoryBuilder
from fencepost_kafka import BrokerCommitted, FollowerFetched, PartitionCommitted
from fencepost_kafka.judging.forfeits import Forfeits
from fencepost_suites.availability.lost import LostToClients

PLACE = "orders", 0
FIRST, SECOND = "broker-3#1", "broker-3-duplicate#1"


def led() -> HistoryBuilder:
    """Broker 3 leads, alone in the ISR."""
    h = HistoryBuilder()
    spawned(h, FIRST)
    body = PartitionCommitted(
        offset=10,
        topic=PLACE[0],
        partition=PLACE[1],
        leader=3,
        leader_epoch=1,
        isr=(3,),
        replicas=(3,),
    )
    h.add("controller-1#1", body)
    return h


def spawned(h: HistoryBuilder, process: str) -> None:
    slot = process.partition("#")[0]
    h.add("harness", ProcessSpawned(started=process, slot=slot, role="broker", node_id=3, pid=1))


def gone(h: HistoryBuilder, fold: Forfeits | LostToClients) -> bool:
    for event in h.events():
        if type(event.body) in fold.kinds:
            fold.take(event, event.body)
    return PLACE in fold.gone


def test_what_is_lost_with_the_last_disk_is_lost_to_clients() -> None:
    h = led()
    body = FaultInjected(
        fault_id="wipe_disk-1", fault="wipe_disk", targets=(FIRST,), receipt=True, evidence=""
    )
    h.add("harness", body)
    assert gone(h, Forfeits())
    assert gone(h, LostToClients())


def test_what_a_second_process_has_that_named_its_incarnation_is_not_lost_to_clients() -> None:
    h = led()
    spawned(h, SECOND)
    h.add(SECOND, NodeStarted(role="broker", node_id=3, incarnation="other", log_end=0))
    body = BrokerCommitted(
        offset=11, broker_id=3, broker_epoch=11, fenced=False, incarnation="other"
    )
    h.add("controller-1#1", body)
    assert gone(h, Forfeits())
    assert not gone(h, LostToClients())


def test_that_a_leader_counts_a_follower_is_not_asked() -> None:
    assert FollowerFetched in Forfeits.kinds
    assert FollowerFetched not in LostToClients.kinds
