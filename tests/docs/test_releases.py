"""The record of the releases of Apache Kafka that were run at peace, and after a bounce."""

from __future__ import annotations

from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION, NEWEST, OLDEST
from fencepost_reference import releases
from fencepost_reference.releases import Release


def test_every_minor_release_that_is_tried_has_a_run() -> None:
    minors = {releases.numbers(one.version)[:2] for one in releases.read()}
    assert {OLDEST, NEWEST} <= minors
    assert {minor for minor in minors if minor[0] == 3} == {(3, n) for n in range(3, 10)}
    assert {minor for minor in minors if minor[0] == 4} == {(4, n) for n in range(NEWEST[1] + 1)}
    assert DEFAULT_VERSION in {one.version for one in releases.read()}


def test_no_release_breaks_a_promise_at_peace_but_as_known() -> None:
    for one in releases.read():
        assert one.held > 20
        assert all(one.violated.values()), one
        assert one.unknown == {}, one


def test_what_a_later_command_says_of_a_release_replaces_what_was_there() -> None:
    old = Release("4.4.0", "2026-01-01", 3, {}, {})
    row = {"system": "apache/kraft@4.4.0", "runtime": "process", "exercised": 1, "tests": []}
    rows = [
        {**row, "clause": "KR-01", "verdict": "holds"},
        {**row, "clause": "KR-10", "verdict": "violated", "known": ["isr-begins-epoch"]},
        {**row, "clause": "REG-04", "verdict": "unknown", "reason": "it printed no image"},
        {**row, "clause": "KR-18", "verdict": "not-exercised"},
        {**row, "system": "apache/kraft@3.10.0", "clause": "KR-01", "verdict": "violated"},
    ]
    assert releases.added([old], rows, "2026-02-01") == [
        Release("3.10.0", "2026-02-01", 0, {"KR-01": ()}, {}),
        Release(
            "4.4.0",
            "2026-02-01",
            1,
            {"KR-10": ("isr-begins-epoch",)},
            {"REG-04": "it printed no image"},
        ),
    ]
