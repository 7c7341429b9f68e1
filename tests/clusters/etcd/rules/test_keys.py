"""The bounded memory that the rules share."""

from __future__ import annotations

from fencepost_clusters.etcd.rules.keys import KEPT, remember


def test_the_newest_names_are_remembered_and_the_oldest_forgotten() -> None:
    kept: dict[int, str] = {}
    for number in range(KEPT + 2):
        assert remember(kept, number, str(number)) == str(number)
    assert list(kept) == list(range(2, KEPT + 2))
