"""`fencepost demo`, run as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIMIT_S = 400


def run_demo(system: str, out: Path) -> dict[str, object]:
    """What `fencepost demo --json` prints about one system."""
    command = "from fencepost.commands.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", command, "demo", "--json", "--system", system, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    result: dict[str, object] = json.loads(ended.stdout)
    return result
