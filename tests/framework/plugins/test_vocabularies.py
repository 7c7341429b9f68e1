"""Clauses about the events of a vocabulary bind the systems that record such events."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from msgspec import Struct

from fencepost import Shape
from fencepost.judging.rules import Clause
from fencepost.model.view import Fold
from fencepost.plugins.manager import _bound, load


class OwnFold(Fold):
    """A fold of this package."""


class Swarm:
    """A system of the plane `swarm`, with folds."""

    plane = "swarm"

    def __init__(self, *folds: type[Fold]) -> None:
        self.folds = folds


@pytest.mark.parametrize(
    ("vocabulary", "planes", "folds", "binds"),
    [
        ("tests", (), (OwnFold,), True),
        ("fencepost_kafka", (), (OwnFold,), False),
        ("tests", (), (), False),
        ("", (), (), True),
        ("tests", ("quorum",), (OwnFold,), False),
    ],
)
def test_a_clause_of_a_vocabulary_binds_the_systems_whose_folds_are_of_it(
    vocabulary: str, planes: tuple[str, ...], folds: tuple[type[Fold], ...], binds: bool
) -> None:
    clause = Clause("X-1", "x", planes, "It holds.", vocabulary=vocabulary)
    found = _bound({"X-1": clause}, [Swarm(*folds)])
    assert found["X-1"].binds("swarm") is binds


class Bounded(Swarm):
    """A system that states its bounds."""

    def stated(self, shape: Shape) -> Sequence[Struct]:
        return ()


@pytest.mark.parametrize(("system", "binds"), [(Bounded, True), (Swarm, False)])
def test_a_clause_that_is_judged_by_bounds_binds_the_systems_that_state_some(
    system: type[Swarm], binds: bool
) -> None:
    clause = Clause("X-1", "x", (), "It holds.", vocabulary="tests", bounded=True)
    assert _bound({"X-1": clause}, [system(OwnFold)])["X-1"].binds("swarm") is binds


def test_no_clause_about_partitions_binds_a_system_that_has_none() -> None:
    """A stranger's tables were full of Kafka's rows."""
    binding = [name for name, clause in load().clauses.items() if clause.binds("redis-sentinel")]
    assert binding == ["APP-runs", "APP-works-again", "AVAIL-running", "AVAIL-stopped"]


FOREIGN = """
import sys
from fencepost import Layout, Workload, hookimpl
from fencepost.plugins.manager import load

class Swarm:
    name, plane, workload = "acme/swarm", "swarm", "acme"
    counts, folds = {}, ()

    def layout(self, shape):
        return Layout((), ())

    def missing(self, view, layout):
        return ()

    def recovery_bound_ms(self, shape):
        return 1_000

    def command(self, place, shape):
        raise NotImplementedError

class Plugin:
    @staticmethod
    @hookimpl
    def fencepost_systems():
        return [Swarm()]

    @staticmethod
    @hookimpl
    def fencepost_workloads():
        return {"acme": Workload(("-m", "acme"))}

plugins = load({"acme": Plugin}, system=sys.argv[1])
print(sorted({name.partition(".")[0] for name in sys.modules if name.startswith("fencepost_")}))
print(sorted(plugins.systems))
print(sorted(plugins.clauses))
"""


@pytest.mark.tool
@pytest.mark.parametrize(("system", "kafka"), [("acme/swarm", False), ("reference/quorum", True)])
def test_a_run_of_another_system_loads_nothing_of_kafka(system: str, kafka: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", FOREIGN, system],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    packages, systems, clauses = ran.stdout.splitlines()
    every = "['APP-runs', 'APP-works-again', 'AVAIL-running', 'AVAIL-stopped']"
    assert (clauses == every) is not kafka
    assert ("fencepost_kafka" in packages) is kafka
    assert ("reference/quorum" in systems) is kafka
    assert "acme/swarm" in systems
