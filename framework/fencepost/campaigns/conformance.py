"""`fencepost conformance`: what each clause comes to on a system and a runtime, by which tests.

The suites run once; each test's verdicts are joined a clause: one violation outweighs all, then one
unknown, then one that holds. A clause is not-applicable where it binds another plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Struct

from fencepost.campaigns.defects import verdicts_in
from fencepost.judging.judge import RECORDED_AS, Outcome, Verdict
from fencepost.judging.rules import Evidence
from fencepost.model.errors import EnvironmentFailed, FencepostError, UsageError
from fencepost.model.systems import System, Versioned
from fencepost.plugins.manager import Plugins
from fencepost.testing import test_run as testrun

_WEIGHT = (Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.HOLDS, Outcome.NOT_EXERCISED)
_STRENGTH = (Evidence.CLIENT, Evidence.PEER, Evidence.SELF)


class MatrixRow(Struct, frozen=True, rename=RECORDED_AS):
    """One clause on one system and runtime; `tests` are those that exercised or violated it.

    `system` is with its version where there are several, also where none was asked for. `reason`
    says why it is not applicable there.
    """

    clause: str
    system: str
    runtime: str
    verdict: Outcome
    exercised: int
    evidence: Evidence | None
    tests: tuple[str, ...]
    known: tuple[str, ...] = ()
    """The known findings that its violations are, where none of them is new."""
    reason: str = ""


class Matrix(Struct, frozen=True):
    """A row a clause, in the clauses' order; `failure` is why some tests, or all, told nothing."""

    rows: Sequence[MatrixRow]
    failure: FencepostError | None


def conformance(
    system: System, runtime: str, plugins: Plugins, out: Path, seed: int | None
) -> Matrix:
    """Runs the suites and joins what they found."""
    collected = testrun.ResultCollector()
    suite = testrun.suite_of(system)
    wanted = testrun.Wanted(system.name, runtime, out, seed=seed, suite=suite)
    ended = testrun.listen_quietly(wanted, collected)
    return Matrix(rows_of(system, runtime, plugins, collected.runs), _failure(ended, collected))


def rows_of(
    system: System, runtime: str, plugins: Plugins, runs: Sequence[testrun.Ran]
) -> Sequence[MatrixRow]:
    """What the verdicts of tests' runs come to together: a row for each declared clause."""
    found = [(ran.nodeid, verdicts_in(ran.folder)) for ran in runs]
    named = system.name
    if isinstance(system, Versioned) and "@" not in named:
        named = f"{named}@{system.version}"
    return [
        _row(clause, named, runtime, found)
        if described.binds(system.plane)
        else MatrixRow(
            clause,
            named,
            runtime,
            Outcome.NOT_APPLICABLE,
            0,
            None,
            (),
            reason=described.unbound(system.plane),
        )
        for clause, described in plugins.clauses.items()
    ]


def _failure(ended: int, collected: testrun.ResultCollector) -> FencepostError | None:
    for kind in (UsageError, EnvironmentFailed):
        if kind.exit_code in collected.codes:
            return kind(collected.codes[kind.exit_code])
    if ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return None
    refused = ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    kind = UsageError if refused else EnvironmentFailed
    return kind(f"the suites could not be run: pytest ended with its exit code {int(ended)}")


def _row(
    clause: str,
    system: str,
    runtime: str,
    found: Iterable[tuple[str, Mapping[str, Verdict]]],
) -> MatrixRow:
    several = [(test, verdicts[clause]) for test, verdicts in found if clause in verdicts]
    outcomes = {verdict.verdict for _, verdict in several}
    exercised = sum(verdict.exercised for _, verdict in several)
    kinds = {verdict.evidence for _, verdict in several if verdict.evidence is not None}
    broken = [verdict for _, verdict in several if verdict.violated]
    new = any(not verdict.known for verdict in broken)
    return MatrixRow(
        clause,
        system,
        runtime,
        next((o for o in _WEIGHT if o in outcomes), Outcome.NOT_EXERCISED),
        exercised,
        next((kind for kind in _STRENGTH if kind in kinds), None),
        tuple(test for test, verdict in several if verdict.exercised or verdict.violated),
        () if new else tuple(sorted({one for v in broken for one in v.known})),
    )
