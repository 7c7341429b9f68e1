"""Makes events of the lines that a server prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec
from msgspec import Struct

from fencepost import NodeStarted, ParsedEvent, Slot
from fencepost_acme.events import PeerChanged, ServerStarted


class _Started(Struct, tag="started"):
    at: int
    token: int


class _Peer(Struct, tag="peer"):
    at: int
    peer: str
    answers: bool


@final
class AcmeLogParser:
    """The parser of one process's log; see `fencepost.LogParser`."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The event of a line; none for a line without information."""
        try:
            logged = msgspec.json.decode(line, type=_Started | _Peer)
        except msgspec.DecodeError:
            return ()
        if isinstance(logged, _Started):
            # The first says which node the process is: `duplicate_id` needs it.
            node = NodeStarted(role=self._slot.role, node_id=self._slot.node_id)
            started = ServerStarted(server=self._slot.name, token=logged.token)
            return tuple(ParsedEvent(logged.at, one, wall=True) for one in (node, started))
        changed = PeerChanged(server=self._slot.name, peer=logged.peer, answers=logged.answers)
        return (ParsedEvent(logged.at, changed, wall=True),)
