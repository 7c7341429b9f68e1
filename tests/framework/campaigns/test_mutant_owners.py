"""Mutants of several systems' code: under whose suite each is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost import UsageError
from fencepost.campaigns.mutants.campaign import Campaign
from fencepost.campaigns.mutants.owners import Owners, changeable
from fencepost.plugins.manager import Plugins, load

REFERENCE = "fencepost_clusters.reference"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def owners(plugins: Plugins, *names: str, paths: Sequence[str] = ()) -> Owners:
    campaigns = [
        Campaign(system=one, paths=paths, jobs=1, seeds=0, span_ms=1_000, report=lambda line: None)
        for one in changeable(plugins.systems.values())
    ]
    return Owners(campaigns, names)


@pytest.mark.parametrize(
    ("module", "systems"),
    [
        ("core.cluster.topics", {"reference/quorum"}),
        ("core.quorum.raft.raft", {"reference/quorum"}),
        ("legacy.core.controller.controller", {"reference/legacy"}),
        ("classic.core.elections", {"reference/classic"}),
        ("over_zookeeper.core.registering", {"reference/legacy", "reference/classic"}),
    ],
)
def test_a_change_is_tried_in_the_systems_whose_decision_it_is(
    plugins: Plugins, module: str, systems: set[str]
) -> None:
    owned = owners(plugins).owned[f"{REFERENCE}.{module}"]
    assert {one.system.name for one in owned} == systems


def test_changes_are_drawn_from_the_code_of_all_systems(plugins: Plugins) -> None:
    drawn = owners(plugins).drawn(60, 1)
    assert drawn == owners(plugins).drawn(60, 1)
    planes = {one.module.removeprefix(f"{REFERENCE}.").partition(".")[0] for one in drawn}
    assert {"core", "legacy", "classic"} <= planes


def test_changes_of_one_module_are_drawn_from_it_alone(plugins: Plugins) -> None:
    module = f"{REFERENCE}.classic.core.elections"
    assert {one.module for one in owners(plugins, module).drawn(10, 1)} == {module}


def test_a_module_that_no_system_names_needs_tests(plugins: Plugins) -> None:
    with pytest.raises(UsageError, match=r"fencepost_suites\.rules as its own"):
        owners(plugins, "fencepost_suites.rules").drawn(1, 1)


def test_a_place_may_be_of_any_system(plugins: Plugins) -> None:
    first = owners(plugins, f"{REFERENCE}.classic.core.elections").drawn(1, 1)[0]
    assert first in owners(plugins).at([f"classic.core.elections:{first.line}"])
    with pytest.raises(UsageError, match="nothing to change at nowhere:1"):
        owners(plugins).at(["nowhere:1"])


@pytest.mark.tool
@pytest.mark.nightly
def test_a_change_of_the_classic_plane_is_noticed_by_its_own_suite(plugins: Plugins) -> None:
    cores = Path(__file__).parents[2] / "clusters/reference/cores/test_classic_elections.py"
    some = owners(plugins, f"{REFERENCE}.classic.core.elections", paths=[str(cores)])
    won = [one for one in some.drawn(10**6, 1) if one.was == "not won"]
    (tried,) = some.run(won).mutants
    assert tried.noticed_by
