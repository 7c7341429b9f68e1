"""`fencepost doctor`: whether this machine meets the requirements of runs, one finding each."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import asdict

from fencepost.commands.options import Json
from fencepost.commands.terminal import errors, output, print_json, show
from fencepost.injection.toxiproxies import find_toxiproxy, toxiproxy_version
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EnvironmentFailed
from fencepost.supervision import supervisor

if TYPE_CHECKING:
    from fencepost.runtimes.docker.engine import Engine

JAVA_LEAST = 17
_LIMIT_S = 20


class Finding(Struct, frozen=True):
    """One requirement: whether it is met, and the reason in words."""

    what: str
    good: bool
    message: str


def doctor(
    reap: Annotated[
        bool,
        typer.Option("--reap", help="First remove what dead runs left in the container engine."),
    ] = False,
    json: Json = False,
) -> None:
    """Checks whether this machine meets the requirements of runs, and lists what dead runs left."""
    for gone in remove_leftovers() if reap else ():
        show(errors(), f"removed {gone}")
    found = examine()
    if json:
        print_json([asdict(one) for one in found])
    else:
        console = output()
        for one in found:
            mark = ("ok   ", "green") if one.good else ("lacks", "red")
            show(console, mark, f" {one.what}: {one.message}")
    raise typer.Exit(EXIT_CLEAN if all(one.good for one in found) else EXIT_ENVIRONMENT)


def examine() -> Sequence[Finding]:
    """Checks everything; takes a second or two."""
    looks: Sequence[tuple[str, Callable[[], tuple[bool, str]]]] = (
        ("Python", _python),
        ("toxiproxy", _toxiproxy),
        ("Java", _java),
        ("loopback", _loopback),
        ("leftovers", _leftovers),
        ("container engine", _engine),
        ("containers", _containers),
    )
    return [Finding(what, *look()) for what, look in looks]


def remove_leftovers() -> Sequence[str]:
    """Removes what dead runs left in the container engine, and nothing without Fencepost's labels.

    Returns what that was, in words. Raises EnvironmentFailed if there is no engine, or something
    could not be removed.
    """
    engine = _connect()
    try:
        return [str(left) for left in engine.clear(lambda left: left.abandoned)]
    finally:
        engine.close()


def _connect() -> Engine:
    """The container engine. Its client is imported only here, since that takes a fifth of the time
    in which any command starts."""
    from fencepost.runtimes.docker.engine import connect  # noqa: PLC0415

    return connect(os.environ)


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), sys.version.split()[0]


def _toxiproxy() -> tuple[bool, str]:
    try:
        path = find_toxiproxy(os.environ)
    except EnvironmentFailed as missing:
        return False, str(missing)
    return True, f"{toxiproxy_version(path)} at {path}"


def _java() -> tuple[bool, str]:
    java = shutil.which("java")
    if java is None:
        return False, f"not found; the Spark report needs {JAVA_LEAST} or newer"
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    version = re.search(r'version "(\d+)', said.stderr)
    if version is None:
        return False, f"{java} does not print its version"
    return int(version[1]) >= JAVA_LEAST, f"{version[1]} at {java}"


def _loopback() -> tuple[bool, str]:
    """Slots use addresses all over 127.0.0.0/8, which some systems do not offer."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.222.1.1", 0))
    except OSError as refused:
        return False, f"127.222.1.1 cannot be bound: {refused.strerror}"
    return True, "any address of 127.0.0.0/8 can be bound"


def _engine() -> tuple[bool, str]:
    """Only the docker runtime needs an engine, so a machine without one is not at fault."""
    try:
        engine = _connect()
    except EnvironmentFailed as missing:
        return True, f"none, which only the docker runtime needs: {missing}"
    from fencepost.runtimes.docker.pods import IMAGE  # noqa: PLC0415

    try:
        without = "" if engine.has_image(IMAGE) else f"; without {IMAGE}, see ./dev images"
        return True, f"version {engine.version}{without}"
    finally:
        engine.close()


def _containers() -> tuple[bool, str]:
    """What dead runs left in the container engine, and how much belongs to live runs or other
    hosts."""
    try:
        engine = _connect()
    except EnvironmentFailed:
        return True, "no engine, so nothing is left there"
    try:
        found = engine.leftovers()
    finally:
        engine.close()
    abandoned = [str(left) for left in found if left.abandoned]
    others = len(found) - len(abandoned)
    beside = f"; {others} belong to live runs or other hosts" if others else ""
    if abandoned:
        return False, f"left of dead runs, see --reap: {', '.join(abandoned)}{beside}"
    return True, f"nothing of dead runs{beside}"


def is_supervisor(words: Sequence[bytes]) -> bool:
    """Whether this command line starts a supervisor, of this installation or of another one."""
    place = os.fsencode(Path(*Path(supervisor.__file__).parts[-3:]))
    return any(word.endswith(place) for word in words)


def _leftovers() -> tuple[bool, str]:
    """Supervisors without an owner: there should never be one."""
    orphans = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
        if parent == 1 and is_supervisor(words):
            orphans.append(folder.name)
    if orphans:
        return False, f"supervisors without an owner: process ids {', '.join(sorted(orphans))}"
    return True, "no process of a dead run"
