"""Names of processes and slots: `node-2#3` is the third process in the slot `node-2`."""

from __future__ import annotations

from functools import lru_cache

_SECOND = ("-duplicate", "-twin")
"""How the name of a slot ends whose process has the id of another slot's node; the last one is of
older histories."""


def is_client(process: str) -> bool:
    """Whether a process is a client of the run, such as `clients/writer-1#1`, and no node of the
    system. A client may also work in the slot of an app."""
    return "/" in process


@lru_cache(maxsize=4096)
def slot_of(process: str) -> str:
    """`node-2` of `node-2#3`, and of itself."""
    return process.partition("#")[0]


def second_of(slot: str) -> str:
    """The slot of a second process with the id of a slot's node."""
    return f"{slot}{_SECOND[0]}"


@lru_cache(maxsize=4096)
def is_second(process: str) -> bool:
    """Whether a process, or that of a slot, is a second one with the id of another slot's node: a
    fault started it, with a disk of its own."""
    return slot_of(process).endswith(_SECOND)


@lru_cache(maxsize=4096)
def first_of(process: str) -> str:
    """The slot of the node whose id a process has, or that of a slot: of a second one the first,
    else its own."""
    slot = slot_of(process)
    for ending in _SECOND:
        slot = slot.removesuffix(ending)
    return slot
