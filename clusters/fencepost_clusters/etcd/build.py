"""The etcd program, built by Go from `server/` once and kept in a cache folder.

The name of the program holds a digest of its sources, go.mod among them. Other sources make another
file. A second call does not start Go. Another version of etcd is built of the same sources, with a
go.mod that asks for that version, and takes whatever else it asks for.

A program of the user's own is run as it is. It has no hosts file of its own to resolve the names of
its peers by: so it gets one in a mount namespace (`in_namespace`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fencepost import EnvironmentFailed, UsageError, cache_folder, last_words, with_home

SOURCES = Path(__file__).parent / "server"
CACHE = "FENCEPOST_ETCD_CACHE"
"""Names another cache folder, such as one that several environments share."""
_LIMIT_S = 900
_LAST_LINES = 15
_ASKED_S = 10
_MODULE = "go.etcd.io/etcd/server/v3"
_SAYS = re.compile(r"^etcd Version: (\d+\.\d+\.\S+)", re.MULTILINE)


def default_cache() -> Path:
    """FENCEPOST_ETCD_CACHE, or else a folder of `cache_folder`, which may raise."""
    named = os.environ.get(CACHE)
    return Path(named) if named else cache_folder(os.environ) / "etcd"


def digest(sources: Path = SOURCES, version: str = "") -> str:
    """A digest of all files that the program is made of, and of the version, if it is another one
    than go.mod says."""
    whole = hashlib.sha256(version.encode())
    code = [path for path in sources.rglob("*.go") if not path.name.endswith("_test.go")]
    for path in sorted([*code, sources / "go.mod", sources / "go.sum"]):
        whole.update(f"{path.relative_to(sources)}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def binary(cache_dir: Path, version: str = "") -> Path:
    """The program's path; builds it if it does not exist, which takes minutes and needs the Go
    proxy. Without a version, it is the one in go.mod.

    Raises EnvironmentFailed without Go, or when the build fails.
    """
    program = cache_dir / f"etcd-{digest(version=version)}"
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
                _build(go, program, version)
    except OSError as refused:
        raise EnvironmentFailed(f"the etcd server cannot be kept in {cache_dir}: {refused}") from (
            refused
        )
    return program


def version_of(program: Path) -> str:
    """The version that a program of the user's own says. Raises UsageError if it is no etcd."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", check=False,
            timeout=_ASKED_S, stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise UsageError(f"{program} is no etcd: {failed}") from failed
    found = _SAYS.search(said)
    if found is None:
        raise UsageError(f"{program} is no etcd: --version prints no 'etcd Version: 3.x.y'")
    return found[1]


def in_namespace(program: Path, user: int) -> tuple[str, ...]:
    """The beginning of a command by which a program sees the file `hosts` of its work folder as
    /etc/hosts, and nobody else does. Each program keeps the number of its process."""
    root = () if user == 0 else ("--map-root-user",)
    script = 'mount --bind hosts /etc/hosts && exec "$0" "$@"'
    return ("unshare", *root, "--mount", "sh", "-c", script, str(program))


def _sources(folder: Path, version: str) -> Path:
    """Where the program's sources are; those of another version are made in this folder."""
    if not version:
        return SOURCES
    for name in ("main.go", "hosts/hosts.go"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCES / name, folder / name)
    own = (SOURCES / "go.mod").read_text()
    # The first block has what the sources name themselves. What etcd asks for is etcd's to say.
    needs = re.sub(rf"({_MODULE}) \S+", rf"\1 v{version}", own[: own.index(")") + 1])
    (folder / "go.mod").write_text(needs)
    return folder


def _build(go: str, program: Path, version: str) -> None:
    # Built beside its place and renamed, so that an interrupted build leaves no partial program.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".etcd-") as folder:
        made = Path(folder) / "etcd"
        sources = _sources(Path(folder) / "sources", version)
        argv = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
        # Without cgo the program is static, so it runs in any container, and it uses Go's resolver.
        environment = {**with_home(os.environ), "CGO_ENABLED": "0", "GOWORK": "off"}
        if version:
            environment["GOFLAGS"] = "-mod=mod"  # its go.mod is completed
        try:
            done = subprocess.run(
                argv, cwd=sources, env=environment, capture_output=True, text=True,
                timeout=_LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise EnvironmentFailed(
                f"the etcd server was not built within {_LIMIT_S} seconds"
            ) from late
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            what = f"etcd {version}" if version else "the etcd server"
            raise EnvironmentFailed(f"{what} could not be built by Go: {last_words(last)}", last)
        made.replace(program)


if __name__ == "__main__":
    print(binary(Path(sys.argv[1]) if len(sys.argv) > 1 else default_cache()))
