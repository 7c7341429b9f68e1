"""A failed real test runs once more, alone, and is named as flaky; no other test ever does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import flaky
import nested
import pytest
from flaky import FILE, FOLDER, Flaky, known, result_of, seeded, to_repeat
from outcomes import Outcome, Session

pytest_plugins = ["pytester"]

PROGRAM = Path(flaky.__file__)
TESTS = """
    import os, subprocess, sys
    from pathlib import Path
    import pytest

    def count(name):
        before = len(list(Path.cwd().glob(name + ".*")))
        Path(f"{name}.{before}").touch()
        return before

    @pytest.mark.real
    @pytest.mark.parametrize("number", range(4))
    def test_race(number):
        subprocess.run([sys.executable, "-c", ""], check=True)
        assert count(f"race{number}") >= int(os.environ.get(f"FAILS_{number}", "0"))

    def test_pure():
        assert count("pure") >= int(os.environ.get("FAILS_PURE", "0"))

    def test_left_out():
        pytest.skip("for a reason")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """Four real tests, a pure one and a skipped one; `FAILS_*` says how often each one fails."""
    nested.prepare(pytester)
    pytester.makepyfile(test_them=TESTS)
    return pytester.path


def run(
    project: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, **fails: int
) -> tuple[int, list[str]]:
    """The exit code and the lines that the program prints."""
    for name, times in fails.items():
        monkeypatch.setenv(f"FAILS_{name.lstrip('_')}", str(times))
    words = [sys.executable, str(PROGRAM), "test", "--rerun-flaky", *arguments]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def times(project: Path, name: str) -> int:
    """How often the test of that name ran."""
    return len(list(project.glob(f"{name}.*")))


@pytest.mark.tool
def test_a_session_without_a_failure_ends_with_pytests_own_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = run(project, monkeypatch, "-n", "2", "--dist", "loadfile")
    assert code == 0
    assert "5 passed, 1 skipped in " in lines[-1]
    assert known(project / FOLDER / FILE) == []


@pytest.mark.tool
def test_up_to_three_races_run_once_more_and_are_named_in_the_last_lines(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = run(project, monkeypatch, "-n", "2", "--dist", "loadfile", _0=1, _1=1, _2=1)
    assert code == 0
    assert lines[-1] == "5 passed, 0 failed, 1 skipped"
    tests = [f"test_them.py::test_race[{number}]" for number in range(3)]
    assert lines[-4:-1] == [f"  {test}  seed=none  run=none" for test in tests]
    assert lines[-5] == "Flaky: failed first, passed alone:"
    assert [times(project, f"race{number}") for number in range(4)] == [2, 2, 2, 1]
    assert times(project, "pure") == 1
    found = known(project / FOLDER / FILE)
    assert [one.test for one in found] == tests
    assert "assert 0 >= 1" in found[0].error


@pytest.mark.tool
def test_a_race_runs_once_more_though_fencepost_says_by_the_exit_code_why_it_failed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = """
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_sessionfinish(session, exitstatus):
            yield
            session.exitstatus = 3 if exitstatus == 1 else exitstatus
    """
    with (project / "conftest.py").open("a") as conftest:
        conftest.write(textwrap.dedent(hook))
    code, lines = run(project, monkeypatch, _0=1)
    assert code == 0
    assert "Flaky: failed first, passed alone:" in lines


@pytest.mark.tool
@pytest.mark.parametrize(
    ("fails", "ran", "failed"),
    [
        ({"_0": 2}, 2, 1),  # again
        ({"_0": 1, "_1": 1, "_2": 1, "_3": 1}, 1, 4),  # too many
        ({"PURE": 1}, 1, 1),  # pure
        ({"_0": 1, "PURE": 1}, 1, 2),  # a race beside a pure failure
    ],
    ids=["again", "four", "pure", "race-and-pure"],
)
def test_other_failures_fail_the_run(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: dict[str, int],
    ran: int,
    failed: int,
) -> None:
    code, lines = run(project, monkeypatch, **fails)
    assert code == 1
    assert lines[-1] == f"{5 - failed} passed, {failed} failed, 1 skipped"
    assert times(project, "race0") == ran
    assert times(project, "pure") == 1
    assert known(project / FOLDER / FILE) == []


@pytest.mark.tool
def test_flaky_tests_of_another_command_count_and_are_named_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        Flaky(command="test-docker", test=f"test_{number}", seed="7", run="there", error="")
        for number in range(2)
    ]
    flaky.write(project / FOLDER / FILE, others)
    code, lines = run(project, monkeypatch, _0=1)
    assert code == 0
    assert lines[-4:-1] == [
        "  test_0  seed=7  run=there",
        "  test_1  seed=7  run=there",
        "  test_them.py::test_race[0]  seed=none  run=none",
    ]
    for file in project.glob("race*.*"):
        file.unlink()
    code, lines = run(project, monkeypatch, _0=1, _1=1)
    assert code == 1
    assert lines[-1] == "3 passed, 2 failed, 1 skipped"
    assert known(project / FOLDER / FILE) == others


@pytest.mark.tool
def test_wrong_arguments_are_pytests_to_refuse(project: Path) -> None:
    words = [sys.executable, str(PROGRAM), "test", "--no-such-option"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--no-such-option" in done.stderr


@pytest.mark.tool
def test_sessions_are_counted_as_one_and_a_failed_one_hides_no_other(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = ("-k", "race", "--", "-m", "not real")
    code, lines = run(project, monkeypatch, *sessions, _0=1)
    assert code == 0
    assert lines[-1] == "5 passed, 0 failed, 1 skipped"
    assert lines[-2].startswith("  test_them.py::test_race[0]")
    for file in project.glob("*.*"):
        if file.suffix[1:].isdecimal():
            file.unlink()
    code, lines = run(project, monkeypatch, *sessions, _0=2)
    assert (code, lines[-1]) == (1, "4 passed, 1 failed, 1 skipped")
    assert times(project, "pure") == 1


@pytest.mark.tool
def test_nothing_runs_again_unless_it_is_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS_0", "1")
    words = [sys.executable, str(PROGRAM), "test", "-k", "race"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "3 passed, 1 failed"
    assert times(project, "race0") == 1


def outcome(test: str, became: str, *, real: bool = True) -> Outcome:
    return Outcome(test=test, outcome=became, real=real, seconds=1)


def test_nothing_runs_again_after_an_interrupt_or_an_import_error() -> None:
    failed = (outcome("a", "failed"),)
    assert to_repeat(Session(exit_code=1, outcomes=failed), 0) == list(failed)
    assert not to_repeat(Session(exit_code=2, outcomes=failed), 0)
    assert not to_repeat(Session(exit_code=1, outcomes=failed, uncollected=("b.py",)), 0)


@pytest.mark.parametrize("became", ["skipped", "failed", ""])
def test_only_a_test_that_passes_the_second_time_is_flaky(became: str) -> None:
    first = Session(exit_code=1, outcomes=(outcome("a", "failed"), outcome("b", "passed")))
    again = (outcome("a", became),) if became else ()
    for second in (Session(exit_code=0, outcomes=again), None):
        result = result_of(first, second)
        assert [one.test for one in result.failed] == ["a"]
        assert str(result) == "1 passed, 1 failed"


def test_both_sessions_have_one_seed() -> None:
    (given,) = seeded([])
    assert given.startswith("--fencepost-seed=")
    assert seeded(["--fencepost-seed", "7"]) == ["--fencepost-seed", "7"]
