"""Makes events of what the program prints: a table, one row for each line that matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import final

from msgspec import Struct

from fencepost import NodeStarted, ParsedEvent, Slot
from fencepost_acme.events import PeerChanged, ServerStarted

_LINE = re.compile(r"(?P<stamp>\S+) (?P<text>.*)")
"""A line of the log: its time, with milliseconds at least, and its text."""


def _ready(slot: Slot, found: re.Match[str]) -> Sequence[Struct]:
    """`NodeStarted` is the first event of a process: the fault `duplicate_id` needs it."""
    return (
        NodeStarted(role=slot.role, node_id=slot.node_id),
        ServerStarted(server=slot.name, token=int(found["token"])),
    )


def _peer(slot: Slot, found: re.Match[str]) -> Sequence[Struct]:
    answers = found["state"] == "answers"
    return (PeerChanged(server=slot.name, peer=found["peer"], answers=answers),)


TABLE: Sequence[tuple[re.Pattern[str], Callable[[Slot, re.Match[str]], Sequence[Struct]]]] = (
    (re.compile(r"ready, newest token (?P<token>\d+)"), _ready),
    (re.compile(r"peer (?P<peer>\S+) (?P<state>answers|is silent)"), _peer),
)


@final
class AcmeLogParser:
    """The parser of one process's log; see `fencepost.LogParser`."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The events of a line; none for a line without information."""
        parts = _LINE.fullmatch(line)
        if parts is None:
            return ()
        for pattern, make in TABLE:
            if found := pattern.fullmatch(parts["text"]):
                stamped = _nanoseconds(parts["stamp"])
                if stamped is None:
                    return ()
                return [ParsedEvent(stamped, body, wall=True) for body in make(self._slot, found)]
        return ()


def _nanoseconds(stamp: str) -> int | None:
    """Since 1970, by a stamp with a time zone; None for anything else."""
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else round(at.timestamp() * 1_000_000) * 1_000
