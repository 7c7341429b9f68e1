"""The etcd program, built by Go from `server/` once and kept in a cache folder.

The name of the program holds a digest of its sources, go.mod among them. Other sources make another
file. A second call does not start Go.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fencepost import EnvironmentFailed, cache_folder, last_words, with_home

SOURCES = Path(__file__).parent / "server"
CACHE = "FENCEPOST_ETCD_CACHE"
"""Names another cache folder, such as one that several environments share."""
_LIMIT_S = 900
_LAST_LINES = 15


def default_cache() -> Path:
    """FENCEPOST_ETCD_CACHE, or else a folder of `cache_folder`, which may raise."""
    named = os.environ.get(CACHE)
    return Path(named) if named else cache_folder(os.environ) / "etcd"


def digest(sources: Path = SOURCES) -> str:
    """A digest of all files that the program is made of."""
    whole = hashlib.sha256()
    code = [path for path in sources.rglob("*.go") if not path.name.endswith("_test.go")]
    for path in sorted([*code, sources / "go.mod", sources / "go.sum"]):
        whole.update(f"{path.relative_to(sources)}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def binary(cache_dir: Path) -> Path:
    """The program's path; builds it if it does not exist, which takes minutes and needs the Go
    proxy.

    Raises EnvironmentFailed without Go, or when the build fails.
    """
    program = cache_dir / f"etcd-{digest()}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise EnvironmentFailed(
            "Go is missing: etcd/cluster builds its server with it, once (install Go 1.21 or newer)"
        )
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / ".etcd.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                _build(go, program)
    except OSError as refused:
        raise EnvironmentFailed(f"the etcd server cannot be kept in {cache_dir}: {refused}") from (
            refused
        )
    return program


def _build(go: str, program: Path) -> None:
    # Built beside its place and renamed, so that an interrupted build leaves no partial program.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".etcd-") as folder:
        made = Path(folder) / "etcd"
        argv = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
        # Without cgo the program is static, so it runs in any container, and it uses Go's resolver.
        environment = {**with_home(os.environ), "CGO_ENABLED": "0", "GOWORK": "off"}
        try:
            done = subprocess.run(
                argv, cwd=SOURCES, env=environment, capture_output=True, text=True,
                timeout=_LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise EnvironmentFailed(
                f"the etcd server was not built within {_LIMIT_S} seconds"
            ) from late
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            raise EnvironmentFailed(
                f"the etcd server could not be built by Go: {last_words(last)}", last
            )
        made.replace(program)


if __name__ == "__main__":
    print(binary(Path(sys.argv[1]) if len(sys.argv) > 1 else default_cache()))
