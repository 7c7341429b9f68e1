"""Names of processes and slots: `node-2#3` is the third process in the slot `node-2`."""

from __future__ import annotations

from functools import lru_cache

DUPLICATES = ("-duplicate", "-twin")
"""How the name of a slot ends whose process has the id of another slot's node; the last one is of
older histories."""


@lru_cache(maxsize=4096)
def slot_of(process: str) -> str:
    """`node-2` of `node-2#3`, and of itself."""
    return process.partition("#")[0]


def second_of(slot: str) -> str:
    """The slot of a second process with the id of a slot's node."""
    return f"{slot}{DUPLICATES[0]}"
