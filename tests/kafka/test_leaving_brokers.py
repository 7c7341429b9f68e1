"""Brokers that schedules drain and remove for good: what is drawn, and how it is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random  # noqa: TID251 - seeded here
from typing import Any

import pytest
from tests.kafka.test_administration import EVERY, GROWN, SPARE, asked, storm
from tests.kafka.test_random_schedule import begun, record

from fencepost import (
    Administered,
    Administration,
    Condition,
    Event,
    Moment,
    Planned,
    ProcessExited,
    ProcessSpawned,
    Signal,
    Slot,
    View,
)
from fencepost_kafka import BrokerCommitted, BrokerDeleted, BrokerStateChanged, KafkaView
from fencepost_kafka.clients.scheduled import Scheduled
from fencepost_kafka.recovery import missing


def registered(view: View, broker: int, offset: int) -> None:
    body = BrokerCommitted(
        offset=offset, broker_id=broker, broker_epoch=offset, fenced=False, incarnation="i"
    )
    record(view, "controller-1#1", body)


def grown() -> View:
    """Four brokers, of which the last one was added, and has no partition."""
    view = storm(begun())
    for broker in (1, 2, 3):
        registered(view, broker, broker)
    spawned(view, SPARE)
    return view


def spawned(view: View, slot: Slot, number: int = 1) -> None:
    process = f"{slot.name}#{number}"
    body = ProcessSpawned(
        started=process, slot=slot.name, role="broker", node_id=slot.node_id, pid=1
    )
    record(view, "harness", body)
    active = BrokerStateChanged(
        broker_id=slot.node_id, old="FENCED", new="ACTIVE", broker_epoch=5, reason="unfenced"
    )
    record(view, process, active)
    registered(view, slot.node_id, 10 + number)


def removal(view: View, slot: str, *, ends: bool = True) -> None:
    """A schedule removes a broker."""
    body = Administered(operation="remove_broker", arguments="{}", targets=(slot,))
    record(view, "harness", body)
    if ends:
        ended = ProcessExited(ended=view.newest[slot], exit_code=0, signal=0, expected=True)
        record(view, "harness", ended)
        view.alive.discard(view.newest[slot])


def drawn(view: View, operation: str, seeds: int = 800) -> list[Administration]:
    return [one for one in asked(view, seeds=seeds) if one.operation == operation]


def brokers(view: View, operation: str) -> set[object]:
    return {one.arguments["broker"] for one in drawn(view, operation)}


def test_no_broker_leaves_while_three_run() -> None:
    view = storm(begun())
    assert not brokers(view, "drain_broker")
    assert not brokers(view, "remove_broker")


def test_a_broker_is_drained_of_all_its_partitions_and_each_keeps_its_replication() -> None:
    view = grown()
    partitions = view.of(KafkaView).partitions
    partitions["orders", 0].replicas = (1, 3, 4)
    partitions["orders", 0].adding, partitions["orders", 0].removing = (4,), (3,)
    held = {
        broker: {place for place, one in partitions.items() if broker in one.replicas}
        for broker in (1, 2, 3, 4)
    }
    found = drawn(view, "drain_broker")
    assert {one.arguments["broker"] for one in found} == {1, 2, 3, 4}
    for one in found:
        broker, moves = one.arguments["broker"], one.arguments["moves"]
        assert isinstance(broker, int)
        assert isinstance(moves, list)
        assert one.victims == {f"broker-{broker}"}
        assert {(topic, number) for topic, number, _ in moves} == held[broker]
        for topic, number, replicas in moves:
            before = partitions[topic, number]
            staying = {*before.replicas} - {*before.removing, broker}
            assert staying <= {*replicas} <= {1, 2, 3, 4} - {broker}
            assert len({*replicas}) == len(replicas) == 2


def test_a_broker_is_removed_once_it_has_no_partition() -> None:
    view = grown()
    assert brokers(view, "remove_broker") == {4}
    view.of(KafkaView).partitions["orders", 0].replicas = (1, 3, 4)
    assert not brokers(view, "remove_broker")


@pytest.mark.parametrize("hit", ["broker-4", "controller-1"])
def test_a_broker_is_removed_only_while_it_would_stop_and_stay_down(hit: str) -> None:
    """A fault that ends it starts it again when it heals; another may keep it from ending."""

    def removed(*affected: str) -> bool:
        moment = Moment(grown(), GROWN, ("remove_broker",), frozenset(affected))
        return any(EVERY.draw(random, moment) for random in randoms())

    assert removed()
    assert removed("broker-1")
    assert not removed(hit)


def randoms() -> list[Random]:
    return [Random(seed) for seed in range(50)]


def test_a_broker_that_was_removed_is_struck_no_more_nor_awaited() -> None:
    view = grown()
    removal(view, "broker-2")
    assert not [one for one in missing(view, GROWN) if "broker-2" in one]
    moment = Moment(view, GROWN, ("kill", "isolate", "wipe_disk"))
    struck = [EVERY.draw(random, moment) for random in randoms()]
    names = [one.victims | one.ends for one in struck if isinstance(one, Planned)]
    assert names
    assert not any("broker-2" in several for several in names)
    moved = [one.arguments["replicas"] for one in asked(view) if one.operation == "reassign"]
    assert not any(2 in several for several in moved if isinstance(several, list))


def test_a_broker_that_still_runs_was_not_removed() -> None:
    view = grown()
    removal(view, "broker-2", ends=False)
    moment = Moment(view, GROWN, ("kill",))
    struck = [EVERY.draw(random, moment) for random in randoms()]
    assert any("broker-2" in one.victims for one in struck if one is not None)


def test_a_broker_that_was_removed_is_added_again_once_it_is_deleted() -> None:
    view = grown()
    removal(view, "broker-2")
    assert brokers(view, "remove_broker") == {2}  # its deletion may have been lost
    assert not brokers(view, "add_broker")
    record(view, "controller-1#1", BrokerDeleted(offset=30, broker_id=2))
    assert brokers(view, "add_broker") == {2}
    assert not brokers(view, "remove_broker")  # three are left
    spawned(view, GROWN.slot("broker-2"), 30)
    assert not brokers(view, "add_broker")


class Machine:
    """A runtime whose brokers end by SIGTERM, unless they hang."""

    def __init__(self, view: View, hangs: bool = False) -> None:
        self.layout, self.view, self.hangs = GROWN, view, hangs
        self.done: list[object] = []

    def living(self, slot: Slot) -> Any:
        process = self.view.newest.get(slot.name, "")
        return Process(process) if process in self.view.alive else None

    def signal(self, process: Any, what: Signal) -> None:
        self.done.append(what)
        if what is Signal.KILL or not self.hangs:
            self.view.alive.discard(process.name)

    def start(self, slot: Slot) -> None:
        self.done.append(slot.name)

    def now_ns(self) -> int:
        return 0

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        return self.view.last if until.holds(self.view) else None


class Process:
    def __init__(self, name: str) -> None:
        self.name = name


class Client:
    process = "clients/admin-1#1"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def tell(self, command: Mapping[str, object]) -> None:
        self._machine.done.append((command["do"], command.get("broker", command.get("moves"))))


def scheduled(machine: Any) -> Scheduled:
    return Scheduled(machine, lambda kind, options, may_die: Client(machine), lambda: "op")


@pytest.mark.parametrize("hangs", [False, True])
def test_a_broker_that_is_removed_stops_and_is_deleted_then(hangs: bool) -> None:
    machine = Machine(grown(), hangs)
    scheduled(machine).administer("remove_broker", {"broker": 4})
    signals = [Signal.TERM, Signal.KILL] if hangs else [Signal.TERM]
    assert machine.done == [*signals, ("delete_broker", 4)]


def test_a_broker_that_has_stopped_is_only_deleted() -> None:
    machine = Machine(grown())
    removal(machine.view, "broker-4")
    scheduled(machine).administer("remove_broker", {"broker": 4})
    assert machine.done == [("delete_broker", 4)]


def test_a_broker_that_got_a_partition_meanwhile_is_not_removed() -> None:
    machine = Machine(grown())
    machine.view.of(KafkaView).partitions["orders", 0].replicas = (1, 4)
    scheduled(machine).administer("remove_broker", {"broker": 4})
    assert machine.done == []


def test_a_broker_that_was_removed_starts_with_its_old_disk() -> None:
    machine = Machine(grown())
    removal(machine.view, "broker-2")
    scheduled(machine).administer("add_broker", {"broker": 2})
    assert machine.done == ["broker-2"]


def test_a_drain_is_one_reassignment() -> None:
    machine = Machine(grown())
    moves = [["orders", 0, [1, 2]], ["orders", 1, [2, 1]]]
    scheduled(machine).administer("drain_broker", {"broker": 3, "moves": moves})
    (done,) = machine.done
    assert isinstance(done, tuple)
    assert done[0] == "reassign"
    assert [[t, n, [*r]] for t, n, r in done[1]] == moves
