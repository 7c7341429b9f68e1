"""The table of needs: what it counts, and the tests that it names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "needs.md"
ROW = re.compile(r"\| (\d+) \| [^|]+ \| (yes|partly|no) \| ([^|]+) \|")


def rows() -> list[tuple[str, str, str]]:
    found = [ROW.fullmatch(line) for line in PAGE.read_text().splitlines()]
    return [(row[1], row[2], row[3]) for row in found if row]


def test_each_need_is_counted() -> None:
    assert [int(number) for number, _, _ in rows()] == list(range(1, 26))
    counts = Counter(served for _, served, _ in rows())
    said = f"{counts['yes']} are served, {counts['partly']} in part, and {counts['no']} not."
    assert PAGE.read_text().endswith(f"\n{said}\n")


def test_what_is_served_has_a_command_or_a_test_and_each_test_is_there() -> None:
    for _, served, shown in rows():
        assert served != "yes" or "`" in shown or "](" in shown
        for named in re.findall(r"`(tests/[\w/.]+)`", shown):
            assert (ROOT / named).exists(), named
