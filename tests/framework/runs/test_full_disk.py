"""A disk of the machine that is full, for real: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOUNTED = """
mount -t tmpfs -o size="$1" none "$2" && shift 2
"$@"
code=$?
cp -r "$DISK" "$KEPT"
exit $code
"""
"""Runs a command beside a new disk, and copies what is on it."""
FENCEPOST = (sys.executable, "-c", "from fencepost.commands.cli import main; main()")
LIMIT_S = 120


def on_disk(size: str, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The command with a disk of this size at `disk`; what it left there is in `kept`."""
    disk, kept = folder / "disk", folder / "kept"
    disk.mkdir()
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    if os.geteuid() and subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("this machine lets only root mount a disk")
    return subprocess.run(
        [*namespace, "sh", "-c", MOUNTED, "sh", size, disk, *FENCEPOST, *words],
        env={**os.environ, "DISK": str(disk), "KEPT": str(kept)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("size", "words", "says"),
    [
        pytest.param(
            "80k",
            ("soak", "--runs", "1", "--minutes", "0.05", "--runtime", "simulated"),
            r"the disk is full: \S+/events/\S+ndjson needs \d+ bytes more, and \d+ bytes are free",
            marks=pytest.mark.tool,
            id="simulated",
        ),
        pytest.param(
            "1200k",
            ("cluster", "up", "--workload", "kafka_clients"),
            r"the disk is full: ",
            marks=pytest.mark.real,
            id="process",
        ),
    ],
)
def test_a_full_disk_is_a_failed_environment_and_leaves_a_readable_run(
    tmp_path: Path, size: str, words: tuple[str, ...], says: str
) -> None:
    out = tmp_path / "disk" / "runs"
    ended = on_disk(size, tmp_path, [*words, "--out", str(out)])
    assert ended.returncode == 4, ended.stderr
    assert re.search(says, ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    (run,) = (path.parent for path in (tmp_path / "kept").rglob("run.json"))
    read = subprocess.run(
        [*FENCEPOST, "report", str(run), "--out", str(tmp_path / "report")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert read.returncode == 3, read.stderr
    assert "is not complete: " in read.stderr
