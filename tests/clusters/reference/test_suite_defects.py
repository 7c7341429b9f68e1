"""Suites in the simulated runtime find the defects they are aimed at, and alarm at nothing else.

A suite's test is called as it stands, with a defect on: whatever it asserts, the rules must report
a clause that the defect breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import FencepostError, Violation
from fencepost.happened import Happened
from fencepost.judge import Outcome
from fencepost.plugin_manager import Plugins, load
from fencepost.run import Run, RunResult, RunSpec
from fencepost.run_folder import RunFolder
from fencepost.systems import Shape
from fencepost_clusters.reference.core.protections import DEFECTS
from fencepost_suites import test_configuration

BREAKS = {defect.name: defect.breaks for defect in DEFECTS}
FINDS: dict[str, Callable[..., None]] = {
    "admits-a-controllers-id": test_configuration.test_a_broker_with_a_controllers_id_is_refused,
    "anybody-commands-controllers": (
        test_configuration.test_controllers_do_nothing_for_a_client_without_rights
    ),
    "follows-bootstrap-only": (
        test_configuration.test_brokers_follow_a_controller_that_was_replaced_at_a_new_address
    ),
}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def shape_of(test: Callable[..., None]) -> Shape:
    """The shape that a test asks for."""
    marks: list[Any] = getattr(test, "pytestmark", [])
    for mark in marks:
        if mark.name == "parametrize" and mark.args[0] == "fencepost_shape":
            shape = mark.args[1][0]
            assert isinstance(shape, Shape)
            return shape
    return Shape()


def play(
    test: Callable[..., None], seed: int, defects: tuple[str, ...], plugins: Plugins, path: Path
) -> RunResult:
    """Runs a suite's test to its end, whatever it asserts on the way."""
    shape = replace(shape_of(test), defects=defects)
    spec = RunSpec(plugins.system("reference/quorum"), shape, "simulated", seed)
    with Run.start(spec, plugins, RunFolder.create(path)) as run:
        given = {
            "cluster": run.cluster,
            "faults": run.faults,
            "clients": run.clients,
            "history": Happened(run.runtime),
        }
        names = test.__code__.co_varnames[: test.__code__.co_argcount]
        try:
            test(**{name: given[name] for name in names})
        except (AssertionError, FencepostError, Violation):
            assert defects, "a healthy cluster fails the suite"
        return run.finish()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("defect", FINDS)
def test_healthy_clusters_keep_the_promise_and_exercise_it(
    defect: str, seed: int, plugins: Plugins, tmp_path: Path
) -> None:
    result = play(FINDS[defect], seed, (), plugins, tmp_path / "run")
    assert not result.judgement.of(Outcome.VIOLATED)
    assert BREAKS[defect][0] in result.judgement.of(Outcome.HOLDS)


@pytest.mark.parametrize("defect", FINDS)
def test_the_defect_is_found(defect: str, plugins: Plugins, tmp_path: Path) -> None:
    result = play(FINDS[defect], 1, (defect,), plugins, tmp_path / "run")
    assert BREAKS[defect][0] in result.judgement.of(Outcome.VIOLATED)
