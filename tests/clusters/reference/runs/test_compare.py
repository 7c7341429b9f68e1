"""The same schedules show where two systems differ, without being shown where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fencepost import EnvironmentFailed, Shape, System, UsageError
from fencepost.campaigns.compare import Compare, Compared, Row, Share, Trial, compare, share
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import schedule
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec

BROKEN, SOUND = "reference/legacy", "reference/classic"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def specs(plugins: Plugins, *defects: str) -> Sequence[RunSpec]:
    """Two systems, the first of them with defects."""
    one = RunSpec(plugins.system(BROKEN), Shape(defects=defects), "simulated", seed=5)
    return one, replace(one, system=plugins.system(SOUND), shape=Shape())


@pytest.mark.slow
def test_a_defect_of_one_system_is_where_they_differ(plugins: Plugins, tmp_path: Path) -> None:
    lines: list[str] = []
    wanted = Compare(specs(plugins, "acks-before-followers"), 4, 5_000, plugins.faults)
    found = compare(wanted, plugins, tmp_path, lines.append)
    assert [(one.number, one.system) for one in found.trials] == [
        (number, system) for number in range(4) for system in (BROKEN, SOUND)
    ]
    row = next(one for one in found.rows() if one.clause == "RP-04")
    assert row.differs
    assert {name: (one.violated, one.of) for name, one in row.shares.items()} == {
        BROKEN: (4, 4),
        SOUND: (0, 4),
    }
    assert (found.troubled(), found.never_started(), len(lines)) == ([], "", 8)
    kept = {Path(one.run) for one in found.trials if not one.clean}
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == kept
    recorded = {
        one.number: RunFolder(Path(one.run)) for one in found.trials if one.system == BROKEN
    }
    again = Compare(wanted.specs, 1, 5_000, (), [recorded[3]])
    followed = compare(again, plugins, tmp_path / "again", lines.append)
    planned = schedule.read(recorded[3].schedule)
    assert {one.faults for one in followed.trials} == {len(planned.injections)}
    assert "RP-04" in [one.clause for one in followed.rows()]


@pytest.mark.slow
def test_recorded_schedules_are_followed_in_clusters_of_the_recorded_shape(
    plugins: Plugins, tmp_path: Path
) -> None:
    """But without its defects: these are a system's own."""
    shape = Shape({"broker": 4}, {"replica.lag.time.max.ms": "900"})
    sound = RunSpec(plugins.system(SOUND), shape, "simulated", seed=5)
    recorded = RunFolder.create(tmp_path / "recorded")
    run_one(sound, plugins, recorded, 5_000, plugins.faults)
    wanted = Compare(specs(plugins, "acks-before-followers"), 1, 1_000, (), [recorded])
    found = compare(wanted, plugins, tmp_path / "runs", print)
    assert (found.troubled(), found.never_started()) == ([], "")
    (broken,) = [RunFolder(Path(one.run)).info() for one in found.trials if not one.clean]
    assert (broken.system, broken.defects) == (BROKEN, ("acks-before-followers",))
    assert (broken.counts, broken.settings) == (shape.counts, shape.settings)


def test_systems_with_other_nodes_are_refused_before_anything_starts(
    plugins: Plugins, tmp_path: Path
) -> None:
    one, other = specs(plugins)
    more = replace(other, shape=Shape({"broker": 4}))
    fits = (
        rf"a schedule of {BROKEN} does not fit {SOUND}: only one of them has broker-4, broker-4-d"
    )
    with pytest.raises(UsageError, match=fits):
        compare(Compare((one, more), 1, 1_000, ()), plugins, tmp_path, print)
    for wrong in ((one,), (one, one), (one, other, one)):
        with pytest.raises(UsageError, match="two systems or more, each once"):
            compare(Compare(wrong, 1, 1_000, ()), plugins, tmp_path, print)
    nothing = Compare((one, other), 1, 1_000, (), [RunFolder(tmp_path / "none")])
    with pytest.raises(UsageError, match="there is no schedule"):
        compare(nothing, plugins, tmp_path, print)
    assert list(tmp_path.iterdir()) == []


class Absent:
    """A system whose software cannot be fetched; otherwise `reference/classic`."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.name = "absent/classic"

    def __getattr__(self, name: str) -> object:
        return getattr(self._system, name)

    def fetch(self) -> str:
        raise EnvironmentFailed("there is no such version")


def test_software_that_cannot_be_fetched_ends_the_comparison_before_anything_starts(
    plugins: Plugins, tmp_path: Path
) -> None:
    one, other = specs(plugins)
    absent: Any = Absent(other.system)
    local = [replace(other, system=absent, runtime="process"), replace(one, runtime="process")]
    with pytest.raises(EnvironmentFailed, match="there is no such version"):
        compare(Compare(local, 1, 1_000, ()), plugins, tmp_path, print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_system_that_does_not_start_ends_the_comparison(plugins: Plugins, tmp_path: Path) -> None:
    one, other = specs(plugins)
    never = replace(one, shape=Shape(settings={"replication.listener.advertised": "0"}))
    found = compare(Compare((other, never), 5, 1_000, ()), plugins, tmp_path, lambda line: None)
    assert [(one.system, one.started) for one in found.trials] == [(SOUND, True), (BROKEN, False)]
    assert found.never_started().startswith(f"{BROKEN} did not start: ")


@pytest.mark.parametrize(
    ("violated", "of", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 4, 0.0, 0.49), (4, 4, 0.51, 1.0), (2, 20, 0.028, 0.301)],
)
def test_a_share_has_wilsons_interval(violated: int, of: int, low: float, high: float) -> None:
    """The last one as in tables of Wilson's interval."""
    assert share(violated, of) == pytest.approx(Share(violated, of, low, high), abs=0.001)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ((0, 4), (4, 4), True),
        ((0, 3), (3, 3), False),
        ((0, 0), (9, 9), False),
        ((9, 9), (9, 9), False),
    ],
)
def test_systems_differ_where_their_intervals_have_nothing_in_common(
    one: tuple[int, int], other: tuple[int, int], differs: bool
) -> None:
    shares = {"one": share(*one), "other": share(*other)}
    assert Row(clause="RP-04", shares=shares, known=()).differs is differs


def trial(system: str, number: int, **verdicts: Outcome) -> Trial:
    return Trial(
        system=system,
        number=number,
        run="",
        verdicts=verdicts,
        known={"A": ("old",)} if verdicts.get("A") is Outcome.VIOLATED else {},
        faults=1,
        without_receipt=0,
    )


def test_only_runs_that_decided_a_clause_are_counted() -> None:
    broken, holds, unknown = Outcome.VIOLATED, Outcome.HOLDS, Outcome.UNKNOWN
    outcomes = [(broken, holds), (unknown, broken), (Outcome.NOT_EXERCISED, holds)]
    trials = [trial("one", number, A=a, B=b) for number, (a, b) in enumerate(outcomes)]
    trials += [trial("other", 0, A=holds, C=unknown)]
    trials.append(msgspec.structs.replace(trial("other", 1), trouble="broker-2#3 ended\nits log"))
    compared = Compared(["one", "other"], trials)
    assert compared.troubled() == ["other, schedule 1: broker-2#3 ended"]
    assert compared.undecided() == ["A", "C"]
    first, second = compared.rows()
    assert (first.clause, first.known, second.clause, second.known) == ("A", ["old"], "B", [])
    assert [(one.violated, one.of) for one in first.shares.values()] == [(1, 1), (0, 1)]
    assert [(one.violated, one.of) for one in second.shares.values()] == [(1, 3), (0, 0)]
