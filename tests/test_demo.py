"""The README's first command, as a stranger gives it: a defect of the quorum, then a StopReplica of
a bounce, with and without broker epochs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

LIMIT_S = 800

OWED = {
    *(f"QC-{n:02}" for n in (7, 8, 9, 13, 14, 16, 17, 18, 19, 20, 21, 22, 28, 30, 35, 36)),
    *(f"REG-{n:02}" for n in (3, 5)),
    *(f"RP-{n:02}" for n in (4, 5, 6, 7, 9, 10, 13, 15, 18, 24, 27, 32)),
}
TIMED = {"QC-09", "QC-19", "QC-35", "REG-05", "RP-15", "RP-32"}
"""Exercised only if processes are fast enough; the suites test each of them alone."""


Result = dict[str, Any]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What the demo prints: both acts, and one report about them."""
    command = "from fencepost.commands.cli import main; main()"
    out = tmp_path_factory.mktemp("demo")
    ended = subprocess.run(
        [sys.executable, "-c", command, "demo", "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    result: Result = json.loads(ended.stdout)
    return result


@pytest.fixture(scope="module")
def shown(demo: Result) -> Result:
    """The first act."""
    first: Result = demo["acts"][0]
    assert first["system"] == "reference/quorum"
    return first


def test_the_healthy_run_breaks_nothing_and_leaves_nothing_open(shown: Result) -> None:
    healthy, _ = shown["runs"]
    assert healthy["defect"] is None
    verdicts = {clause: v["verdict"] for clause, v in healthy["verdicts"].items()}
    assert set(verdicts) >= OWED
    assert not [c for c, v in verdicts.items() if v in ("violated", "unknown")]
    assert [c for c in sorted(OWED - TIMED) if verdicts[c] != "holds"] == []


def test_every_fault_has_its_receipt(shown: Result) -> None:
    for run in shown["runs"]:
        assert len(run["receipts"]) >= 10
        assert all(receipt["true"] for receipt in run["receipts"])


def test_the_planted_defect_is_found(shown: Result) -> None:
    _, planted = shown["runs"]
    assert planted["defect"] == "serves-without-lease"
    assert "QC-17" in shown["found"]


def test_an_old_stop_replica_is_refused_by_its_broker_epoch_and_obeyed_without_that_check(
    demo: Result,
) -> None:
    _, act = demo["acts"]
    assert act["system"] == "reference/legacy"
    healthy, broken = act["runs"]
    verdicts = {clause: v["verdict"] for clause, v in healthy["verdicts"].items()}
    assert not [c for c, v in verdicts.items() if v in ("violated", "unknown")]
    assert [verdicts[c] for c in ("BE-02", "BE-03")] == ["holds", "holds"]
    assert all(receipt["true"] for run in act["runs"] for receipt in run["receipts"])
    assert broken["defect"] == "obeys-old-stop-replica"
    assert {"BE-02", "BE-03"} & set(act["found"])


def test_the_page_opens_offline(demo: Result) -> None:
    page = Path(demo["report"]).read_text()
    assert {"QC-17", "BE-02"} <= set(re.findall(r"[A-Z]+-\d+", page))
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
