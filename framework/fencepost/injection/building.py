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
from fencepost.model.machine import home_folder, with_home

SOURCES = Path(__file__).with_name("toxiproxy")
LIMIT_S = 600
_LAST_LINES = 15


def places(environment: Mapping[str, str]) -> Sequence[Path]:
    """The folders in which runs find the program, the best first: beside this Python, or one for
    the user's own programs that is on the PATH."""
    home = home_folder(environment)
    own = [] if home is None else [home / ".local" / "bin"]
    on_path = environment.get("PATH", "").split(os.pathsep)
    return [Path(sys.executable).parent, *(one for one in own if str(one) in on_path)]


def _first_writable(environment: Mapping[str, str]) -> Path:
    folders = places(environment)
    for folder in folders:
        if os.access(folder, os.W_OK):
            return folder
    named = " and ".join(map(str, folders))
    raise EnvironmentFailed(f"{named} cannot be written: name a folder by --into")


def build_toxiproxy(into: Path | None, environment: Mapping[str, str]) -> Path:
    """Builds the program into a folder, which is made if it is missing; by default into the first
    of `places` that can be written.

    Without C it stands alone, in any container; the same sources make the same bytes anywhere. The
    modules that it is made of are pinned by go.sum. Raises EnvironmentFailed if Go is missing or
    fails, or if no folder can be written.
    """
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise EnvironmentFailed("Go is missing: toxiproxy is built with it (1.23 or newer)")
    folder = _first_writable(environment) if into is None else into.absolute()
    with written_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with written_to(folder), tempfile.TemporaryDirectory(dir=folder) as beside:
        made = Path(beside, PROGRAM)
        words = ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(made), "."]
        try:
            done = subprocess.run(
                [go, *words],
                cwd=SOURCES,
                env={**with_home(environment), "CGO_ENABLED": "0", "GOWORK": "off"},
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
