"""Which release stands in for a version."""

from __future__ import annotations

import pytest

from fencepost.model.versions import nearest


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
