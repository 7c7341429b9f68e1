"""What runs need of their machine and its user: a kernel, a Java, a folder for caches."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.model.errors import EnvironmentFailed

NEEDS_NONE = "the simulated runtime needs none of it"


def check_platform(platform: str = sys.platform) -> None:
    """Raises EnvironmentFailed where real processes cannot be run: on another platform than Linux,
    and where it has no /proc or no inotify. The simulator, reports and the documentation need none
    of these."""
    if platform != "linux":
        raise EnvironmentFailed(
            f"Fencepost runs real processes on Linux only, not on {platform}: they need every "
            f"address of 127.0.0.0/8, inotify and /proc; {NEEDS_NONE}"
        )
    try:
        Path(f"/proc/{os.getpid()}/stat").read_bytes()
    except OSError as refused:
        raise EnvironmentFailed(
            f"real processes need /proc, which cannot be read here ({refused.strerror}); "
            f"{NEEDS_NONE}"
        ) from refused
    try:
        # Imported here: the module looks for inotify in libc.
        import inotify_simple  # noqa: PLC0415

        inotify_simple.INotify().close()
    except (ImportError, AttributeError, OSError) as refused:
        # Too many instances are another fault, which has a sentence of its own (`Feed`).
        if getattr(refused, "errno", None) != errno.EMFILE:
            raise EnvironmentFailed(
                f"real processes need inotify, which is not to be had here ({refused}); "
                f"{NEEDS_NONE}"
            ) from refused


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
