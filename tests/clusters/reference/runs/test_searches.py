"""Every defect of the reference cluster is found, and no violation is reported on a healthy one.

A defect of the data plane, which all planes have, is looked for on the quorum plane;
`fencepost defects` looks for each defect of a system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost import Defect, UsageError
from fencepost.campaigns.defects import (
    BUDGETS,
    FalseAlarm,
    Results,
    Search,
    Searcher,
    search_all,
    search_clean,
)
from fencepost.plugins.manager import Plugins, load
from fencepost_clusters.apache_kafka.cluster import KRaft
from fencepost_clusters.reference.classic import defects as without_controller
from fencepost_clusters.reference.defects.catalogue import DEFECTS
from fencepost_clusters.reference.legacy import defects as over_zookeeper

pytestmark = pytest.mark.slow

CLEAN_SEEDS = 5


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


QUORUM, LEGACY = "reference/quorum", "reference/legacy"
CLASSIC = "reference/classic"


def searcher(plugins: Plugins, out: Path, system: str = QUORUM, clean_seeds: int = 0) -> Searcher:
    budget = replace(BUDGETS["simulated"], clean_seeds=clean_seeds)
    return Searcher(
        system=plugins.system(system),
        runtime="simulated",
        plugins=plugins,
        out=out,
        budget=budget,
        report=lambda line: None,
    )


@pytest.mark.parametrize(
    ("system", "defect"),
    [
        *((QUORUM, one.name) for one in DEFECTS),
        *((LEGACY, one.defect.name) for one in over_zookeeper.DEFECTS),
        *((CLASSIC, one.defect.name) for one in without_controller.DEFECTS),
    ],
)
def test_a_defect_is_found_by_a_clause_it_breaks(
    system: str, defect: str, plugins: Plugins, tmp_path: Path
) -> None:
    searching = searcher(plugins, tmp_path, system)
    (chosen,) = searching.chosen([defect])
    search = searching.search(chosen)
    assert search.found, search.as_json()


def test_a_defect_that_a_runtime_cannot_show_is_not_looked_for_there(
    plugins: Plugins, tmp_path: Path
) -> None:
    searching = replace(searcher(plugins, tmp_path), runtime="process")
    results = search_all(searching, ["registers-unrecovered"]).as_json()
    assert results["defects"] == []
    assert [one["name"] for one in results["unseen"]] == ["registers-unrecovered"]


@pytest.mark.parametrize("system", [QUORUM, LEGACY, CLASSIC])
def test_a_healthy_cluster_is_blamed_for_nothing(
    system: str, plugins: Plugins, tmp_path: Path
) -> None:
    results = Results()
    search_clean(searcher(plugins, tmp_path, system, CLEAN_SEEDS), results)
    clean = {"seeds": CLEAN_SEEDS, "false_alarms": [], "forfeited": []}
    assert results.as_json()["clean"] == clean


def test_a_search_in_which_no_cluster_got_ready_reports_why() -> None:
    here = Search(DEFECTS[0], not_ready="no processor")
    found = Search(DEFECTS[1], reported_by=DEFECTS[1].breaks)
    assert Results([here]).never_started() == "no processor"
    assert Results([here], clean_seeds=2, not_ready=["no", "no"]).never_started() == "no processor"
    assert Results(clean_seeds=1, not_ready=["no"]).never_started() == "no"
    assert Results([here], clean_seeds=2, not_ready=["no"]).never_started() == ""
    assert Results([here, found]).never_started() == ""
    assert Results([here, Search(DEFECTS[1])]).never_started() == ""
    assert Results().never_started() == ""


def test_what_was_not_found_and_each_false_alarm_is_printed() -> None:
    found = Search(DEFECTS[1], reported_by=DEFECTS[1].breaks)
    alarm = FalseAlarm(7, "QC-21", "broker 2 was given broker epoch 4", "run-7")
    results = Results([Search(DEFECTS[0]), found], {}, 2, [alarm])
    printed = [
        "1 of 2 defects found by a clause they break",
        f"  not found: {DEFECTS[0].name}",
        "1 false alarm over 2 seeds",
        "  seed 7, QC-21: broker 2 was given broker epoch 4 (run-7)",
    ]
    assert list(results.lines()) == printed
    results.forfeited |= {9: "all was lost", 3: "its disks were lost"}
    last = "2 of these seeds were not judged to the end of their runs; seed 3: its disks were lost"
    assert list(results.lines()) == [*printed, last]
    reasons = [
        {"seed": 3, "reason": "its disks were lost"},
        {"seed": 9, "reason": "all was lost"},
    ]
    assert results.as_json()["clean"]["forfeited"] == reasons  # type: ignore[index]


def test_what_an_interrupt_left_open_is_named() -> None:
    found = Search(DEFECTS[1], reported_by=DEFECTS[1].breaks)
    assert list(Results([found], left=["loses-votes"]).lines()) == [
        "1 of 1 defect found by a clause they break",
        "1 defect not searched for to the end: loses-votes",
    ]


class Defective(KRaft):
    """A system that does not run in the simulator, and has a defect. (A method that is set on
    `KRaft` for a test would stay: a class that once satisfied a protocol does so for good.)"""

    def defects(self) -> Sequence[Defect]:
        return DEFECTS[:1]


def test_a_runtime_that_cannot_run_the_system_is_refused_before_anything_runs(
    plugins: Plugins, tmp_path: Path
) -> None:
    searching = replace(searcher(plugins, tmp_path, clean_seeds=1), system=Defective())
    with pytest.raises(UsageError, match="runs on process and docker, and not on simulated"):
        search_all(searching)
    assert not list(tmp_path.iterdir())


def test_an_unknown_defect_is_refused_with_the_nearest_name(
    plugins: Plugins, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="votes-twice"):
        searcher(plugins, tmp_path).chosen(["vote-twice"])
