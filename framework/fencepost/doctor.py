"""What a machine has of what runs need, one finding a thing; nothing is changed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from fencepost.errors import EnvironmentFailed
from fencepost.toxiproxies import find_toxiproxy, toxiproxy_version

JAVA_LEAST = 17
_LIMIT_S = 20


class Finding(Struct, frozen=True):
    """One thing that was looked for: whether it is good, and what was found, in words."""

    what: str
    good: bool
    saying: str


def examine() -> Sequence[Finding]:
    """Looks at everything; takes a second or two."""
    looks: Sequence[tuple[str, Callable[[], tuple[bool, str]]]] = (
        ("Python", _python),
        ("toxiproxy", _toxiproxy),
        ("Java", _java),
        ("loopback", _loopback),
        ("leftovers", _leftovers),
    )
    return [Finding(what, *look()) for what, look in looks]


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
        return False, f"{java} does not say its version"
    return int(version[1]) >= JAVA_LEAST, f"{version[1]} at {java}"


def _loopback() -> tuple[bool, str]:
    """Slots live on addresses all over 127.0.0.0/8, which some systems do not offer."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.222.1.1", 0))
    except OSError as refused:
        return False, f"127.222.1.1 cannot be bound: {refused.strerror}"
    return True, "any address of 127.0.0.0/8 can be bound"


def _leftovers() -> tuple[bool, str]:
    """Supervisors whose owner is gone: there should never be one."""
    orphans = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
        if any(word.endswith(b"fencepost/supervisor.py") for word in words) and parent == 1:
            orphans.append(folder.name)
    if orphans:
        return False, f"supervisors without an owner: process ids {', '.join(sorted(orphans))}"
    return True, "no process of a dead run"
