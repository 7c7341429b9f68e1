"""`fencepost conformance`: the outcome of each clause on a system and a runtime, and the tests that
show it.

The suites run once. For each clause the verdicts of all tests are joined: a violation outweighs
everything, then comes unknown, then holds. A clause is not applicable if it binds another plane.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from fencepost.campaigns import endings
from fencepost.campaigns.defects import verdicts_in
from fencepost.judging.findings import Evidence
from fencepost.judging.verdicts import Outcome, Verdict
from fencepost.model.check import is_check
from fencepost.model.errors import (
    EnvironmentFailed,
    FencepostError,
    Inconclusive,
    InternalError,
    UsageError,
)
from fencepost.model.system.capabilities import System, Versioned
from fencepost.model.system.shape import DEFAULT_SHAPE, Shape
from fencepost.plugins.manager import Plugins
from fencepost.testing import test_run as testrun
from fencepost.testing.exit_codes import decisive

_WEIGHT = (Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.HOLDS, Outcome.NOT_EXERCISED)
_STRENGTH = (Evidence.CLIENT, Evidence.PEER, Evidence.SELF)


class MatrixRow(Struct, frozen=True, kw_only=True):
    """One clause on one system and runtime; `tests` are the ones that exercised or violated it.

    `system` includes its version if there are several.
    """

    clause: str
    system: str
    runtime: str
    verdict: Outcome
    exercised: int
    evidence: Evidence | None
    tests: tuple[str, ...]
    violated_by: tuple[str, ...] = ()
    """The tests whose run violated it; if any violation is new, those with a new one."""
    known: tuple[str, ...] = ()
    """The ids of the known findings that explain its violations; empty if any violation is new."""
    expected_by: tuple[str, ...] = ()
    """The tests that were expected to fail (`xfail`), and did as it was violated; empty if any
    violation is new."""
    reason: str = ""
    """Why it is not applicable, or undecided."""
    follows: str = ""
    """The violated clause because of which alone it is undecided."""
    says: str = ""
    """The sentence of a check: no plugin has it."""

    @property
    def is_new(self) -> bool:
        """Whether it is violated, and neither a known finding nor an expected failure of a test
        says so: such a violation ends a command with 1, as any failed test does."""
        return self.verdict is Outcome.VIOLATED and not self.known and not self.expected_by


class Matrix(Struct, frozen=True):
    """One row per clause, in the clauses' order, or none if pytest ran no test; `failure` is why
    some or all tests gave no verdict. `failed` are the tests that failed, for whatever reason."""

    rows: Sequence[MatrixRow]
    failure: FencepostError | None
    failed: tuple[str, ...] = ()
    places: Mapping[str, str] = {}
    """A test that failed -> the words that name it in any folder."""
    seed: int | None = None
    """The seed of the runs; None if there was none."""

    @property
    def tried(self) -> bool:
        """Whether any test had a run of its own."""
        return self.seed is not None

    @property
    def suspects(self) -> Sequence[str]:
        """The tests to run again: those that violated a clause anew, or else those that failed."""
        new = [row for row in self.rows if row.is_new]
        return [test for row in new for test in row.violated_by] or self.failed


def conformance(
    system: System,
    runtime: str,
    *,
    plugins: Plugins,
    out: Path,
    seed: int | str | None,
    tests: str | None = None,
    shape: Shape = DEFAULT_SHAPE,
    report: Callable[[str], None] = lambda line: None,
) -> Matrix:
    """Runs the suite of the system, or the tests at a path, and joins their verdicts. The clusters
    have the `shape`, but for what a test asks for. `report` gets a line for each test that ended.
    """
    report(f"{system.name} on {runtime}")
    collected = testrun.ResultCollector(report=report)
    suite = testrun.suite_of(system)
    wanted = testrun.Wanted(
        system.name,
        runtime,
        out,
        seed=seed,
        shape=shape,
        tests=(tests,) if tests else (),
        suite=suite,
    )
    ended = testrun.listen_quietly(wanted, collected)
    ran = collected.runs or ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    failed = tuple(str(one["test"]) for one in collected.tests if one["outcome"] == "failed")
    return Matrix(
        rows_of(system, runtime, plugins, collected.runs) if ran else (),
        _failure(ended, collected),
        failed,
        {test: collected.place_of(test) for test in failed},
        next((ran.folder.info().seed for ran in collected.runs), None),
    )


def rows_of(
    system: System, runtime: str, plugins: Plugins, runs: Sequence[testrun.Ran]
) -> Sequence[MatrixRow]:
    """The joined verdicts of the tests' runs: one row for each declared clause, then for each check
    of the tests'."""
    found = [(ran.nodeid, verdicts_in(ran.folder)) for ran in runs]
    expecting = {ran.nodeid for ran in runs if ran.expected}
    named = system.name
    if isinstance(system, Versioned) and "@" not in named:
        named = f"{named}@{system.version}"
    checks = {
        clause: verdict.sentence
        for _, verdicts in found
        for clause, verdict in verdicts.items()
        if is_check(clause)
    }
    declared = [
        _row(clause, named, runtime, found, expecting)
        if described.binds(system.plane)
        else MatrixRow(
            clause=clause,
            system=named,
            runtime=runtime,
            verdict=Outcome.NOT_APPLICABLE,
            exercised=0,
            evidence=None,
            tests=(),
            reason=described.unbound(system.plane),
        )
        for clause, described in plugins.clauses.items()
    ]
    own = [
        replace(_row(check, named, runtime, found, expecting), says=says)
        for check, says in checks.items()
    ]
    return [*declared, *own]


