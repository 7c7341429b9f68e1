"""A soak joins the findings of many runs: none on a healthy cluster, and every defect that
occurs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import Shape
from fencepost.campaigns.soak import Soak, soak
from fencepost.campaigns.soaked import Soaked, Status
from fencepost.model.errors import EXIT_ENVIRONMENT
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import RunSpec
from fencepost_kafka import kafka_shape

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def soaked(
    plugins: Plugins,
    out: Path,
    *defects: str,
    runs: int,
    quiet: bool = False,
    keep: bool = False,
) -> Soaked:
    shape = Shape(defects=defects)
    spec = RunSpec(plugins.system("reference/quorum"), shape, "simulated", seed=5)
    offered = () if quiet else plugins.faults
    return soak(Soak(spec, runs, 20_000, offered, keep=keep), plugins, out, lambda line: None)


@pytest.mark.parametrize("quiet", [True, False], ids=["without faults", "with faults"])
def test_a_healthy_cluster_comes_out_clean_and_leaves_no_folder(
    plugins: Plugins, tmp_path: Path, quiet: bool
) -> None:
    found = soaked(plugins, tmp_path, runs=2, quiet=quiet)
    assert [run.seed for run in found.runs] == [5, 6]
    assert all((run.faults == 0) is quiet for run in found.runs)
    assert (found.violated(), found.undecided(), found.never_started()) == ([], [], "")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_clean_run_is_kept_if_that_is_asked_for(
    plugins: Plugins, tmp_path: Path
) -> None:
    (run,) = soaked(plugins, tmp_path, runs=1, quiet=True, keep=True).runs
    assert run.status is Status.CLEAN
    assert (Path(run.run) / "verdicts.json").exists()


def test_the_violations_of_a_run_are_reported_with_its_folder(
    plugins: Plugins, tmp_path: Path
) -> None:
    found = soaked(plugins, tmp_path, "serves-without-lease", runs=2)
    assert "QC-17" in found.violated()
    guilty = [run for run in found.runs if "QC-17" in run.violated]
    assert guilty
    assert all((Path(run.run) / "verdicts.json").exists() for run in guilty)


def test_a_cluster_that_does_not_start_is_undecided(plugins: Plugins, tmp_path: Path) -> None:
    shape = kafka_shape(brokers=1, settings={"controller.quorum.election.timeout.ms": "600000"})
    spec = RunSpec(plugins.system("reference/quorum"), shape, "simulated", seed=5)
    found = soak(Soak(spec, 1, 1_000, ()), plugins, tmp_path, lambda line: None)
    assert found.violated() == []
    assert (found.undecided(), found.exit_code()) == ([], EXIT_ENVIRONMENT)
    assert "was not ready" in found.runs[0].trouble
    assert found.never_started() == found.runs[0].trouble
