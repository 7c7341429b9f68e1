"""Beside pytest-rerunfailures and pytest-timeout: no rerun and no time-out is a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from warm_start import PYTEST, Ended, fencepost, python

pytestmark = pytest.mark.tool

SMALL = """
    import pytest
    from fencepost_kafka import kafka_shape

    @pytest.fixture
    def fencepost_shape():
        settings = {"min.insync.replicas": "1", "default.replication.factor": "1"}
        return kafka_shape(controllers=1, brokers=1, settings=settings)
"""
FLIPS = """
    from pathlib import Path
    from fencepost import EnvironmentFailed

    def test_it(cluster, history):
        first = Path("attempted")
        if not first.exists():
            first.touch()
            %s
"""
"""A test whose first attempt fails, and whose second passes."""
BREAKS = 'history.record_evidence("QC-34", held=False, evidence="it was seen broken")'


def project(folder: Path, tests: str) -> Path:
    (folder / "conftest.py").write_text(_dedent(SMALL))
    (folder / "test_it.py").write_text(_dedent(tests))
    return folder


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def tried(folder: Path, *words: str) -> Ended:
    return python(PYTEST, "-p", "no:cacheprovider", *words, folder=folder)


@pytest.mark.parametrize("more", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_rerun_undoes_no_broken_promise(more: tuple[str, ...], tmp_path: Path) -> None:
    folder = project(tmp_path, FLIPS % BREAKS)
    words = ("run", "test_it.py", "--runtime", "simulated", "--json", "--", "--reruns", "1", *more)
    found = fencepost(*words, folder=folder)
    answer = json.loads(found.stdout)
    assert [one["outcome"] for one in answer["tests"]] == ["rerun", "passed"]
    assert answer["verdicts"]["QC-34"] == "violated"
    assert answer["exit_code"] == found.returncode == 1
    (folder / "attempted").unlink()
    words = ("--fencepost-runtime=simulated", "--reruns", "1", *more)
    shown = tried(folder, *words)
    assert shown.returncode == 1
    assert "test_it: an attempt broke a promise, which no rerun undoes" in shown.stdout


def test_a_rerun_takes_the_place_of_an_attempt_without_a_verdict(tmp_path: Path) -> None:
    folder = project(tmp_path, FLIPS % 'raise EnvironmentFailed("no disk")')
    words = ("run", "test_it.py", "--runtime", "simulated", "--json", "--", "--reruns", "1")
    found = fencepost(*words, folder=folder)
    assert [one["outcome"] for one in json.loads(found.stdout)["tests"]] == ["rerun", "passed"]
    assert found.returncode == 0


def test_junit_names_the_folder_of_each_attempt_once(tmp_path: Path) -> None:
    folder = project(tmp_path, "    def test_it(cluster): assert 0")
    words = ("--fencepost-runtime=simulated", "--reruns", "2", "--junitxml=junit.xml")
    assert tried(folder, *words).returncode == 1
    found = [
        [one.get("value") for one in case.iter("property") if one.get("name") == "fencepost_run"]
        for case in Xml.parse(folder / "junit.xml").iter("testcase")
    ]
    assert found
    assert all(len(folders) == 1 for folders in found)


HANGS = """
    import time
    import pytest

    @pytest.mark.timeout(1, func_only=True)
    def test_it(cluster, history):
        {}
        while True:
            pass

    def test_fails_by_itself():
        pytest.fail("Timeout (>1.0s) from pytest-timeout.")
"""


@pytest.mark.parametrize(("first", "code"), [("pass", 3), (BREAKS, 1)])
def test_a_time_out_is_no_verdict(first: str, code: int, tmp_path: Path) -> None:
    folder = project(tmp_path, HANGS.format(first))
    words = ("run", "test_it.py::test_it", "--runtime", "simulated")
    found = fencepost(*words, folder=folder)
    assert found.returncode == code, found.stdout
    assert ("pytest-timeout ended this test. This is no verdict" in found.stdout) == (code == 3)
    words = ("test_it.py::test_it", "--fencepost-runtime=simulated")
    assert tried(folder, *words).returncode == code
    words = ("run", "test_it.py::test_fails_by_itself", "--", "--timeout=99")
    found = fencepost(*words, folder=folder)
    assert found.returncode == 1


def test_a_time_out_leaves_a_matrix_undecided(tmp_path: Path) -> None:
    folder = project(tmp_path, HANGS.format("pass"))
    words = ("conformance", "test_it.py::test_it", "--runtime", "simulated")
    found = fencepost(*words, folder=folder)
    assert found.returncode == 3, found.stderr
