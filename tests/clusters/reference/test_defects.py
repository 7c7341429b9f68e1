"""Every rule against the cores: no false alarm on healthy clusters, and each defect is found."""

from __future__ import annotations

import metadata_scenes
import node_strikes
import pytest
import test_suite_defects
from chaos import chaos
from scenes import FINDS
from world import World

from fencepost.judge import Outcome, judge
from fencepost.plugin_manager import Plugins, load
from fencepost_clusters.reference.core import quorum_messages
from fencepost_clusters.reference.core.protections import DEFECTS

NEEDS_TWO_CANDIDATES = "votes-twice"
ELSEWHERE = {
    NEEDS_TWO_CANDIDATES, *FINDS, *node_strikes.FINDS, *test_suite_defects.FINDS,
    *metadata_scenes.FINDS,
}  # fmt: skip
"""What no strike of every run is aimed at."""
SEEDS = (1, 2, 3)
"""Some defects need a fault at the right moment: as many schedules are tried."""


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", range(20, 26))
def test_a_healthy_cluster_breaks_no_promise(seed: int, plugins: Plugins) -> None:
    events, end, recovered = chaos(seed)
    assert recovered
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert not judgement.of(Outcome.UNKNOWN)


@pytest.mark.parametrize(
    "defect",
    [d for d in DEFECTS if d.name not in ELSEWHERE],
    ids=lambda d: d.name,
)
def test_a_defect_is_found_by_a_clause_it_breaks(defect: object, plugins: Plugins) -> None:
    assert hasattr(defect, "name")
    assert hasattr(defect, "breaks")
    found = []
    for seed in SEEDS:
        events, end, _ = chaos(seed, (defect.name,))
        judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
        found += judgement.of(Outcome.VIOLATED)
        if set(found) & set(defect.breaks):
            return
    pytest.fail(f"{defect.name} was found by {found} only")


@pytest.mark.parametrize(
    ("defects", "outcome"),
    [((), Outcome.HOLDS), ((NEEDS_TWO_CANDIDATES,), Outcome.VIOLATED)],
    ids=["healthy", "votes-twice"],
)
def test_a_second_candidate_of_one_epoch_gets_no_vote(
    defects: tuple[str, ...], outcome: Outcome, plugins: Plugins
) -> None:
    """Two candidates of one epoch are rare by chance, so one voter is asked by both."""
    world = World(1, defects)  # nobody leads yet, so a voter follows nobody
    voter = "controller-1"
    core = world.alive[voter].core
    for candidate in (102, 103):
        request = quorum_messages.vote(99, candidate, core.log.end + 5, 98)
        world.ask(voter, request, f"controller-{candidate - 100}#1", "CONTROLLER")
    world.run(0.1)
    end = chaos(1)[1]
    judgement = judge(world.events, plugins.rules, plugins.clauses, end, "quorum")
    assert judgement.verdicts["QC-07"].verdict is outcome
