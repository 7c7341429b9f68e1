"""The etcd program is built once, resolves by its hosts file, and errors are one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.go_tool import go

from fencepost import EnvironmentFailed, UsageError
from fencepost_clusters.etcd import build


def test_a_program_that_is_there_needs_no_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    there = tmp_path / f"etcd-{build.digest()}"
    there.touch()
    assert build.binary(tmp_path) == there


def test_without_go_one_sentence_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFailed, match=r"^Go is missing: etcd/cluster builds its server"):
        build.binary(tmp_path)


@pytest.mark.tool
def test_a_failed_build_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    cache = tmp_path / "cache"
    with pytest.raises(
        EnvironmentFailed, match=r"could not be built by Go: no such module\nno such module$"
    ):
        build.binary(cache)
    assert [path.name for path in cache.iterdir()] == [".etcd.lock"]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailed, match="cannot be kept in"):
        build.binary(go / "cache")


def test_other_sources_are_another_program(tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text(name)
    before = build.digest(tmp_path)
    (tmp_path / "go.mod").write_text("another version")
    assert build.digest(tmp_path) != before


def test_another_version_is_another_program_of_the_same_sources(tmp_path: Path) -> None:
    assert len({build.digest(), build.digest(version="3.5.21"), build.digest(version="3.6.1")}) == 3


def write_program(path: Path, says: str) -> Path:
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.mark.tool
def test_a_program_of_ones_own_says_its_version(tmp_path: Path) -> None:
    says = "etcd Version: 3.7.0-alpha.1\nGit SHA: 0123abc\nGo Version: go1.26"
    program = write_program(tmp_path / "etcd", says)
    assert build.version_of(program) == "3.7.0-alpha.1"


@pytest.mark.tool
def test_a_program_that_is_no_etcd_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no-such is no etcd: .*No such file"):
        build.version_of(tmp_path / "no-such")
    other = write_program(tmp_path / "redis", "Redis server v=7.0.15")
    with pytest.raises(UsageError, match=r"redis is no etcd: --version prints no 'etcd Version"):
        build.version_of(other)


@pytest.mark.parametrize(("user", "mapped"), [(0, False), (1000, True)])
def test_only_a_user_without_rights_needs_a_namespace_of_users(user: int, mapped: bool) -> None:
    argv = build.in_namespace(Path("/opt/etcd"), user)
    assert ("--map-root-user" in argv) == mapped
    assert argv[-1] == "/opt/etcd"


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_names_are_resolved_by_the_hosts_file_of_the_process() -> None:
    done = go("test", "./hosts", cwd=build.SOURCES)
    assert done.returncode == 0, done.stdout + done.stderr
