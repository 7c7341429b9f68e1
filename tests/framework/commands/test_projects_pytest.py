"""What a project sets for its pytest: the commands that drive pytest answer the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from warm_start import Ended, fencepost

pytestmark = pytest.mark.tool

KILLED = """
def test_a_leader_is_killed(cluster, faults, clients):
    writes = clients.produce("orders", count=20)
    with faults.kill(cluster.leader("orders", 0)):
        cluster.eventually(writes.settled)

def test_another(cluster, clients):
    cluster.eventually(clients.produce("orders", count=20).settled)
"""
NO_CLUSTER = """
import pytest
from fencepost import EnvironmentFailed

@pytest.fixture
def fencepost_shape():
    raise EnvironmentFailed("no image")

def test_it(cluster):
    pass
"""
SIMULATED = ("--runtime", "simulated", "--seed", "3")
DISTRIBUTED = "[pytest]\naddopts = -n 1\n"


def test_tests_in_workers_of_xdist_give_the_same_answer(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(KILLED)
    alone = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -n 2\n")
    apart = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path)
    assert _answer(apart) == _answer(alone)
    assert _answer(apart)["receipts"] == {"faults": 1, "without": []}
    shown = fencepost("run", "test_it.py", *SIMULATED, folder=tmp_path)
    assert [line for line in shown.stdout.splitlines() if line.startswith("RP-13 ")]


CHECKED = """
import fencepost

@fencepost.check("nothing is lost")
def nothing_is_lost(run):
    pass

@fencepost.check("nothing is late", within_s=1)
def nothing_is_late(run):
    raise AssertionError("two are late")

def test_it(cluster):
    pass
