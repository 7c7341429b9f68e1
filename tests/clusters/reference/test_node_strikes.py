"""The rules about a broker's life against bare cores: a healthy cluster is never blamed."""

from __future__ import annotations

import pytest
from chaos import chaos
from node_strikes import STRIKES

from fencepost.judging.judge import Outcome, judge
from fencepost.plugins.manager import Plugins, load

CLAUSES = ("QC-31", "REG-02", "REG-01", "REG-06", "REG-07", "REG-08", "REG-09")


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", range(30, 32))
def test_a_healthy_cluster_breaks_no_promise(seed: int, plugins: Plugins) -> None:
    events, end, recovered = chaos(seed, strikes=STRIKES)
    assert recovered
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert not judgement.of(Outcome.UNKNOWN)
    assert set(CLAUSES) <= set(judgement.of(Outcome.HOLDS))
