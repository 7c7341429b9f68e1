"""The suites on the reference cluster, simulated: every test passes, and every clause holds."""

from __future__ import annotations

import pytest

from fencepost.campaigns.conformance import Matrix, conformance
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import load

pytestmark = pytest.mark.slow

BOUND = {"reference/quorum": 91, "reference/legacy": 85, "reference/classic": 52}
"""How many clauses bind each system."""
SHOWN_BY_PROCESSES_ONLY = {"QC-25", "QC-37"}
"""Metrics: the simulator has no page to look at."""
OF_PROGRAMS = {"APP-runs", "APP-works-again"}
"""The suites start no program of a user's."""


@pytest.fixture(scope="module", params=sorted(BOUND))
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    plugins = load()
    out = tmp_path_factory.mktemp("matrix")
    system = plugins.system(request.param)
    return conformance(system, "simulated", plugins=plugins, out=out, seed=1)


def test_every_clause_of_the_plane_holds_in_the_simulator(matrix: Matrix) -> None:
    assert matrix.failure is None
    assert matrix.failed == ()
    bound = [row for row in matrix.rows if row.verdict is not Outcome.NOT_APPLICABLE]
    assert len(bound) == BOUND[matrix.rows[0].system]
    rest = {row.clause: row.verdict for row in bound if row.verdict is not Outcome.HOLDS}
    assert set(rest.values()) <= {Outcome.NOT_EXERCISED}
    assert set(rest) <= SHOWN_BY_PROCESSES_ONLY | OF_PROGRAMS


def test_a_row_has_its_evidence_and_its_tests(matrix: Matrix) -> None:
    row = next(row for row in matrix.rows if row.clause == "JEPSEN-lost-write")
    assert row.exercised > 0
    assert row.evidence == "client"
    assert any("test_acked_writes_survive_failover" in test for test in row.tests)
