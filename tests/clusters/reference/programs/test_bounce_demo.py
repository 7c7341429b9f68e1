"""The second act of the demo: a StopReplica of a bounce, with and without broker epochs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from demos import run_demo

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper is a Java program"),
]


def test_an_old_stop_replica_is_refused_by_its_broker_epoch_and_obeyed_without_that_check(
    tmp_path: Path,
) -> None:
    (act,) = run_demo("reference/legacy", tmp_path)["acts"]  # type: ignore[misc]
    healthy, broken = act["runs"]
    verdicts = {clause: v["verdict"] for clause, v in healthy["verdicts"].items()}
    assert not [c for c, v in verdicts.items() if v in ("violated", "unknown")]
    assert [verdicts[c] for c in ("BE-02", "BE-03")] == ["holds", "holds"]
    assert all(receipt["true"] for run in act["runs"] for receipt in run["receipts"])
    assert broken["defect"] == "obeys-old-stop-replica"
    assert {"BE-02", "BE-03"} & set(act["found"])
