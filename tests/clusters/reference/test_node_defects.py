"""The rules about a broker's life against the cores: no false alarm, and each defect is found."""

from __future__ import annotations

import pytest
from chaos import chaos
from node_strikes import FINDS, STRIKES

from fencepost.judge import Outcome, judge
from fencepost.plugin_manager import Plugins, load
from fencepost_clusters.reference.core.protections import DEFECTS

CLAUSES = ("QC-31", "REG-02", "REG-01", "REG-06", "REG-07", "REG-08", "REG-09")


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", range(30, 36))
def test_a_healthy_cluster_breaks_no_promise(seed: int, plugins: Plugins) -> None:
    events, end, recovered = chaos(seed, strikes=STRIKES)
    assert recovered
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert not judgement.of(Outcome.UNKNOWN)
    assert set(CLAUSES) <= set(judgement.of(Outcome.HOLDS))


@pytest.mark.parametrize("name", FINDS)
def test_a_defect_is_found_by_a_clause_it_breaks(name: str, plugins: Plugins) -> None:
    (defect,) = (one for one in DEFECTS if one.name == name)
    events, end, _ = chaos(1, (name,), STRIKES)
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert defect.breaks[0] in judgement.of(Outcome.VIOLATED)
