"""Ids of brokers that a second process takes over: the id has another disk from then on."""

from __future__ import annotations

from fencepost import NodeStarted, ProcessExited, ProcessSpawned
from fencepost.testing import HistoryBuilder
from fencepost_kafka import BrokerCommitted, BrokerDeclared
from fencepost_kafka.judging.takeovers import TAKING, Takeovers

FIRST, SECOND, NEXT = "broker-3#1", "broker-3-duplicate#1", "broker-3#2"
BY_SECOND = (3, SECOND)


def spawned(h: HistoryBuilder, process: str, role: str = "broker", node_id: int = 3) -> None:
    slot = process.partition("#")[0]
    body = ProcessSpawned(started=process, slot=slot, role=role, node_id=node_id, pid=1)
    h.add("harness", body)


def ended(h: HistoryBuilder, process: str) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=0, signal=9, expected=True))


def registered(h: HistoryBuilder, epoch: int, broker: int = 3, *, fenced: bool = False) -> None:
    body = BrokerCommitted(
        offset=epoch, broker_id=broker, broker_epoch=epoch, fenced=fenced, incarnation=str(epoch)
    )
    h.add("broker-1#1", body)


def declared(h: HistoryBuilder, incarnation: int) -> None:
    body = BrokerDeclared(
        broker_id=3,
        incarnation_id=incarnation,
        old="Absent",
        new="Initial",
        reason="bounced",
        version=5,
        silent_ms=0,
        timeout_ms=2000,
        controller_epoch=1,
    )
    h.add("broker-1#1", body)


def begun() -> HistoryBuilder:
    """The broker is registered."""
    h = HistoryBuilder()
    spawned(h, FIRST)
    registered(h, 6)
    return h


def taken(h: HistoryBuilder) -> list[tuple[int, str]]:
    takeovers = Takeovers()
    found = [
        takeovers.take(one.body, one.process) for one in h.events() if type(one.body) in TAKING
    ]
    return [one for one in found if one is not None]


def test_an_id_has_another_disk_once_a_second_process_is_registered_and_once_the_first_is() -> None:
    h = begun()
    spawned(h, SECOND)
    assert taken(h) == []
    registered(h, 71)
    assert taken(h) == [BY_SECOND]
    ended(h, SECOND)
    spawned(h, NEXT)
    assert taken(h) == [BY_SECOND]
    registered(h, 129)
    assert taken(h) == [BY_SECOND, BY_SECOND]
    registered(h, 184)
    assert len(taken(h)) == 2


def test_a_controller_says_which_process_has_an_id() -> None:
    """KIP-343 has no record of that."""
    h = begun()
    spawned(h, SECOND)
    for incarnation in (6, 51):
        declared(h, incarnation)
    assert taken(h) == [BY_SECOND]


def test_a_second_process_that_ends_unregistered_changes_no_disk() -> None:
    h = begun()
    spawned(h, SECOND)
    ended(h, SECOND)
    registered(h, 71)
    assert taken(h) == []


def test_another_state_of_a_registration_and_another_broker_change_no_disk() -> None:
    h = begun()
    spawned(h, SECOND)
    registered(h, 6, fenced=True)
    registered(h, 5)
    registered(h, 71, broker=2)
    assert taken(h) == []


def test_the_end_of_a_former_second_process_ends_no_later_claim() -> None:
    h = begun()
    spawned(h, SECOND)
    spawned(h, "broker-3-duplicate#2")
    ended(h, SECOND)
    registered(h, 71)
    assert taken(h) == [(3, "broker-3-duplicate#2")]


def names(h: HistoryBuilder, process: str, incarnation: str) -> None:
    h.add(process, NodeStarted(role="broker", node_id=3, incarnation=incarnation, log_end=-1))


def test_a_registration_that_the_first_process_names_as_its_own_is_no_takeover() -> None:
    """A second process is refused all the time; the holder is restarted on its own disk."""
    for process, takes in ((NEXT, []), (SECOND, [BY_SECOND])):
        h = begun()
        spawned(h, SECOND)
        ended(h, FIRST)
        names(h, process, "9")
        registered(h, 9)
        assert taken(h) == takes


def test_the_first_process_has_its_own_disk_again_after_a_takeover() -> None:
    h = begun()
    spawned(h, SECOND)
    names(h, SECOND, "9")
    registered(h, 9)
    names(h, NEXT, "12")
    registered(h, 12)
    registered(h, 15)
    assert taken(h) == [BY_SECOND, BY_SECOND, BY_SECOND]
    takeovers = Takeovers()
    for one in h.events()[:-1]:
        takeovers.take(one.body, one.process)
    assert not takeovers.is_taken(3)
