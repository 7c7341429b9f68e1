"""How sure a counted share is."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95
"""How likely an interval contains the share that it was made for."""


class Interval(NamedTuple):
    """Two shares between which the true one is."""

    low: float
    high: float


def interval(seen: int, of: int, compared: int = 1) -> Interval:
    """Wilson's score interval of a share that was `seen` times in `of` trials.

    If so many shares are `compared` with something, all their intervals together contain the true
    shares with `CONFIDENCE` (Bonferroni's correction). Of no trial at all it is anything.
    """
    if not of:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * max(1, compared)))
    share = seen / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * (share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5
    return Interval(max(0.0, middle - half), min(1.0, middle + half))
