"""What an administrator asks for in random schedules, and the commands that clients get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded here
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kafka.test_random_schedule import BROKERS, LAYOUT, TIMING, begun, record

from fencepost import Administration, Moment, Planned, Slot, UsageError, View
from fencepost_kafka import KafkaView, QuorumLearned, Role
from fencepost_kafka.clients.scheduled import Scheduled
from fencepost_kafka.faults.administration import EVERYWHERE, OPERATIONS, TOPIC_PREFIX, concerned
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.states import states_of

EVERY = KafkaFaultChooser(TIMING, administration=frozenset(OPERATIONS))
SPARE = Slot("broker-4", Role.BROKER, 4, 11, spare=True)
GROWN = replace(LAYOUT, slots=(*LAYOUT.slots, SPARE))
"""With a broker that was never started."""


def storm(view: View, voters: tuple[int, ...] = (101, 102, 103)) -> View:
    """A view with a topic that a schedule has made, and a quorum of these voters."""
    kafka = view.of(KafkaView)
    kafka.topics |= {"orders": "o", f"{TOPIC_PREFIX}1": "s"}
    kafka.partitions[f"{TOPIC_PREFIX}1", 0] = replace(kafka.partitions["orders", 0])
    kafka.controller_process = "controller-1#1"
    learned = QuorumLearned(voters=voters, endpoints=("",) * len(voters), bootstrap=())
    record(view, "controller-1#1", learned)
    return view


def asked(view: View, chooser: KafkaFaultChooser = EVERY, seeds: int = 400) -> list[Administration]:
    moment = Moment(view, GROWN, OPERATIONS)
    drawn = (chooser.draw(Random(seed), moment) for seed in range(seeds))
    return [one for one in drawn if isinstance(one, Administration)]


def test_every_operation_is_drawn_and_concerns_nodes() -> None:
    view = storm(begun())
    view.of(KafkaView).partitions["orders", 0].adding = (2,)
    drawn = asked(view) + asked(storm(begun(), (101, 103)))
    assert {one.operation for one in drawn} == {*OPERATIONS} - {"drain_broker", "remove_broker"}
    assert all(one.victims for one in drawn)
    cancelled = [one for one in drawn if one.arguments.get("replicas") == []]
    assert {one.arguments["partition"] for one in cancelled} == {0}


def test_a_cluster_is_asked_only_for_what_it_can_do() -> None:
    drawn = asked(storm(begun()), KafkaFaultChooser(TIMING))
    assert {one.operation for one in drawn} == EVERYWHERE


def test_a_spare_is_added_once_and_is_a_broker_like_any_other_from_then_on() -> None:
    view = storm(begun())
    added = [one for one in asked(view) if one.operation == "add_broker"]
    assert {one.arguments["broker"] for one in added} == {4}
    assert {one.victims for one in added} == {frozenset(["broker-4"])}
    moved = [one.arguments["replicas"] for one in asked(view) if one.operation == "reassign"]
    assert not any(4 in brokers for brokers in moved if isinstance(brokers, list))
    view.newest["broker-4"] = "broker-4#1"
    assert not any(one.operation == "add_broker" for one in asked(view))
    moved = [one.arguments["replicas"] for one in asked(view) if one.operation == "reassign"]
    assert any(4 in brokers for brokers in moved if isinstance(brokers, list))


def test_a_broker_that_was_added_has_no_second_process_with_its_id() -> None:
    view = begun()
    view.newest["broker-4"] = "broker-4#1"
    view.of(KafkaView).broker_offset = {4: 99}  # the newest one is struck most often
    moment = Moment(view, GROWN, ("duplicate_id", "kill"))
    drawn = [one for seed in range(400) if (one := EVERY.draw(Random(seed), moment)) is not None]
    struck = {(one.fault, *one.victims) for one in drawn if isinstance(one, Planned)}
    assert ("kill", "broker-4") in struck
    assert ("duplicate_id", "broker-4") not in struck


def test_a_broker_is_added_unless_it_runs_and_no_other_than_a_spare() -> None:
    started: list[Slot] = []

    def start(slot: Slot) -> None:
        started.append(slot)

    runtime: Any = SimpleNamespace(
        view=begun(),
        layout=GROWN,
        start=start,
        living=lambda slot: slot if slot in started else None,
    )
    clients = Scheduled(runtime, World(begun()).start, lambda: "op")
    clients.administer("add_broker", {"broker": 4})
    clients.administer("add_broker", {"broker": 4})
    assert started == [SPARE]
    with pytest.raises(UsageError, match="no spare has the id 1"):
        clients.administer("add_broker", {"broker": 1})
    with pytest.raises(UsageError, match="no broker has the id 9"):
        clients.administer("add_broker", {"broker": 9})


def test_only_topics_of_the_schedule_are_deleted_and_written_to() -> None:
    drawn = [one for one in asked(storm(begun())) if one.operation.endswith("_topic")]
    assert {str(one.arguments["topic"])[: len(TOPIC_PREFIX)] for one in drawn} == {TOPIC_PREFIX}


def test_the_voter_that_is_missing_is_added_before_another_one_is_removed() -> None:
    def changes(*voters: int) -> set[tuple[str, object]]:
        drawn = asked(storm(begun(), voters))
        found = [one for one in drawn if one.operation.endswith("_voter")]
        return {(one.operation, one.arguments["controller"]) for one in found}

    assert changes(101, 103) == {("add_voter", 102)}
    assert changes(101, 102, 103) == {("remove_voter", n) for n in (101, 102, 103)}
    assert changes() == set()


@pytest.mark.parametrize(
    ("operation", "arguments", "names"),
    [
        ("reassign", {"topic": "orders", "partition": 0, "replicas": [2]}, [1, 2, 3]),
        ("elect_preferred", {"topic": f"{TOPIC_PREFIX}1", "partitions": [0]}, [1, 3]),
        ("delete_topic", {"topic": "unknown"}, []),
        ("delete_broker", {"broker": 2}, [2]),
    ],
)
def test_an_operation_concerns_the_brokers_of_its_partitions_or_the_broker_itself(
    operation: str, arguments: Mapping[str, object], names: list[int]
) -> None:
    found = concerned(operation, arguments, storm(begun()), LAYOUT)
    assert found == [f"broker-{number}" for number in names]


def test_an_operation_that_does_not_exist_concerns_nothing() -> None:
    with pytest.raises(UsageError, match="did you mean 'delete_topic'"):
        concerned("delete_topics", {}, begun(), LAYOUT)


class World:
    """What `Scheduled` sees of a runtime; it keeps the commands to clients."""

    def __init__(self, view: View) -> None:
        self.layout, self.view = LAYOUT, view
        self.commands: list[Mapping[str, object]] = []
        self.started: list[str] = []

    def start(self, kind: str, options: object, may_die: bool) -> World:
        self.started.append(kind)
        self.process = f"clients/{kind}-{len(self.started)}#1"
        self.view.alive.add(self.process)
        return self

    def tell(self, command: Mapping[str, object]) -> None:
        self.commands.append(command)


def scheduled(world: Any) -> Scheduled:
    return Scheduled(world, world.start, lambda: f"op-{len(world.commands)}")


def test_operations_go_to_one_client_of_their_kind_and_to_a_new_one_if_it_died() -> None:
    world = World(storm(begun()))
    clients = scheduled(world)
    assert not clients.administering
    clients.administer("delete_topic", {"topic": "storm-1"})
    clients.administer("alter_settings", {"topic": "orders", "config": {"a": "1"}})
    assert clients.administering
    assert world.started == ["admin"]
    world.view.alive.discard(world.process)
    assert not clients.administering
    clients.administer("delete_broker", {"broker": 2})
    clients.administer("remove_voter", {"controller": 103})
    clients.administer("write_topic", {"topic": "storm-1", "partitions": 1, "count": 9})
    assert world.started == ["admin", "admin", "probe", "producer"]
    assert [one["do"] for one in world.commands] == [
        *("delete_topic", "alter_settings", "delete_broker", "remove_voter"),
    ]


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("reassign", {"topic": "orders"}),
        ("delete_topic", {"topic": "orders", "now": True}),
        ("add_voter", {"controller": 109}),
        ("grow", {}),
    ],
)
def test_an_operation_with_other_arguments_is_refused(
    operation: str, arguments: Mapping[str, object]
) -> None:
    with pytest.raises(UsageError):
        scheduled(World(begun())).administer(operation, arguments)


def test_a_node_has_the_states_of_its_roles() -> None:
    view = begun("broker-3")
    kafka = view.of(KafkaView)
    kafka.fenced[2] = True
    kafka.partitions["orders", 1].adding = (3,)
    found = {s.name: states_of(s, view, LAYOUT) for s in LAYOUT.slots[:6]}
    assert found == {
        "controller-1": ["active controller"],
        "controller-2": ["other controller"],
        "controller-3": ["other controller"],
        "broker-1": ["leader"],
        "broker-2": ["leader", "fenced", "reassigning"],
        "broker-3": ["starting"],
    }
    assert [slot.node_id for slot in BROKERS] == [1, 2, 3]
    kafka.partitions.clear()
    assert states_of(LAYOUT.slot("broker-1"), view, LAYOUT) == ["without partitions"]


@pytest.mark.parametrize(("voters", "held"), [((101, 102, 103), True), ((101, 102), False)])
def test_no_fetch_of_a_controller_that_was_removed_is_held(
    voters: tuple[int, ...], held: bool
) -> None:
    """It may stand for election in vain."""
    moment = Moment(storm(begun(), voters), LAYOUT, ("hold",))
    drawn = [EVERY.draw(Random(seed), moment) for seed in range(400)]
    ends = {name for one in drawn if isinstance(one, Planned) for name in one.ends}
    assert {"controller-1", "controller-2"} <= ends
    assert ("controller-3" in ends) == held
