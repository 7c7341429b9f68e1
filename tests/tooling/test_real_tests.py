"""A test that starts a process must be marked; the outcome of each test is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import nested
import outcomes
import pytest
from outcomes import Outcome
from warm_start import runpytest

pytest_plugins = ["pytester"]

STARTS = "import subprocess, sys\ndef start(): subprocess.run([sys.executable, '-c', ''])\n"
TESTS = {
    "unmarked": "def test_it(): start()",
    "in_a_fixture": "@pytest.fixture\ndef f(): start()\ndef test_it(f): pass",
    "in_a_shared_fixture": (
        "@pytest.fixture(scope='module')\ndef f(): start()\n"
        "@pytest.mark.real\ndef test_first(f): pass\n"
        "def test_it(f): pass"
    ),
    "marked": "@pytest.mark.real\ndef test_it(): start()",
    "fixture_marked": "@pytest.fixture\ndef f(real): start()\ndef test_it(f): pass",
    "a_tool": "@pytest.mark.tool\ndef test_it(): start()",
    "a_supervisor": (
        "@pytest.mark.tool\n"
        "def test_it(): subprocess.run([sys.executable, '-c', '', 'supervisor.py'])"
    ),
    "module_marked": "pytestmark = pytest.mark.real\ndef test_it(): start()",
    "pure": "def test_it(): pass",
}
RUN = "import pytest\n@pytest.fixture\ndef fencepost_run(): pass\ndef test_it(fencepost_run): pass"
REFUSED = {"unmarked", "in_a_fixture", "in_a_shared_fixture", "a_supervisor"}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    nested.prepare(pytester)
    return pytester


def rows(project: pytest.Pytester, *arguments: str) -> dict[str, Outcome]:
    """The outcome of each test, from the file, by the name of its module."""
    runpytest(project, "--outcomes=kept/file.json", *arguments)
    session = outcomes.read(project.path / "kept" / "file.json")
    return {
        one.test.removeprefix("test_").partition(".py")[0]: one
        for one in session.outcomes
        if one.test.endswith("::test_it")
    }


@pytest.mark.tool
def test_a_test_that_starts_a_process_unmarked_fails(project: pytest.Pytester) -> None:
    project.makepyfile(
        **{f"test_{name}": f"import pytest\n{STARTS}{text}" for name, text in TESTS.items()}
    )
    found = rows(project)
    assert {name for name, one in found.items() if one.outcome == "failed"} == REFUSED
    assert "is not marked `real` or `tool`" in found["unmarked"].error
    assert "is not marked `real`:" in found["a_supervisor"].error
    assert {name for name, one in found.items() if one.real} == {
        *("marked", "fixture_marked", "module_marked")
    }


@pytest.mark.tool
def test_a_simulated_run_is_not_real(project: pytest.Pytester) -> None:
    project.makepyfile(test_run=RUN)
    assert not rows(project, "--fencepost-runtime=simulated")["run"].real
    assert rows(project)["run"].real


@pytest.mark.tool
def test_a_session_can_collect_only_what_another_one_has_noted(project: pytest.Pytester) -> None:
    folder = project.mkdir("tests")
    texts = {"run": RUN, **{name: f"import pytest\n{STARTS}{text}" for name, text in TESTS.items()}}
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(text)
    simulated = ("-m", "not real", "--fencepost-runtime=simulated", "-k", "nothing")
    runpytest(project, *simulated, "--note-real=kept/noted.json", "-n", "2")
    (folder / "test_pure.py").write_text("raise ValueError('it was not noted')")
    noted = ("--noted-real=kept/noted.json", "--outcomes=kept/file.json", "-m", "real")
    runpytest(project, *noted)
    session = outcomes.read(project.path / "kept" / "file.json")
    assert session.exit_code != pytest.ExitCode.INTERRUPTED
    ran = {one.test.removeprefix("tests/test_").partition(".py")[0] for one in session.outcomes}
    assert ran == {"in_a_shared_fixture", "marked", "fixture_marked", "module_marked", "run"}


@pytest.mark.tool
def test_the_real_ones_can_be_left_out(project: pytest.Pytester) -> None:
    project.makepyfile(
        **{f"test_{name}": f"import pytest\n{STARTS}{text}" for name, text in TESTS.items()}
    )
    assert set(rows(project, "-m", "not real")) == {"pure", "a_tool", *REFUSED}


@pytest.mark.tool
def test_a_failure_prints_its_seed_and_keeps_its_run(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_older="""
        import os
        def test_it(tmp_path):
            (tmp_path / "run.json").write_text('{"seed": 8}')
            os.utime(tmp_path / "run.json", (1, 1))
        """,
        test_other="def test_it(): assert 0",
        test_this="""
        import os
        def test_it(tmp_path):
            run = tmp_path / "somewhere" / "run"
            (run / "events").mkdir(parents=True)
            (run / "run.json").write_text('{"seed": 9}')
            os.mkfifo(run / "pipe")
            assert 0
        """,
    )
    found = rows(project)
    assert (found["other"].seed, found["other"].run) == ("", "")
    assert found["this"].seed == "9"
    assert json.loads(Path(found["this"].run, "run.json").read_text()) == {"seed": 9}
    assert Path(found["this"].run).is_relative_to(project.path / "kept")
    assert found["this"].error.startswith("AssertionError")


@pytest.mark.tool
def test_a_test_whose_process_died_failed_and_is_not_real(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_dies="""
        import os, pytest
        @pytest.mark.real
        def test_it(): os._exit(1)
        """
    )
    (died,) = rows(project, "-n", "1").values()
    assert (died.outcome, died.real) == ("failed", False)


@pytest.mark.tool
def test_what_a_test_costs_counts_processes_that_have_ended_and_that_live(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        test_costs="""
        import subprocess, sys, time
        import pytest
        BUSY = "import time\\nwhile time.process_time() < 0.6: pass\\nprint(flush=True)\\ninput()"
        living = []
        def start():
            pipe = subprocess.PIPE
            one = subprocess.Popen([sys.executable, "-c", BUSY], stdin=pipe, stdout=pipe)
            one.stdout.readline()
            return one
        @pytest.mark.real
        def test_nothing(): pass
        @pytest.mark.real
        def test_living(): living.append(start())
        @pytest.mark.real
        def test_ended(): start().communicate(b"\\n")
        @pytest.mark.real
        def test_the_end_of_another(): living.pop().communicate(b"\\n")
        """
    )
    runpytest(project, "--outcomes=kept/file.json")
    session = outcomes.read(project.path / "kept" / "file.json")
    used = {one.test.partition("::")[2]: one.processor_seconds for one in session.outcomes}
    assert min(used.pop("test_living"), used.pop("test_ended")) > 0.5
    assert max(used.values()) < 0.5
