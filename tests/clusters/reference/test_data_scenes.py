"""The promises of the data plane, each in a scene that puts healthy cores to the test."""

from __future__ import annotations

import pytest
from scenes import FINDS, play, reassigned_while_brokers_die

from fencepost.judging.judge import Outcome, judge
from fencepost.plugins.manager import Plugins, load
from fencepost_clusters.reference.defects.catalogue import DEFECTS

BREAKS = {defect.name: defect.breaks for defect in DEFECTS}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("defect", FINDS)
def test_healthy_cores_keep_the_promise_and_exercise_it(
    defect: str, seed: int, plugins: Plugins
) -> None:
    events, end = play(FINDS[defect], seed)
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert BREAKS[defect][0] in judgement.of(Outcome.HOLDS)


@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_committed_is_lost_when_brokers_die_during_a_reassignment(
    seed: int, plugins: Plugins
) -> None:
    events, end = play(reassigned_while_brokers_die, seed)
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert {"RP-20", "RP-06", "JEPSEN-lost-write"} <= set(judgement.of(Outcome.HOLDS))
