"""The plugin's own suite on real members, as `fencepost run --system etcd/cluster` runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost_clusters.etcd.build import CACHE, binary, default_cache

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go builds the etcd server"),
]
LOCKS = "fencepost_clusters.etcd.suite.test_locks"
HEEDLESS = "test_a_client_that_goes_on_after_its_lease_ran_out_is_refused"


def ran(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A program of this Python's environment, run in an empty folder."""
    built = binary(default_cache()).parent
    program = Path(sys.executable).parent / argv[0]
    return subprocess.run(
        [program, *argv[1:]],
        cwd=folder,
        env={**os.environ, CACHE: str(built)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    "selected",
    [
        ["-k", f"{HEEDLESS} or larger_side"],  # every clause of the system
        pytest.param([], marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def test_fencepost_run_without_a_path_runs_it_and_every_test_passes(
    selected: list[str], tmp_path: Path
) -> None:
    done = ran(tmp_path, "fencepost", "run", "--system", "etcd/cluster", "--json", *selected)
    report: dict[str, Any] = json.loads(done.stdout)
    held = {clause for clause, verdict in report["verdicts"].items() if verdict == "holds"}
    assert held >= {f"ETCD-0{number}" for number in range(1, 8)}
    assert [one for one in report["tests"] if one["outcome"] != "passed"] == [], done.stderr
    assert HEEDLESS in {one["test"].partition("::")[2] for one in report["tests"]}
    assert done.returncode == 0


def test_a_store_that_checks_no_token_is_found_and_explained(tmp_path: Path) -> None:
    options = ["--fencepost-system=etcd/cluster", "--fencepost-defects=store-checks-no-token"]
    selected = ["--pyargs", LOCKS, "-k", HEEDLESS]
    done = ran(tmp_path, "pytest", *options, *selected)
    assert done.returncode == 1, done.stdout
    words = done.stdout
    assert set(re.findall(r"(\S+) is violated", words)) == {"ETCD-06"}
    assert "took lock lock with token" in words
    assert "no longer holds it" in words
    assert "unchecked  <- this broke it" in words
