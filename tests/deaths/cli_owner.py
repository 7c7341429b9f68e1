"""The command line as the owner of a run: `fencepost cluster up`, with a `ready` file.

The file is made once the command has printed the bootstrap address, which it does when the cluster
is ready.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.commands.cli import main

FOLDER = Path(sys.argv[1])


class OutputWatcher:
    """Standard output that makes the file when anything is printed."""

    def write(self, text: str) -> int:
        (FOLDER / "ready").touch()
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


if __name__ == "__main__":
    counts = ("--count", "controller=1", "--count", "broker=1")
    words = ["cluster", "up", *counts, "--out", str(FOLDER / "out")]
    for setting in ("min.insync.replicas=1", "default.replication.factor=1"):
        words += ["--setting", setting]
    sys.argv = ["fencepost", *words]
    sys.stdout = OutputWatcher()  # type: ignore[assignment]
    main()
