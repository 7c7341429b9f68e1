"""Makes events of the lines that a server prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec
from msgspec import Struct

from fencepost import ParsedEvent
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

    def __init__(self, server: str) -> None:
        self._server = server

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The event of a line; none for a line without information."""
        try:
            logged = msgspec.json.decode(line, type=_Started | _Peer)
        except msgspec.DecodeError:
            return ()
        if isinstance(logged, _Started):
            started = ServerStarted(server=self._server, token=logged.token)
            return (ParsedEvent(logged.at, started, wall=True),)
        changed = PeerChanged(server=self._server, peer=logged.peer, answers=logged.answers)
        return (ParsedEvent(logged.at, changed, wall=True),)
