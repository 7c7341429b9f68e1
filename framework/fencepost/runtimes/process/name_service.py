"""How a program on this host resolves the names of slots, as `Command.hosts` asks for.

Each slot has its own address for each other slot (`Place.hosts`), so one list of addresses for all
nodes does not fit. One list of names does: each process gets a hosts file of its own. A container
has these names in its /etc/hosts. A process of this host shares /etc/hosts with everything else, so
nss_wrapper, a library that is loaded before libc, answers from the file. A JVM reads it by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.capabilities import Command, Place

FILE = "hosts"
LIBRARY = "libnss_wrapper.so"
_JAVA_OPTION = f"-Djdk.net.hosts.file={FILE}"
_LOADS = f"import ctypes; ctypes.CDLL({LIBRARY!r})"


def hosts_file(addresses: Mapping[str, str]) -> str:
    """The text of a hosts file with these names."""
    lines = {**addresses, "localhost": "127.0.0.1"}
    return "".join(f"{address} {name}\n" for name, address in lines.items())


@cache
def is_installed() -> bool:
    """Whether a program of this host can load nss_wrapper."""
    argv = [sys.executable, "-I", "-c", _LOADS]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def resolving(
    command: Command, place: Place, installed: Callable[[], bool] = is_installed
) -> Command:
    """The command of a process that resolves the names of slots, if it asks for that.

    Raises EnvironmentFailed if the program needs nss_wrapper and it is not installed.
    """
    if not command.hosts:
        return command
    files = {FILE: hosts_file(place.hosts), **command.files}
    if place.image:
        return replace(command, files=files)
    environment = dict(command.environment)
    given = environment.get("JAVA_TOOL_OPTIONS")
    # For every program, since a script may start a JVM; other programs do not read it.
    environment["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, (given, _JAVA_OPTION)))
    # A JVM resolves names by itself: its own option is enough, and the library is not needed.
    if Path(command.argv[0]).name != "java":
        if not installed():
            raise EnvironmentFailed(
                f"{place.process} resolves the names of other nodes by {LIBRARY}, which is not "
                "installed: it is in the package libnss-wrapper of Debian, nss_wrapper of Fedora"
            )
        given = environment.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = ":".join(filter(None, (given, LIBRARY)))
        environment["NSS_WRAPPER_HOSTS"] = os.fspath(place.work_dir / FILE)
    # A fork of a template has loaded its libraries long ago.
    return replace(command, environment=environment, files=files, preload=False)