"""


def test_a_check_is_a_clause_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CHECKED)
    told = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path)
    verdicts = json.loads(told.stdout)["verdicts"]
    assert verdicts["CHECK-nothing-is-lost"] == "holds"
    assert verdicts["CHECK-nothing-is-late"] == "violated"
    shown = fencepost("run", "test_it.py", *SIMULATED, folder=tmp_path)
    lines = [line.split() for line in shown.stdout.splitlines() if line.startswith("CHECK-")]
    assert [(line[0], line[3], line[-1]) for line in lines] == [
        ("CHECK-nothing-is-late", "violated", "late"),
        ("CHECK-nothing-is-lost", "holds", "lost"),
    ]


def _answer(ended: Ended) -> Mapping[str, object]:
    """What `run --json` printed, without how long tests took."""
    answer: dict[str, object] = json.loads(ended.stdout)
    tests = answer.pop("tests")
    assert isinstance(tests, list)
    return {**answer, "tests": sorted((one["test"], one["outcome"]) for one in tests)}


@pytest.mark.parametrize("ini", ["[pytest]\n", DISTRIBUTED], ids=["alone", "xdist"])
@pytest.mark.parametrize(
    ("tests", "code", "reason"),
    [
        (NO_CLUSTER, 4, "no image, 1 test failed: exit code 4"),
        (
            "def test_it(): {}['no']",
            70,
            "test_it.py::test_it: KeyError: 'no', 1 test failed: exit code 70",
        ),
        ("def test_it(): assert 1 > 2", 1, "1 test failed: exit code 1"),
        (
            "from fencepost import Inconclusive\ndef test_it(): raise Inconclusive('no receipt')",
            3,
            "no receipt, 1 test failed: exit code 3",
        ),
        ("", 2, "no test was collected: exit code 2"),
    ],
)
def test_a_failure_has_its_code_in_a_worker_too(
    ini: str, tests: str, code: int, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "test_it.py").write_text(tests)
    ended = fencepost("run", "test_it.py", *SIMULATED, folder=tmp_path)
    assert ended.returncode == code
    assert ended.stdout.splitlines()[-1] == reason


UNCOLLECTED = {
    "test_import.py": ("import no_such_module\n", "No module named 'no_such_module'"),
    "test_syntax.py": ("def test_it(: pass\n", "SyntaxError: "),
}


@pytest.mark.parametrize("ini", ["[pytest]\n", DISTRIBUTED], ids=["alone", "xdist"])
@pytest.mark.parametrize("name", UNCOLLECTED)
def test_a_file_that_cannot_be_collected_is_wrong_usage_and_named(
    ini: str, name: str, tmp_path: Path
) -> None:
    text, error = UNCOLLECTED[name]
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / name).write_text(text)
    (tmp_path / "test_other.py").write_text("def test_it(): pass")
    for words in (("run", ".", "--json"), ("conformance", ".", "--runtime", "simulated")):
        ended = fencepost(*words, folder=tmp_path)
        said = [line for line in ended.stderr.splitlines() if line.startswith("fencepost: ")]
        assert ended.returncode == 2, words
        assert len(said) == 1, words
        assert said[0].startswith(f"fencepost: {name} cannot be collected: "), words
        assert error in said[0], words
        if "--json" in words:
            assert json.loads(ended.stdout)["exit_code"] == 2


def test_a_session_of_xdist_that_stops_at_the_first_failure_is_not_interrupted(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text(DISTRIBUTED)
    (tmp_path / "test_it.py").write_text("def test_it(): assert 1 > 2")
    ended = fencepost("run", "test_it.py", "-x", folder=tmp_path)
    assert "interrupted" not in ended.stderr
    assert ended.returncode == 1


def test_a_worker_of_xdist_that_dies_is_a_failed_environment(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(DISTRIBUTED)
    (tmp_path / "test_it.py").write_text("import os\ndef test_it(): os._exit(1)")
    ended = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path)
    assert ended.returncode == 4, ended.stderr
    assert [one["outcome"] for one in json.loads(ended.stdout)["tests"]] == ["failed"]


@pytest.mark.parametrize("ini", ["[pytest]\n", DISTRIBUTED], ids=["alone", "xdist"])
def test_a_refusal_is_said_in_a_worker_too(ini: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.clause('NO-SUCH-1')\ndef test_it(cluster): pass\n"
    )
    ended = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path)
    assert ended.returncode == 2
    assert "no clause named 'NO-SUCH-1'" in ended.stderr


@pytest.mark.real
def test_workers_of_xdist_run_the_suite_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(DISTRIBUTED + "fencepost_system = etcd/cluster\n")
    words = ("run", "--runtime", "process", "--json", "-k")
    assert fencepost(*words, "no_such_test", folder=tmp_path).returncode == 2
    collected = fencepost(*words, "tokens_grow", folder=tmp_path)
    assert "test_locks.py" in str(json.loads(collected.stdout)["tests"])


def test_a_run_in_which_no_test_had_a_cluster_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    ended = fencepost("run", "test_it.py", folder=tmp_path)
    assert ended.returncode == 0
    assert "no test had a run of its own, so no clause was judged" in ended.stderr


def test_a_matrix_of_tests_without_a_run_says_that_nothing_was_tried(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    ended = fencepost("conformance", "test_it.py", *SIMULATED, folder=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[-1] == (
        "no test had a run of its own, so nothing was tried: exit code 0"
    )


def test_a_matrix_does_not_depend_on_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(KILLED)
    words = ("conformance", "test_it.py", "--runtime", "simulated", "--seed", "3", "--json")
    alone = fencepost(*words, folder=tmp_path)
    (tmp_path / "pytest.ini").write_text(DISTRIBUTED)
    apart = fencepost(*words, folder=tmp_path)
    assert json.loads(apart.stdout) == json.loads(alone.stdout)
    assert apart.returncode == alone.returncode == 0
    assert {row["clause"]: row["verdict"] for row in json.loads(apart.stdout)}["RP-13"] == "holds"


def test_a_defect_is_found_by_the_suite_beside_xdist(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(DISTRIBUTED)
    words = ("defects", "--only", "serves-without-lease", "--clean", "0", "--json")
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(ended.stdout)["defects"]
    assert found["found"]
    assert found["seeds"] == 0  # no random schedule was needed


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        {"PYTEST_ADDOPTS": "--disable-plugin-autoload"},
        {"PYTEST_ADDOPTS": "-p no:fencepost"},
    ],
    ids=lambda variables: " ".join(variables.values()),
)
def test_the_plugin_is_there_without_being_loaded_by_itself(
    variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(KILLED)
    ended = fencepost("run", "test_it.py", *SIMULATED, "--json", folder=tmp_path, **variables)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["verdicts"]["RP-13"] == "holds"
    ended = fencepost(
        "conformance", "test_it.py", *SIMULATED, "--json", folder=tmp_path, **variables
    )
    assert ended.returncode == 0, ended.stderr
    words = ("defects", "--only", "serves-without-lease", "--clean", "0")
    assert fencepost(*words, folder=tmp_path, **variables).returncode == 0


def test_no_matrix_is_shown_of_suites_that_could_not_be_run(tmp_path: Path) -> None:
    ended = fencepost("conformance", "no_such_test.py", "--runtime", "simulated", folder=tmp_path)
    assert ended.returncode == 2
    assert "not-exercised" not in ended.stdout
    assert "the suites could not be run" in ended.stderr


def test_the_filters_of_warnings_are_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import warnings\ndef test_it(): warnings.warn('old')")
    assert fencepost("run", "test_it.py", folder=tmp_path).returncode == 0
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    assert fencepost("run", "test_it.py", folder=tmp_path).returncode == 70


def test_run_passes_words_on_to_pytest(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("def test_one(): assert 0\ndef test_two(): assert 0\n")

    def failed(*words: str) -> list[str]:
        tests = json.loads(fencepost("run", *words, folder=tmp_path).stdout)["tests"]
        return [one["test"] for one in tests]

    assert failed("test_a.py", "--json", "-k", "two") == ["test_a.py::test_two"]
    assert failed("test_a.py", "test_b.py", "--json", "-x") == ["test_a.py::test_one"]
    words = ("--json", "test_a.py", "test_b.py", "--", "-k", "test_b and one", "-v")
    assert failed(*words) == ["test_b.py::test_one"]
    assert fencepost("run", "--no-such-option", folder=tmp_path).returncode == 2


def test_a_matrix_names_a_test_that_failed_as_it_is_found_from_any_folder(tmp_path: Path) -> None:
    below = tmp_path / "tests" / "below"
    below.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (below / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert 1 > 2\n")
    words = ("conformance", "test_it.py", *SIMULATED, "--count", "broker=4")
    ended = fencepost(*words, folder=below)
    (again,) = (line for line in ended.stdout.splitlines() if line.startswith("again: "))
    assert again.startswith("again: fencepost run --system reference/quorum --runtime simulated ")
    assert again.endswith(f"--count broker=4 {below / 'test_it.py'}::test_bad")
