"""Builds our toxiproxy with Go, from the sources that are installed with Fencepost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.injection.toxiproxies import PROGRAM
from fencepost.model.disk import written_to
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.last_words import last_words

SOURCES = Path(__file__).with_name("toxiproxy")
LIMIT_S = 600
_LAST_LINES = 15


def places(environment: Mapping[str, str]) -> Sequence[Path]:
    """The folders in which runs find the program, the best first: beside this Python, or one for
    the user's own programs that is on the PATH."""
    own = Path.home() / ".local" / "bin"
    on_path = environment.get("PATH", "").split(os.pathsep)
    return [Path(sys.executable).parent, *([own] if str(own) in on_path else [])]


def build_toxiproxy(into: Path | None, environment: Mapping[str, str]) -> Path:
    """Builds the program into a folder, by default the first of `places` that can be written.

    Without C it stands alone, in any container; the same sources make the same bytes anywhere. The
    modules that it is made of are pinned by go.sum. Raises EnvironmentFailed if Go is missing or
    fails, or if no folder can be written.
    """
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise EnvironmentFailed("Go is missing: toxiproxy is built with it (1.23 or newer)")
    folders = [into.absolute()] if into is not None else places(environment)
    folder = next((one for one in folders if os.access(one, os.W_OK)), None)
    if folder is None:
        named = " nor ".join(map(str, folders))
        raise EnvironmentFailed(f"neither {named} can be written: name a folder by --into")
    with written_to(folder), tempfile.TemporaryDirectory(dir=folder) as beside:
        made = Path(beside, PROGRAM)
        words = ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(made), "."]
        try:
            done = subprocess.run(
                [go, *words],
                cwd=SOURCES,
                env={**environment, "CGO_ENABLED": "0", "GOWORK": "off"},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise EnvironmentFailed(f"Go built no toxiproxy within {LIMIT_S} s") from late
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            raise EnvironmentFailed(f"toxiproxy could not be built by Go: {last_words(last)}", last)
        made.replace(folder / PROGRAM)
    return folder / PROGRAM
