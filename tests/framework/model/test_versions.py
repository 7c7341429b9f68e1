"""What may stand in place of a version, and which release stands in for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import UsageError, named_image, named_path
from fencepost.model.versions import in_image, nearest


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
        ("docker://apache/kafka:4.4.0", None),
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


def test_an_image_stands_in_place_of_a_version() -> None:
    assert named_image("docker://apache/kafka:4.4.0") == "apache/kafka:4.4.0"
    assert named_image("4.4.0") == named_image("./docker:/kafka") == named_image("") == ""


def test_one_system_among_others_runs_in_an_image() -> None:
    given = "apache/kraft=apache/kafka:4.4.0"
    assert in_image(["apache/kraft"], "") == ["apache/kraft"]
    assert in_image(["apache/kraft@4.3.1", "apache/kraft"], given) == [
        "apache/kraft@4.3.1",
        "apache/kraft@docker://apache/kafka:4.4.0",
    ]
    assert in_image(["apache/kraft@4.3.1"], "apache/kraft@4.3.1=me/kafka") == [
        "apache/kraft@docker://me/kafka"
    ]


@pytest.mark.parametrize("given", ["apache/kafka:4.4.0", "=kafka", "apache/kraft=", "a=b c"])
def test_what_names_no_system_and_its_image_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="names no system and its image"):
        in_image(["apache/kraft"], given)


def test_an_image_of_another_system_than_runs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"kafka:1 is of the system apache/kraft, and what runs"):
        in_image(["reference/quorum", "etcd/cluster"], "apache/kraft=kafka:1")
