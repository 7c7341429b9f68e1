"""Strikes on a node that a fault affects already, rhythms, long absences, and clients cut off."""

from __future__ import annotations

import pytest
from tests.kafka.test_random_schedule import LAYOUT, STRIKES, TIMING, begun, drawn_at

from fencepost import Moment, Planned
from fencepost_kafka import PartitionView
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.view import KafkaView


def struck(
    *under: str, offered: tuple[str, ...] = ("kill", "pause", "terminate", "duplicate_id")
) -> set[str]:
    """The faults that strike broker-1 while these faults affect it."""
    moment = Moment(begun(), LAYOUT, offered, frozenset({"broker-1"}), under={"broker-1": under})
    drawn = drawn_at(moment, STRIKES, 400)
    return {one.fault for one in drawn if "broker-1" in one.victims and one.then is None}


@pytest.mark.parametrize(
    ("under", "again"),
    [
        (("pause",), {"kill", "duplicate_id"}),
        (("isolate",), {"kill", "pause", "duplicate_id"}),
        (("slow_link", "duplicate_id"), {"kill", "pause", "terminate"}),
        (("cut", "kill"), {"kill", "pause", "duplicate_id"}),
        (("hold",), set()),
    ],
)
def test_a_node_is_struck_again_where_a_measurement_can_tell(
    under: tuple[str, ...], again: set[str]
) -> None:
    assert struck(*under) == again


def test_links_of_a_struck_node_are_left_alone() -> None:
    assert struck("pause", offered=("cut", "isolate", "slow_link", "hold")) == set()


def test_a_dead_node_is_not_struck_again() -> None:
    view = begun()
    view.alive.discard("broker-1#1")
    moment = Moment(view, LAYOUT, ("kill",), frozenset({"broker-1"}), under={"broker-1": ("kill",)})
    drawn = drawn_at(moment, STRIKES)
    assert drawn
    assert all("broker-1" not in one.victims for one in drawn)


def chain(planned: Planned) -> list[Planned]:
    """A rhythm's beats, in order."""
    beats = [planned]
    while beats[-1].then is not None:
        beats.append(beats[-1].then)
    return beats


def rhythms() -> list[list[Planned]]:
    drawn = drawn_at(Moment(begun(), LAYOUT, ("kill",)), STRIKES, 600)
    return [chain(one) for one in drawn if one.then is not None]


def test_nodes_are_bounced_in_rhythms() -> None:
    found = rhythms()
    assert {len(beats) for beats in found} == {2, 3, 4, 5}
    roles = [{name.split("-")[0] for one in beats for name in one.victims} for beats in found]
    assert all(len(role) == 1 for role in roles)
    assert {"controller"} in roles
    assert {"broker"} in roles
    victims = [{name for one in beats for name in one.victims} for beats in found]
    assert {len(names) for names in victims} == {1, 2, 3}
    pauses = [one.after_ms for beats in found for one in beats[:-1]]
    assert min(pauses) < TIMING.election_ms < max(pauses) <= TIMING.lease_ms


def test_a_system_whose_nodes_need_a_session_is_bounced_in_no_rhythm() -> None:
    moment = Moment(begun(), LAYOUT, ("kill",))
    drawn = drawn_at(moment, KafkaFaultChooser(TIMING, needs_session=True), 400)
    assert drawn
    assert all(one.then is None for one in drawn)


def test_a_node_may_be_kept_down_for_many_leases() -> None:
    lasts = [one.for_ms for one in drawn_at(Moment(begun(), LAYOUT, ("kill",)), STRIKES, 600)]
    assert min(lasts) == 0
    assert max(lasts) >= 9 * TIMING.lease_ms


def test_clients_lose_one_broker_that_leads() -> None:
    moment = Moment(begun(), LAYOUT, ("cut", "partition"))
    drawn = [one for one in drawn_at(moment, STRIKES, 600) if "clients" in one.ends]
    assert {(one.fault, *one.victims) for one in drawn} == {
        (fault, broker) for fault in ("cut", "partition") for broker in ("broker-1", "broker-2")
    }
    ways = {str(one.arguments.get("sources")) for one in drawn if one.fault == "cut"}
    assert len(ways) == 3  # the clients, and either broker


def test_clients_are_cut_only_from_brokers_to_which_they_certainly_connect() -> None:
    """A client writes to a topic that a schedule made only if it is asked to."""
    view = begun()
    partitions = view.of(KafkaView).partitions
    for topic, leader in (("storm-1", 3), ("__consumer_offsets", 2)):
        partitions[topic, 0] = PartitionView(1, leader, 0, (1, 2, 3), (1, 2, 3))
    del partitions["orders", 1]
    drawn = drawn_at(Moment(view, LAYOUT, ("cut", "partition")), STRIKES, 600)
    assert {name for one in drawn if "clients" in one.ends for name in one.victims} == {"broker-1"}


def test_the_logs_of_partitions_are_damaged_on_brokers_that_have_one() -> None:
    view = begun()
    view.of(KafkaView).partitions["orders", 0].isr = (1, 2)
    view.of(KafkaView).partitions["orders", 0].replicas = (1, 2)
    drawn = drawn_at(Moment(view, LAYOUT, ("damage_disk",)), STRIKES)
    members = {n for one in view.of(KafkaView).partitions.values() for n in one.isr}
    assert {name for one in drawn for name in one.victims} == {f"broker-{n}" for n in members}
    assert {one.arguments["files"] for one in drawn} == {"[!_]*/*.log"}
    assert min(int(str(one.arguments["last_bytes"])) for one in drawn) >= 64


def test_a_disk_without_messages_is_not_damaged() -> None:
    view = begun()
    view.of(KafkaView).emptied.add("broker-1")
    del view.of(KafkaView).shown["orders", 1]
    drawn = drawn_at(Moment(view, LAYOUT, ("damage_disk",)), STRIKES)
    assert {name for one in drawn for name in one.victims} == {"broker-3"}


def test_links_of_brokers_that_have_ended_are_not_in_use() -> None:
    view = begun()
    fetching = {one.ends for one in drawn_at(Moment(view, LAYOUT, ("hold",)), STRIKES)}
    assert {frozenset({"broker-1", "broker-3"}), frozenset({"broker-2", "broker-3"})} <= fetching
    view.alive.discard("broker-3#1")
    fetching = {one.ends for one in drawn_at(Moment(view, LAYOUT, ("hold",)), STRIKES)}
    assert frozenset({"broker-1", "broker-3"}) not in fetching
