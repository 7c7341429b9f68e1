"""Every rule against bare cores under the strikes of `chaos`: a healthy cluster is never blamed."""

from __future__ import annotations

import pytest
from chaos import chaos
from world import World

from fencepost.judging.judge import Outcome, judge
from fencepost.plugins.manager import Plugins, load
from fencepost_clusters.reference.core.quorum.raft import messages as quorum_messages

NEEDS_TWO_CANDIDATES = "votes-twice"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", range(20, 22))
def test_a_healthy_cluster_breaks_no_promise(seed: int, plugins: Plugins) -> None:
    events, end, recovered = chaos(seed)
    assert recovered
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert not judgement.of(Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("defects", "outcome"),
    [((), Outcome.HOLDS), ((NEEDS_TWO_CANDIDATES,), Outcome.VIOLATED)],
    ids=["healthy", "votes-twice"],
)
def test_a_second_candidate_of_one_epoch_gets_no_vote(
    defects: tuple[str, ...], outcome: Outcome, plugins: Plugins
) -> None:
    """Two candidates of one epoch are rare by chance, so one voter is asked by both."""
    world = World(1, defects)  # there is no leader yet that a voter could follow
    voter = "controller-1"
    core = world.alive[voter].core
    for candidate in (102, 103):
        request = quorum_messages.vote(99, candidate, core.log.end + 5, 98)
        world.ask(voter, request, f"controller-{candidate - 100}#1", "CONTROLLER")
    world.run(0.1)
    end = chaos(1)[1]
    judgement = judge(world.events, plugins.rules, plugins.clauses, end, "quorum")
    assert judgement.verdicts["QC-07"].verdict is outcome
