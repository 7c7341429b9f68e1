"""`fencepost new-system`: its project works at once, with an installed Fencepost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.third_party.environment import Environment, build
from typer.testing import CliRunner

from fencepost.commands.cli import app
from fencepost.commands.new_system import check_name, renamed
from fencepost.model.errors import UsageError
from fencepost.plugins.manager import load

PYTEST = ("python", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "system", "passes"),
    [(("my_db",), "my_db/servers", 11), (("redis/sentinel", "--program"), "redis/sentinel", 14)],
    ids=["a server of its own", "an existing program"],
)
def test_a_new_plugin_passes_its_own_tests_and_finds_its_planted_defect(
    environment: Environment, tmp_path: Path, words: Sequence[str], system: str, passes: int
) -> None:
    made = environment.run(tmp_path, "fencepost", "new-system", *words, "--into", "plugin")
    assert made.returncode == 0, made.stderr
    assert f"a plugin for {system}." in made.stdout
    project = tmp_path / "plugin"
    environment.install(build(project, tmp_path / "wheel"))
    done = environment.run(project, *PYTEST, "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passes} passed" in done.stdout
    assert f"fencepost: system={system} " in done.stdout
    for command in ("run", "conformance"):
        bare = environment.run(project, "fencepost", command, "--system", system)
        assert bare.returncode == 2, bare.stdout + bare.stderr
        assert f"there are no suites for {system}: name your tests" in bare.stderr
    broken = environment.run(project, *PYTEST, "-k", "killed", "--fencepost-defects=forgets-tokens")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    plugin = system.partition("/")[0]
    assert f"{plugin.upper()}-1 is violated" in broken.stdout
    typed = environment.run(project, "python", "-m", "mypy", "--strict", f"fencepost_{plugin}")
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    "name", ["My-DB", "my-db", "_db", "db_", "my__db", "class", "2db", "", "a" * 41, "dä", "a\n"]
)
def test_a_name_that_no_module_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a plugin"):
        check_name(name, "servers", load())


@pytest.mark.parametrize("name", ["redis/", "redis/Sentinel", "redis/a/b", "/sentinel", "/"])
def test_a_name_of_two_parts_is_checked_in_both(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new-system", name, "--into", str(tmp_path / "plugin")])
    assert isinstance(done.exception, UsageError)
    assert "cannot be the name of a" in str(done.exception)


@pytest.mark.parametrize("name", ["etcd", "partition", "reference", "apache", "fault"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="take another name"):
        check_name(name, "servers", load())


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "mine").touch()
    done = CliRunner().invoke(app, ["new-system", "my_db", "--into", str(folder)])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == f"{folder} exists already: name another folder by --into"
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_each_spelling_of_the_name_is_replaced() -> None:
    assert renamed("acme/servers, Acme(), ACME-1", "my_db") == "my_db/servers, MyDb(), MY_DB-1"
    assert renamed("acme/servers of fencepost_acme", "redis", "sentinel") == (
        "redis/sentinel of fencepost_redis"
    )
