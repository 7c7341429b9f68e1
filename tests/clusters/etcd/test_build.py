"""The etcd program is built once, resolves by its hosts file, and errors are one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.go_tool import go

from fencepost import EnvironmentFailed
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


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_names_are_resolved_by_the_hosts_file_of_the_process() -> None:
    done = go("test", "./hosts", cwd=build.SOURCES)
    assert done.returncode == 0, done.stdout + done.stderr
