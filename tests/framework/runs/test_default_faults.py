"""Random faults of a system that has no chooser of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - seeded streams

import pytest

from fencepost import Holders, Layout, Link, Moment, Planned, ProcessSpawned, Slot, UsageError, View
from fencepost.commands import soak
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs import random_schedule, schedule
from fencepost.runs.default_faults import DefaultFaultChooser
from fencepost.runs.run import POWERED, RunSpec
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost.testing import HistoryBuilder

SERVER, WATCHER = "redis", "sentinel"
SLOTS = (
    Slot("redis-1", SERVER, 1, 1),
    Slot("redis-2", SERVER, 2, 2),
    Slot("sentinel-1", WATCHER, 3, 3),
    Slot("alone-1", "alone", 4, 4),
)
LAYOUT = Layout(
    SLOTS,
    (
        Link("redis-1", "redis-2", 6379),
        Link("redis-2", "redis-1", 6379),
        Link("sentinel-1", "redis-1", 6379),
        Link("sentinel-1", "redis-2", 6379),
    ),
)
"""A redis never dials a sentinel, and nothing is joined with the last node."""
CHOOSER = DefaultFaultChooser(recovery_bound_ms=1000)


def everything_runs() -> View:
    built = HistoryBuilder()
    view = View([Holders], LAYOUT.roles)
    for slot in SLOTS:
        built.add(
            "harness",
            ProcessSpawned(
                started=f"{slot.name}#1",
                slot=slot.name,
                role=slot.role,
                node_id=slot.node_id,
                pid=1,
            ),
        )
    for event in built.events():
        view.apply(event)
    return view


def drawn(used: Collection[Link] = LAYOUT.links, *, of: Sequence[str]) -> list[Planned]:
    moment = Moment(
        everything_runs(), LAYOUT, of, in_use=lambda links: not set(used).isdisjoint(links)
    )
    found = (CHOOSER.draw(Random(f"{n}"), moment) for n in range(300))
    return [one for one in found if one is not None]


def ends(planned: Planned) -> tuple[object, object]:
    return planned.arguments["sources"], planned.arguments["targets"]


def test_only_links_of_the_layout_are_slowed_in_the_direction_that_they_are_dialled() -> None:
    pairs = {ends(one) for one in drawn(of=["slow_link"])}
    assert pairs == {(link.source, link.target) for link in LAYOUT.links}


def test_a_cut_joins_two_nodes_that_have_a_link_whichever_dials() -> None:
    both = {(link.source, link.target) for link in LAYOUT.links}
    both |= {(target, source) for source, target in both}
    assert {ends(one) for one in drawn(of=["cut"])} == both


def test_only_links_in_use_are_slowed_cut_and_isolated() -> None:
    used = [Link("redis-2", "redis-1", 6379)]
    assert {ends(one) for one in drawn(used, of=["slow_link"])} == {("redis-2", "redis-1")}
    both = {("redis-2", "redis-1"), ("redis-1", "redis-2")}
    assert {ends(one) for one in drawn(used, of=["cut"])} == both
    assert {one.arguments["node"] for one in drawn(used, of=["isolate"])} == {"redis-1", "redis-2"}
    assert drawn((), of=["slow_link", "cut", "isolate"]) == []


def test_a_node_without_links_is_not_isolated_but_killed() -> None:
    victims = {one.arguments["node"] for one in drawn(of=["isolate"])}
    assert victims == {"redis-1", "redis-2", "sentinel-1"}
    assert "alone-1" in {one.arguments["node"] for one in drawn(of=["kill"])}


def test_a_weight_of_what_is_never_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "chooser_of", lambda spec: CHOOSER)
    loaded = load()
    spec = RunSpec(loaded.system("etcd/cluster"))
    given = ["slow_link=0", "kill=3"]
    assert soak._weights(given, loaded, spec) == {"slow_link": 0, "kill": 3}
    with pytest.raises(UsageError) as refused:
        soak._weights(["duplicate_id=5"], loaded, spec)
    assert str(refused.value) == (
        "'duplicate_id' is never drawn for etcd/cluster, "
        "but cut, isolate, kill, pause, slow_link, terminate are"
    )
    with pytest.raises(UsageError) as unknown:
        soak._weights(["reassign=5"], loaded, spec)
    assert str(unknown.value) == (
        "no operation named 'reassign'; known: cut, isolate, kill, pause, slow_link, terminate"
    )


def test_a_loss_of_power_has_a_weight_only_where_it_is_drawn() -> None:
    loaded = load()
    quorum = loaded.system("reference/quorum")
    given = ["lose_power=1000"]
    assert soak._weights(given, loaded, RunSpec(quorum, runtime="simulated")) == {
        "lose_power": 1000
    }
    for runtime in ("process", "docker"):
        with pytest.raises(UsageError, match=f"'lose_power' is never drawn on {runtime}, but "):
            soak._weights(given, loaded, RunSpec(quorum, runtime=runtime))


def test_the_runtimes_that_lose_power_are_known_by_name() -> None:
    assert {"simulated"} == POWERED
    assert hasattr(SimulatedRuntime, "lose_power")
    assert not hasattr(ProcessRuntime, "lose_power")


class Misfits:
    """Draws a fault of a node that there is not."""

    mending_ms = 0

    def draw(self, random: Random, moment: Moment) -> Planned:
        return Planned("kill", {"node": "nowhere-1"}, 1_000, frozenset())


def test_a_draw_that_cannot_be_injected_is_skipped_recorded_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_schedule, "chooser_of", lambda spec: Misfits())
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=3, lossy=True)
    folder = RunFolder.create(tmp_path / "run")
    conducted = random_schedule.run_one(spec, plugins, folder, 5_000, ["kill"])
    assert (conducted.trouble, conducted.result is not None) == ("", True)
    recorded = schedule.read(folder.schedule)
    assert recorded.injections == ()
    assert {one.fault for one in recorded.skipped} == {"kill"}
    assert {one.why for one in recorded.skipped} == {recorded.skipped[0].why}
    assert "nowhere-1" in recorded.skipped[0].why


def test_a_connection_that_closes_while_a_fault_is_drawn_ends_no_run() -> None:
    """Redis closes and opens its connections to sentinels all the time."""
    asked: list[Link] = []

    def in_use(links: Sequence[Link]) -> bool:
        open_now = not set(asked) & set(links)
        asked.extend(links)
        return open_now

    drawn_names = set()
    for number in range(300):
        asked.clear()
        moment = Moment(everything_runs(), LAYOUT, ("slow_link", "cut"), in_use=in_use)
        planned = CHOOSER.draw(Random(f"{number}"), moment)
        drawn_names |= {planned.fault} if planned else set()
    assert drawn_names == {"slow_link", "cut"}
