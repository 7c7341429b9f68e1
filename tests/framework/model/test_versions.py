"""What may stand in place of a version, and which release stands in for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import named_path
from fencepost.model.versions import nearest


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("4.4.0", None),
        ("4.5.0-SNAPSHOT", None),
        ("", None),
        ("./kafka", "{here}/kafka"),
        ("../kafka", "{above}/kafka"),
        ("libs/", "{here}/libs"),
        ("/opt/a/../etcd", "/opt/etcd"),
        ("~/kafka", "/home/me/kafka"),
    ],
)
def test_what_has_a_slash_or_begins_with_a_dot_or_a_tilde_is_a_path(
    named: str, path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    expected = path and Path(path.format(here=tmp_path, above=tmp_path.parent))
    assert named_path(named) == expected


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("4.4.0", "4.4.0"),
        ("4.4.1", "4.4.1"),
        ("4.5.0-SNAPSHOT", "4.4.0"),
        ("4.4.0-SNAPSHOT", "4.4.0"),
        ("4.3.2-inkless", "4.3.1"),
        ("3.9.1-ccs", "4.0.0"),
        ("", ""),
    ],
)
def test_the_nearest_release_stands_in_for_a_version_that_is_none(
    version: str, release: str
) -> None:
    assert nearest(version, ("4.4.0", "4.0.0", "4.3.1")) == release
    assert nearest(version, ()) == version
