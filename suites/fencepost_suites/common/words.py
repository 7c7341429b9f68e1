"""Formats partitions for messages."""

from __future__ import annotations

from collections.abc import Iterable


def named(places: Iterable[tuple[str, int]]) -> str:
    """`orders-0, orders-3 and payments-1`; for many, the first three and how many more."""
    names = sorted(f"{topic}-{partition}" for topic, partition in places)
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