def undecided(rows: Iterable[MatrixRow]) -> Mapping[str, str]:
    """The clauses that are undecided for a reason of their own -> the reason."""
    return {r.clause: r.reason for r in rows if r.verdict is Outcome.UNKNOWN and not r.follows}


def violated(rows: Iterable[MatrixRow]) -> Sequence[str]:
    """How many clauses are violated anew, as known and as a test expects, in words."""
    rows = [row for row in rows if row.verdict is Outcome.VIOLATED]
    new, known = sum(row.is_new for row in rows), sum(bool(row.known) for row in rows)
    return endings.violated(new, known, len(rows) - new - known)


def expected(rows: Iterable[MatrixRow]) -> Iterator[str]:
    """The violations that a test expects, a line for each clause."""
    for row in rows:
        if row.expected_by:
            yield f"expected: {row.clause} is violated in {endings.few(row.expected_by)}"


def _failure(ended: int, collected: testrun.ResultCollector) -> FencepostError | None:
    for kind in (InternalError, UsageError, EnvironmentFailed):
        if kind.exit_code in collected.codes:
            return kind(collected.codes[kind.exit_code])
    if decisive(collected.codes) == Inconclusive.exit_code:
        return Inconclusive(collected.codes[Inconclusive.exit_code])
    if ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return None
    if ended == pytest.ExitCode.INTERNAL_ERROR:
        return InternalError("pytest failed while it ran the suites")
    refused = ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    kind = UsageError if refused else EnvironmentFailed
    return kind(f"the suites could not be run: pytest ended with its exit code {int(ended)}")


def _row(
    clause: str,
    system: str,
    runtime: str,
    found: Iterable[tuple[str, Mapping[str, Verdict]]],
    expecting: Collection[str] = (),
) -> MatrixRow:
    """The joined verdicts of a clause; `expecting` are the tests that failed as expected."""
    several = [(test, verdicts[clause]) for test, verdicts in found if clause in verdicts]
    outcomes = {verdict.verdict for _, verdict in several}
    exercised = sum(verdict.exercised for _, verdict in several)
    kinds = {verdict.evidence for _, verdict in several if verdict.evidence is not None}
    broken = [(test, verdict) for test, verdict in several if verdict.violated]
    unexplained = [(test, verdict) for test, verdict in broken if not verdict.known]
    new = [test for test, _ in unexplained if test not in expecting]
    unsure = [verdict for _, verdict in several if verdict.verdict is Outcome.UNKNOWN]
    alone = [verdict for verdict in unsure if not verdict.follows]
    return MatrixRow(
        clause=clause,
        system=system,
        runtime=runtime,
        verdict=next((o for o in _WEIGHT if o in outcomes), Outcome.NOT_EXERCISED),
        exercised=exercised,
        evidence=next((kind for kind in _STRENGTH if kind in kinds), None),
        tests=tuple(test for test, verdict in several if verdict.exercised or verdict.violated),
        violated_by=tuple(new or [test for test, _ in broken]),
        known=() if new else tuple(sorted({one for _, v in broken for one in v.known})),
        expected_by=() if new else tuple(test for test, _ in unexplained),
        reason=next((one.reason for one in (*alone, *unsure)), ""),
        follows="" if alone else next((one.follows for one in unsure), ""),
    )
