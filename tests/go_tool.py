"""Go, as the builds of this project call it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

FLAGS = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-trimpath"}
"""Those of `./dev setup`: with any others, Go compiles its whole library once more."""
LIMIT_S = 300


def go(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of Go in a folder."""
    return subprocess.run(
        ["go", *words],
        cwd=cwd,
        env={**os.environ, **FLAGS},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
