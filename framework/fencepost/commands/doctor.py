"""`fencepost doctor`: whether this machine meets the requirements of runs, one finding each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import asdict

from fencepost.commands.options import Json
from fencepost.commands.terminal import errors, output, print_json, show
from fencepost.injection.toxiproxies import present_toxiproxy, toxiproxy_version
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EnvironmentFailed
from fencepost.model.extras import check_extra
from fencepost.model.machine import cache_folder, check_platform, java_program
from fencepost.supervision import supervisor
from fencepost.supervision.addresses import check_loopback

JAVA_LEAST = 17
_LIMIT_S = 20
_USUAL = "http://127.0.0.1:8474"
"""Where toxiproxy's API is unless it is told otherwise."""


class Finding(Struct, frozen=True):
    """One requirement: whether it is met, and the reason in words."""

    what: str
    good: bool
    message: str


def doctor(
    reap: Annotated[
        bool,
        typer.Option(
            "--reap",
            help="First remove what dead runs left in the container engine and in toxiproxies.",
        ),
    ] = False,
    toxiproxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A toxiproxy of yours, in which runs on an attached cluster may have left toxics; "
            "repeatable; by default the one on port 8474, if it answers.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Checks whether this machine meets the requirements of runs, and lists what dead runs left."""
    found = [*examine(), *_engine(reap), *_attached(toxiproxy, reap)]
    if json:
        print_json([asdict(one) for one in found])
    else:
        console = output()
        for one in found:
            mark = ("ok   ", "green") if one.good else ("lacks", "red")
            show(console, mark, f" {one.what}: {one.message}")
    raise typer.Exit(EXIT_CLEAN if all(one.good for one in found) else EXIT_ENVIRONMENT)


def _engine(reap: bool) -> Sequence[Finding]:
    """Checks the container engine, after it has removed what is to be removed there."""
    try:
        check_extra("docker", "the docker runtime")
    except EnvironmentFailed as lacking:
        if reap:
            raise
        return [Finding("container engine", True, f"not looked for: {lacking}")]
    # The engine's client takes a fifth of the time in which any command starts, if it is imported.
    from fencepost.commands import engine_checks  # noqa: PLC0415

    for gone in engine_checks.remove_leftovers() if reap else ():
        show(errors(), f"removed {gone}")
    return [Finding(*one) for one in engine_checks.examine()]


def _attached(urls: Sequence[str] | None, reap: bool) -> Sequence[Finding]:
    """Looks for toxics of ours in toxiproxies of the user's; removes them if asked to."""
    # toxiproxy-python's own imports take longer than most commands.
    from fencepost.injection.attached_server import TheirToxiproxy  # noqa: PLC0415

    found = []
    for url in urls or (_USUAL,):
        server, what = TheirToxiproxy(url), f"toxics at {url}"
        try:
            strays = server.strays()
            for proxy, toxic in strays if reap else ():
                server.remove(proxy, toxic)
                show(errors(), f"removed {toxic} from {proxy}")
            left = server.strays()
        except EnvironmentFailed as silent:
            # Nobody said that there is one on the usual port.
            found += [Finding(what, False, str(silent))] if urls else []
            continue
        named = ", ".join(f"{toxic} at {proxy}" for proxy, toxic in left)
        says = f"left by a run, if none is attached now, see --reap: {named}" if left else "none"
        found.append(Finding(what, not left, says))
    return found


def examine() -> Sequence[Finding]:
    """Checks this machine; takes a second or two."""
    looks: Sequence[tuple[str, Callable[[], tuple[bool, str]]]] = (
        ("Python", _python),
        ("kernel", _kernel),
        ("toxiproxy", _toxiproxy),
        ("Java", _java),
        ("loopback", _loopback),
        ("folder for software", _cache),
        ("leftovers", _leftovers),
    )
    return [Finding(what, *look()) for what, look in looks]


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), sys.version.split()[0]


def _kernel() -> tuple[bool, str]:
    try:
        check_platform()
    except EnvironmentFailed as lacking:
        return False, str(lacking)
    return True, f"{sys.platform}, with /proc and inotify"


def _toxiproxy() -> tuple[bool, str]:
    try:
        path = present_toxiproxy(os.environ)
    except EnvironmentFailed as missing:
        return False, str(missing)
    return True, f"{toxiproxy_version(path)} at {path}"


def _java() -> tuple[bool, str]:
    java = java_program(os.environ)
    if java is None or not os.access(java, os.X_OK):
        where = f"{java}, by JAVA_HOME, is no program" if java else "not found"
        return False, f"{where}; the Spark report needs {JAVA_LEAST} or newer"
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    version = re.search(r'version "(\d+)', said.stderr)
    if version is None:
        return False, f"{java} does not print its version"
    return int(version[1]) >= JAVA_LEAST, f"{version[1]} at {java}"


def _loopback() -> tuple[bool, str]:
    try:
        check_loopback()
    except EnvironmentFailed as refused:
        return False, str(refused)
    return True, "any address of 127.0.0.0/8 can be bound and reached"


def _cache() -> tuple[bool, str]:
    """Only software that is fetched needs a folder, so a user without one is not at fault."""
    try:
        return True, str(cache_folder(os.environ))
    except EnvironmentFailed as lacking:
        return True, f"none, which only software that is fetched needs: {lacking}"


def is_supervisor(words: Sequence[bytes]) -> bool:
    """Whether this command line starts a supervisor, of this installation or of another one."""
    place = os.fsencode(Path(*Path(supervisor.__file__).parts[-3:]))
    return any(word.endswith(place) for word in words)


def _leftovers() -> tuple[bool, str]:
    """Supervisors without an owner: there should never be one."""
    if not Path(f"/proc/{os.getpid()}/stat").is_file():
        return True, "not looked for: there is no /proc in which processes could be seen"
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
