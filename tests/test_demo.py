"""The first act of the README's first command, as a stranger gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from demos import run_demo

pytestmark = pytest.mark.real

OWED = {
    *(f"QC-{n:02}" for n in (7, 8, 9, 13, 14, 16, 17, 18, 19, 20, 21, 22, 28, 30, 35, 36)),
    *(f"REG-{n:02}" for n in (3, 5)),
    *(f"RP-{n:02}" for n in (4, 5, 6, 7, 9, 10, 13, 15, 18, 24, 27, 32)),
}
TIMED = {"QC-09", "QC-19", "QC-35", "REG-05", "RP-15", "RP-32"}
"""Exercised only if processes are fast enough; the suites test each of them alone."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The result of the demo's first act, with the path of the report."""
    result = run_demo("reference/quorum", tmp_path_factory.mktemp("demo"))
    (act,) = result["acts"]  # type: ignore[misc]
    return {**act, "report": result["report"]}


def test_the_healthy_run_breaks_nothing_and_leaves_nothing_open(shown: dict[str, object]) -> None:
    healthy, _ = shown["runs"]  # type: ignore[misc]
    assert healthy["defect"] is None
    verdicts = {clause: v["verdict"] for clause, v in healthy["verdicts"].items()}
    assert set(verdicts) >= OWED
    assert not [c for c, v in verdicts.items() if v in ("violated", "unknown")]
    assert [c for c in sorted(OWED - TIMED) if verdicts[c] != "holds"] == []


def test_every_fault_has_its_receipt(shown: dict[str, object]) -> None:
    for run in shown["runs"]:  # type: ignore[attr-defined]
        assert len(run["receipts"]) >= 10
        assert all(receipt["true"] for receipt in run["receipts"])


def test_the_planted_defect_is_found(shown: dict[str, object]) -> None:
    _, planted = shown["runs"]  # type: ignore[misc]
    assert planted["defect"] == "serves-without-lease"
    assert "QC-17" in shown["found"]  # type: ignore[operator]


def test_the_page_opens_offline(shown: dict[str, object]) -> None:
    page = Path(str(shown["report"])).read_text()
    assert "QC-17" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
