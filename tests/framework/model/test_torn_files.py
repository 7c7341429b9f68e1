"""The files that a torn write damages, and their content."""

from __future__ import annotations

import pytest

from fencepost.model.torn_files import torn, torn_files

PATHS = (
    *("orders-0/00.log", "orders-0/07.log", "orders-0/07.index", "orders-1/00.log"),
    *("__metadata-0/00.log", "meta.properties"),
)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ("[!_]*/*.log", ["orders-0/07.log", "orders-1/00.log"]),
        ("orders-0/*.log", ["orders-0/07.log"]),
        ("*/*.index", ["orders-0/07.index"]),
        ("*.properties", ["meta.properties"]),
        ("audit-*/*.log", []),
    ],
)
def test_the_newest_file_of_each_folder_that_matches_is_damaged(
    files: str, found: list[str]
) -> None:
    assert torn_files(reversed(PATHS), files) == found


@pytest.mark.parametrize(
    ("last_bytes", "left"), [(1, b"abc\0"), (3, b"a\0\0\0"), (4, bytes(4)), (9, bytes(4))]
)
def test_a_torn_file_is_as_long_as_before_and_ends_in_zeros(last_bytes: int, left: bytes) -> None:
    assert torn(b"abcd", last_bytes) == left
