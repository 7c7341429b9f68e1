"""A plain installation, from the wheel, in an empty folder, without a checkout or an extra."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.third_party.environment import Environment
from zookeeper_servers import available

from fencepost.model.errors import EnvironmentFailed
from fencepost.model.extras import EXTRAS, check_extra

pytestmark = pytest.mark.tool

LEFT_OUT = [module for extra in ("spark", "docker") for module in EXTRAS[extra]]
WITHOUT = f"import sys; sys.modules |= dict.fromkeys({LEFT_OUT})"
"""A sitecustomize: as if these modules were not installed. Pytest loads Allure's plugin here."""
OWN_TEST = """
def test_a_leader_is_killed(cluster, faults, clients):
    clients.produce("orders")
    with faults.kill(cluster.leader("orders", 0)):
        pass
"""


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which programs find no module of an extra."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_a_users_own_test_and_its_report_need_no_extra(
    environment: Environment, plain: Path
) -> None:
    (plain / "test_own.py").write_text(OWN_TEST)
    ended = environment.run(plain, "fencepost", "run", "test_own.py", "--runtime", "simulated")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 fault was injected, each with a receipt" in ended.stdout
    (run,) = (path.parent for path in plain.glob(".fencepost/*/run.json"))
    made = environment.run(plain, "fencepost", "report", str(run))
    assert made.returncode == 0, made.stderr
    assert (plain / ".fencepost/report/report.html").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("cluster", "up", "--runtime", "docker"), "pip install 'fencepost[docker]'"),
        (("doctor", "--reap"), "pip install 'fencepost[docker]'"),
    ],
)
def test_what_needs_an_extra_says_so_by_name(
    environment: Environment, plain: Path, words: tuple[str, ...], says: str
) -> None:
    ended = environment.run(plain, "fencepost", *words)
    assert ended.returncode == 4, ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "system",
    [
        pytest.param("reference/legacy", marks=available),
        pytest.param("reference/quorum", marks=pytest.mark.nightly),  # three times as long
    ],
)
def test_the_demo_runs_without_an_extra_and_names_the_one_that_makes_its_index(
    environment: Environment, plain: Path, system: str
) -> None:
    ended = environment.run(plain, "fencepost", "demo", "--system", system)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "pip install 'fencepost[spark]'" in ended.stdout + ended.stderr
    assert len([*plain.glob(".fencepost/*/report/report.html")]) == 2


def test_setup_builds_toxiproxy_from_the_wheel(environment: Environment, plain: Path) -> None:
    (plain / "bin").mkdir()
    ended = environment.run(plain, "fencepost", "setup", "--into", "bin")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("toxiproxy v2.")
    found = environment.run(plain, "fencepost", "doctor", "--json")
    named = {one["what"]: one for one in json.loads(found.stdout)}
    assert named["toxiproxy"]["good"]
    assert "fencepost[docker]" in named["container engine"]["message"]


def test_a_system_without_software_of_its_own_has_nothing_to_fetch(
    environment: Environment, plain: Path
) -> None:
    ended = environment.run(plain, "fencepost", "setup", "--system", "reference/quorum")
    assert ended.returncode == 2
    assert "reference/quorum has nothing to fetch" in ended.stderr


def test_an_extra_that_is_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    check_extra("docker", "it")
    monkeypatch.setitem(EXTRAS, "docker", ("docker", "no_such_module"))
    with pytest.raises(EnvironmentFailed, match="it needs no_such_module, which the extra"):
        check_extra("docker", "it")
