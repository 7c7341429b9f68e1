"""Faults of links on nodes whose links other faults affect: which are drawn, and which show."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from tests.kafka.test_random_schedule import LAYOUT, STRIKES, TIMING, begun, drawn_at, record

from fencepost import Cut, Layout, Moment, Planned, ProcessSpawned, View, one_way, two_way
from fencepost.plugins.manager import load
from fencepost_kafka.faults.overlaps import OF_LINKS, shows
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.layout import Ports, lay_out
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import kafka_shape

B1, B3, C1 = "broker-1", "broker-3", "controller-1"
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
FROM_CONTROLLERS = two_way([B1], CONTROLLERS)
UP, DOWN, BOTH = one_way([B1], [C1]), one_way([C1], [B1]), two_way([B1], [C1])


def on(directions: Cut, fault: str) -> Mapping[tuple[str, str], Collection[str]]:
    """That fault acts upon these directions."""
    return dict.fromkeys(directions, (fault,))


def struck(
    fault: str, directions: Cut, *offered: str, victim: str = B1, view: View | None = None
) -> list[Planned]:
    """The faults of links that strike broker-1 while a fault affects it, or its links."""
    moment = Moment(
        begun() if view is None else view,
        LAYOUT,
        offered or tuple(OF_LINKS),
        affected=frozenset({victim}),
        under={victim: [fault]},
        upon=on(directions, fault),
    )
    return [one for one in drawn_at(moment, STRIKES, 1_500) if victim in one.victims]


def crossed(drawn: Collection[Planned]) -> set[tuple[str, frozenset[str]]]:
    return {(one.fault, one.ends) for one in drawn}


def test_a_node_without_controllers_is_cut_off_from_others_as_well() -> None:
    found = crossed(struck("cut_from_controllers", FROM_CONTROLLERS))
    assert ("partition", frozenset({B1, B3})) in found  # broker 3 follows it
    assert ("partition", frozenset({B1, "clients"})) in found
    assert ("isolate", frozenset({*CONTROLLERS, B1, "broker-2", B3})) in found
    assert not [one for one in found if one[0] == "cut_from_controllers"]
    assert not [ends for _, ends in found if ends <= {B1, *CONTROLLERS}]


def test_a_node_without_one_controller_is_cut_off_from_the_active_one() -> None:
    """The cut of another link leaves this one as it was."""
    found = struck("partition", two_way([B1], ["controller-2"]))
    assert [one for one in found if one.fault == "cut_from_controllers"]


def test_a_slow_link_is_cut_and_no_slow_link_is_slowed_or_held_again() -> None:
    found = struck("slow_link", two_way([B3], [B1]), *OF_LINKS, "hold")
    assert {"cut", "partition", "isolate", "cut_from_controllers"} <= {one.fault for one in found}
    assert ("partition", frozenset({B1, B3})) in crossed(found)
    assert not [one for one in found if one.fault in ("slow_link", "hold")]


def test_what_a_source_sends_is_cut_after_what_the_target_sends_and_not_before() -> None:
    def cut(now: Cut) -> set[Cut]:
        return {one.directions for one in struck("cut", now, "cut") if one.ends == {B1, C1}}

    assert cut(DOWN) == {UP}
    assert cut(UP) == set()


@pytest.mark.parametrize("fault", ["pause", "kill", "hold", "wipe_disk"])
def test_no_fault_of_links_strikes_a_node_that_another_kind_of_fault_affects(fault: str) -> None:
    assert struck(fault, frozenset()) == []


def doubled(second: str, first: str = "ACTIVE") -> View:
    """Two processes with the id of broker 1 run; their states by their own reports."""
    view, role = begun(), "broker"
    slot, process = f"{B1}-duplicate", f"{B1}-duplicate#1"
    spawned = ProcessSpawned(started=process, slot=slot, role=role, node_id=1, pid=2)
    record(view, "harness", spawned)
    view.of(KafkaView).state |= {process: second, f"{B1}#1": first}
    return view


def test_links_of_a_doubled_broker_are_struck_while_it_has_its_id() -> None:
    """Once a second process has the id, the others connect to that one."""
    found = struck("duplicate_id", frozenset(), view=doubled("INITIAL"))
    assert {one.fault for one in found} == OF_LINKS
    assert ("partition", frozenset({B1, B3})) in crossed(found)
    for taken in (doubled("ACTIVE"), doubled("FENCED", "FENCED")):
        cut = struck("duplicate_id", frozenset(), "partition", "cut", "slow_link", view=taken)
        assert not [one for one in cut if B1 in one.ends and len(one.ends) == 2]


@pytest.mark.parametrize(
    ("fault", "directions", "upon", "seen"),
    [
        ("cut", UP, {}, True),
        ("cut", DOWN, {}, True),
        ("cut", UP, on(DOWN, "cut"), True),
        ("cut", DOWN, on(UP, "cut"), False),
        ("partition", BOTH, on(UP, "cut"), False),
        ("partition", BOTH, on(DOWN, "isolate"), True),
        ("cut", DOWN, on(DOWN, "cut"), False),
        ("cut", UP, on(BOTH, "slow_link"), True),
        ("slow_link", BOTH, on(BOTH, "slow_link"), False),
        ("slow_link", BOTH, on(DOWN, "cut"), False),
        ("slow_link", BOTH, {}, True),
        ("slow_link", two_way([B1], ["controller-2"]), {}, False),
        ("cut", one_way([B1], ["controller-2"]), {}, False),
        ("hold", UP, {}, True),
        ("hold", UP, on(BOTH, "slow_link"), False),
    ],
)
def test_which_fault_shows_in_a_link(
    fault: str, directions: Cut, upon: Mapping[tuple[str, str], Collection[str]], seen: bool
) -> None:
    ends = frozenset(name for pair in directions for name in pair)
    planned = Planned(fault, {}, 100, frozenset({B1}), ends=ends, directions=directions)
    assert shows(planned, (B1, C1), upon) is seen


def test_the_directions_of_a_plan_are_those_that_the_fault_affects() -> None:
    """But those of second processes: no draw counts on their links."""
    layout = lay_out(kafka_shape(), Ports())
    second = {slot.name for slot in layout.slots if slot.duplicate}
    joined = {(link.source, link.target) for link in layout.links}
    joined |= {pair[::-1] for pair in joined}
    plugins = load()
    seen = set()
    moment = Moment(begun(), layout, (*OF_LINKS, "hold"))
    for planned in drawn_at(moment, KafkaFaultChooser(TIMING), 600):
        fault = plugins.fault(planned.fault, **planned.arguments)
        affects = {pair for pair in affected(fault, layout) if second.isdisjoint(pair)}
        assert affects == planned.directions & joined, planned
        assert planned.ends == {name for pair in planned.directions for name in pair}
        seen.add(planned.fault)
    assert seen == {*OF_LINKS, "hold"}


def affected(fault: object, layout: Layout) -> Cut:
    """The directions that a fault affects, by its own values."""
    shape = getattr(fault, "directions", None)
    if shape is not None:
        found: Cut = shape(layout)
        return found
    sources, targets = getattr(fault, "sources", ()), getattr(fault, "targets", ())
    ways = two_way if getattr(fault, "name", "") == "slow_link" else one_way
    return ways(sources, targets)
