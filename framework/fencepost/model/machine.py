"""What runs need of their machine and its user: Linux, a Java, a folder for caches."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.model.errors import EnvironmentFailed


def check_platform(platform: str = sys.platform) -> None:
    """Raises EnvironmentFailed for another platform than Linux."""
    if platform != "linux":
        raise EnvironmentFailed(
            f"Fencepost runs on Linux only, not on {platform}: it needs every address of "
            "127.0.0.0/8, inotify and /proc"
        )


def java_program(environment: Mapping[str, str]) -> str | None:
    """The `java` of JAVA_HOME if that is set, whether it is there or not, or else of the PATH."""
    home = environment.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))


def home_folder(environment: Mapping[str, str]) -> Path | None:
    """The user's home: HOME, or what the system's list of users says; None without either."""
    if environment.get("HOME"):
        return Path(environment["HOME"])
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def with_home(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of a tool that keeps files in the user's home, such as Go: it reads HOME, and
    not the system's list of users."""
    home = home_folder(environment)
    return environment if home is None else {**environment, "HOME": str(home)}


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder that keeps fetched and built software, one folder a program:
    `$XDG_CACHE_HOME/fencepost`, or `~/.cache/fencepost`.

    Raises EnvironmentFailed for a user without a home if XDG_CACHE_HOME is not set.
    """
    home = home_folder(environment)
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "fencepost"
    if home is None:
        raise EnvironmentFailed(
            f"the user {os.getuid()} has no home in which software could be kept: name a folder in "
            "XDG_CACHE_HOME"
        )
    return home / ".cache" / "fencepost"
