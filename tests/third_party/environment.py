"""An environment in which Fencepost is installed from its wheel, and nothing is editable."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Environment:
    """See the module; `bin` has its programs.

    Fencepost's dependencies come from this interpreter's own packages, behind those of the
    environment. Nothing is downloaded.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """An environment with Fencepost in it."""
        made = cls(folder / "venv")
        venv.create(made.folder, with_pip=False, symlinks=True)
        (packages,) = (made.folder / "lib").glob("python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        made.install(build(ROOT, folder / "framework"))
        return made

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def install(self, wheel: Path) -> None:
        """Installs a wheel, without its dependencies."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        words = [*pip, "--quiet", "--no-index", "--no-deps", "--ignore-installed", str(wheel)]
        subprocess.run(words, check=True, capture_output=True)

    def run(self, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment in a folder, to its end; toxiproxy is found beside this
        interpreter."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            [str(self.bin / program), *words],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )


def build(project: Path, out: Path) -> Path:
    """The project's wheel, built by its own backend, which writes beside the project."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel
