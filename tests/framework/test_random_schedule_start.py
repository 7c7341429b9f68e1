"""A random schedule leaves nodes alone while they start, where that takes its time."""

from __future__ import annotations

from fencepost import Layout, Role, Slot, Timing, View
from fencepost.random_schedule import _starting

LAYOUT = Layout(
    (
        Slot("controller-1", Role.CONTROLLER, 101, 1),
        Slot("broker-1", Role.BROKER, 1, 2),
        Slot("broker-1-twin", Role.BROKER, 1, 3, twin=True),
        Slot("clients", Role.CLIENT, -1, 4),
    ),
    (),
)
SLOW, QUICK = Timing(300, 3_000, 500, 2_000, 20_000, start_ms=5_000), Timing(1, 1, 1, 1, 1)


def seen() -> View:
    names = ("controller-1", "broker-1", "broker-1-twin")
    newest = {name: f"{name}#2" for name in names}
    return View(newest=newest, alive=set(newest.values()))


def test_a_node_is_out_of_reach_until_it_says_that_it_is_up() -> None:
    view = seen()
    assert _starting(view, LAYOUT, SLOW) == {"controller-1", "broker-1"}
    view.applied["controller-1#2"] = 7
    view.applied["broker-1#2"] = 7  # a broker reads the metadata before it listens
    assert _starting(view, LAYOUT, SLOW) == {"broker-1"}
    view.state["broker-1#2"] = "ACTIVE"
    assert _starting(view, LAYOUT, SLOW) == frozenset()


def test_a_dead_node_does_not_start() -> None:
    view = seen()
    view.alive.clear()
    assert _starting(view, LAYOUT, SLOW) == frozenset()


def test_where_nodes_start_at_once_nobody_is_left_alone() -> None:
    assert _starting(seen(), LAYOUT, QUICK) == frozenset()
