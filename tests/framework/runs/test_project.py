"""The apps and the checks of a project: what its pyproject.toml says of each of its runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.echo_node import EchoSystem

from fencepost import Program, Ready, Shape, UsageError
from fencepost.runs.default_faults import WithApps
from fencepost.runs.project import checks_in, of_project
from fencepost.runs.random_schedule import chooser_of
from fencepost.runs.run import RunSpec, check_spec

TABLE = """
[tool.fencepost]
checks = ["own/checks.py"]

[[tool.fencepost.app]]
name = "billing"
instances = 2
argv = ["java", "-jar", "billing.jar", "{bootstrap}"]
folder = "service"
environment = { DB_PASSWORD = "hunter2" }
ready = { url = "http://{address}:8080/health" }
works_again_ms = 10_000
struck = true

[[tool.fencepost.app]]
name = "mail"
argv = ["mail"]
"""
CHECKS = """
import fencepost

@fencepost.check("it holds")
def holds(run):
    pass
"""
ASKED = RunSpec(EchoSystem())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "checks.py").write_text(CHECKS)
    return tmp_path


def test_a_run_of_a_project_has_its_apps_and_checks(project: Path) -> None:
    spec = of_project(ASKED, project / "own")
    assert spec.shape.apps == {"billing": 2, "mail": 1}
    billing, mail = spec.programs
    assert billing.ready == Ready(url="http://{address}:8080/health")
    assert (billing.folder, mail.folder) == (str(project / "service"), str(project))
    assert [one.id for one in spec.checks] == ["CHECK-holds"]
    chooser = chooser_of(spec)
    assert isinstance(chooser, WithApps)
    assert chooser.apps.apps == ("billing",)
    check_spec(spec)


def test_what_a_run_says_itself_is_stronger(project: Path) -> None:
    own = Program(name="billing", argv=("other",))
    asked = RunSpec(EchoSystem(), Shape(apps={"billing": 3}), programs=(own,))
    spec = of_project(asked, project)
    assert spec.shape.apps == {"billing": 3, "mail": 1}
    assert [one.argv[0] for one in spec.programs] == ["other", "mail"]


def test_without_a_table_a_run_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    assert of_project(ASKED, tmp_path) == ASKED


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TABLE.replace('"mail"\n', '"billing"\n'), "two apps have one name"),
        (TABLE.replace('argv = ["mail"]', "argv = []"), "its argv is empty"),
        (TABLE.replace("instances = 2", "instance = 2"), "instance"),
        (TABLE.replace("works_again_ms", "ready_mss"), "ready_mss"),
    ],
)
def test_a_wrong_table_is_refused(project: Path, table: str, says: str) -> None:
    (project / "pyproject.toml").write_text(table)
    with pytest.raises(UsageError, match=says):
        of_project(ASKED, project)


def test_two_checks_of_one_name_are_refused_and_one_that_was_imported_twice_is_one(
    project: Path,
) -> None:
    asked = RunSpec(EchoSystem(), checks=tuple(checks_in([str(project / "own" / "checks.py")])))
    assert len(of_project(asked, project).checks) == 1
    (project / "own" / "checks.py").write_text(CHECKS.replace("pass", "assert False"))
    with pytest.raises(UsageError, match="two checks are named CHECK-holds"):
        of_project(asked, project)


def test_the_simulator_runs_no_app(project: Path) -> None:
    asked = RunSpec(EchoSystem(), runtime="simulated")
    with pytest.raises(UsageError, match="apps are programs"):
        check_spec(of_project(asked, project))
