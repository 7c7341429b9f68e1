"""What stands behind the `@` in the name of a system: a version, the path of a build, or an image;
and which version stands in for another."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from fencepost.model.errors import UsageError

_OWN = re.compile(r"\d+(\.\d+)+[-+.][0-9A-Za-z.+-]*[A-Za-z][0-9A-Za-z.+-]*")
"""A version that is no release: behind its numbers stands a word, as in `4.5.0-SNAPSHOT`."""
_IMAGE = "docker://"
_NUMBERS = re.compile(r"\d+(\.\d+)*")


def named_path(version: str) -> Path | None:
    """The whole path that stands in place of a version: it has a slash in it, or begins with a dot
    or a tilde. None: it is a version.

    A system's name is written into its runs with the whole path, since a replay may be asked for in
    another folder.
    """
    if named_image(version) or ("/" not in version and not version.startswith((".", "~"))):
        return None
    return Path(os.path.normpath(Path(version).expanduser().absolute()))


def named_image(version: str) -> str:
    """The image that stands in place of a version, as in `docker://me/mine:1.0`; empty: it is
    none."""
    return version.removeprefix(_IMAGE) if version.startswith(_IMAGE) else ""


def in_image(systems: Sequence[str], given: str) -> Sequence[str]:
    """The names of systems, of which one runs in an image that `SYSTEM=IMAGE` gives it; without
    such a text they are as they were.

    Raises UsageError for a text that is no such pair, or whose system is none of them.
    """
    if not given:
        return systems
    system, _, image = given.partition("=")
    if not system or not image or any(map(str.isspace, given)):
        raise UsageError(
            f"{given!r} names no system and its image: SYSTEM=IMAGE, with names as in "
            "--system and as the engine knows them"
        )
    if system not in systems:
        raise UsageError(
            f"the image {image} is of the system {system}, and what runs is {', '.join(systems)}"
        )
    named = f"{system.partition('@')[0]}@{_IMAGE}{image}"
    return [named if one == system else one for one in systems]


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
