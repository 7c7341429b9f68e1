"""Versions of the software under test, as far as one can stand in for another."""

from __future__ import annotations

import re
from collections.abc import Collection

_OWN = re.compile(r"\d+(\.\d+)+[-+.][0-9A-Za-z.+-]*[A-Za-z][0-9A-Za-z.+-]*")
"""A version that is no release: behind its numbers stands a word, as in `4.5.0-SNAPSHOT`."""
_NUMBERS = re.compile(r"\d+(\.\d+)*")


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
