"""Partitions as pure data: which nodes of a layout cannot reach which."""

from __future__ import annotations

import pytest
from echo_node import EchoSystem

from fencepost import Fault, Layout, Link, Spare, UsageError
from fencepost_kafka import kafka_shape
from fencepost_kafka.faults import roles as kafka_faults
from fencepost_kafka.layout import Ports, lay_out
from fencepost_plugins import partition as p
from fencepost_plugins.slow_link import slow_link

LAYOUT = EchoSystem(duplicates=True).layout(kafka_shape(controllers=3, brokers=3))
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
BROKERS = ("broker-1", "broker-2", "broker-3")
SECOND = tuple(f"{broker}-duplicate" for broker in BROKERS)


def both(*pairs: tuple[str, str]) -> set[tuple[str, str]]:
    return {*pairs, *((b, a) for a, b in pairs)}


@pytest.mark.parametrize(
    ("fault", "cut"),
    [
        (p.cut("broker-1", "broker-2"), {("broker-1", "broker-2")}),
        (
            p.cut(["broker-1", "broker-2"], ["broker-2", "broker-3"]),
            {("broker-1", "broker-2"), ("broker-1", "broker-3"), ("broker-2", "broker-3")},
        ),
        (p.partition("broker-1", "broker-2"), both(("broker-1", "broker-2"))),
        (
            p.isolate("broker-1"),
            both(*(("broker-1", n) for n in (*CONTROLLERS, "broker-2", "broker-3", *SECOND))),
        ),
        (
            kafka_faults.cut_from_controllers("broker-1"),
            both(*(("broker-1", n) for n in CONTROLLERS)),
        ),
        (
            p.cut_from_role("broker-1", "broker"),
            both(*(("broker-1", n) for n in ("broker-2", "broker-3", *SECOND))),
        ),
        (
            p.isolate_role("controller"),
            both(*((c, b) for c in CONTROLLERS for b in (*BROKERS, *SECOND))),
        ),
        (p.halves(BROKERS), both(("broker-1", "broker-2"), ("broker-1", "broker-3"))),
        (p.bridge(BROKERS), both(("broker-1", "broker-3"))),
    ],
)
def test_a_shape_cuts_what_its_name_means(fault: p.Partition, cut: set[tuple[str, str]]) -> None:
    assert fault.directions(LAYOUT) == cut


def test_in_a_ring_of_majorities_every_node_reaches_a_majority_of_its_own() -> None:
    five = (*CONTROLLERS, "broker-1", "broker-2")
    cut = p.majorities_ring(five).directions(LAYOUT)
    heard = {b: frozenset(a for a in five if (a, b) not in cut) for b in five}
    assert all(len(names) == 3 for names in heard.values())
    assert len(set(heard.values())) == 5


def test_an_isolated_node_is_cut_off_from_its_own_duplicate_and_from_added_nodes() -> None:
    """Either may be the replica that lets it acknowledge what no other node has."""
    layout = lay_out(kafka_shape(spares=[Spare("broker", 4)]), Ports())
    for fault in (p.isolate("broker-1"), p.cut_from_role("broker-1", "broker")):
        cut = fault.directions(layout)
        assert {("broker-1", "broker-1-duplicate"), ("broker-1", "broker-4")} <= cut
        assert ("broker-1-duplicate", "broker-2") not in cut


def test_pairs_without_a_link_are_left_out() -> None:
    sparse = Layout(LAYOUT.slots, (Link("broker-1", "controller-1", 9092),))
    assert p.isolate("broker-1").directions(sparse) == both(("broker-1", "controller-1"))
    with pytest.raises(UsageError, match="the fault 'partition' cuts nothing"):
        p.partition("broker-1", "broker-2").directions(sparse)


def test_three_nodes_are_too_few_for_a_ring_to_cut() -> None:
    with pytest.raises(UsageError, match="cuts nothing"):
        p.majorities_ring(BROKERS).directions(LAYOUT)


@pytest.mark.parametrize(
    "fault",
    [
        p.cut("broker-1", "controler-1"),
        p.isolate("controler-1"),
        p.halves(["broker-1", "controler-1"]),
    ],
)
def test_an_unknown_slot_is_refused_with_the_nearest_one(fault: p.Partition) -> None:
    with pytest.raises(
        UsageError, match="no slot named 'controler-1'; did you mean 'controller-1'"
    ):
        fault.directions(LAYOUT)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="no role named 'brokers'; did you mean 'broker'"):
        p.isolate_role("brokers").directions(LAYOUT)
    with pytest.raises(UsageError, match="at least one node"):
        p.cut([], "broker-1")
    with pytest.raises(UsageError, match="needs a latency_ms or a rate_kb"):
        slow_link("broker-1", "broker-2")
    with pytest.raises(UsageError, match="slow_link takes"):
        slow_link("broker-1", "broker-2", latency_ms=60_000)


@pytest.mark.parametrize(
    "fault",
    [
        p.cut("broker-1", ["broker-2", "broker-3"]),
        p.isolate_role("broker"),
        p.bridge(BROKERS),
        slow_link("broker-1", "broker-2", latency_ms=20, jitter_ms=5),
    ],
)
def test_a_fault_is_made_again_from_its_arguments(fault: Fault) -> None:
    factories = {**p.fencepost_faults(), "slow_link": slow_link}
    assert factories[fault.name](**fault.arguments()) == fault
