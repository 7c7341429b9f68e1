"""What stands behind the `@` in the name of a system: a version, or a path of a build; and which
version stands in for another."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

_OWN = re.compile(r"\d+(\.\d+)+[-+.][0-9A-Za-z.+-]*[A-Za-z][0-9A-Za-z.+-]*")
"""A version that is no release: behind its numbers stands a word, as in `4.5.0-SNAPSHOT`."""
_NUMBERS = re.compile(r"\d+(\.\d+)*")


def named_path(version: str) -> Path | None:
    """The whole path that stands in place of a version: it has a slash in it, or begins with a dot
    or a tilde. None: it is a version.

    A system's name is written into its runs with the whole path, since a replay may be asked for in
    another folder.
    """
    if "/" not in version and not version.startswith((".", "~")):
        return None
    return Path(os.path.normpath(Path(version).expanduser().absolute()))


def nearest(version: str, releases: Collection[str]) -> str:
    """The release that stands in for a version.

    A release stands for itself: what it may have inherited from others is looked at anew. Another
    version, such as `4.5.0-SNAPSHOT`, has its first numbers from a release, and what was not mended
    on the way: of these releases, the newest one that is not above it, or else the oldest.
    """
    if version in releases or not releases or not _OWN.fullmatch(version):
        return version
    below = [one for one in releases if numbers(one) <= numbers(version)]
    return max(below, key=numbers) if below else min(releases, key=numbers)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (4, 5, 0) of `4.5.0-SNAPSHOT`."""
    found = _NUMBERS.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()
