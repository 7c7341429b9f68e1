"""The events of a run: from the servers' logs, and of client operations.

A value that is not known is -1 or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change, Operation, OperationOutcome

Outcome = Literal["ok", "failed", "unknown"]
"""Certainly done, certainly not done, or unknown."""


def tokens_of(server: str) -> str:
    """The scope of a server's tokens: the newest token is the epoch of its holder."""
    return f"tokens of {server}"


class ServerStarted(Struct, frozen=True, kw_only=True, tag="acme.server_started"):
    """A server serves; `token` is the newest token on its disk."""

    server: str
    token: int

    def sentence(self) -> str:
        return f"{self.server} serves, and goes on after token {self.token}"

    def concerns(self) -> Sequence[str]:
        return (tokens_of(self.server),)


class PeerChanged(Struct, frozen=True, kw_only=True, tag="acme.peer_changed"):
    """A server's peer began to answer it, or ceased to."""

    server: str
    peer: str
    answers: bool

    def sentence(self) -> str:
        return f"{self.peer} {'answers' if self.answers else 'does not answer'} {self.server}"


class TakeBegan(Struct, frozen=True, kw_only=True, tag="acme.take_began"):
    """A client asks a server for a token."""

    operation: str
    server: str

    def sentence(self) -> str:
        return f"asks {self.server} for a token"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, "take", tokens_of(self.server)),)


class TakeEnded(Struct, frozen=True, kw_only=True, tag="acme.take_ended"):
    """A client got a token, or did not; without an answer the outcome is unknown."""

    operation: str
    server: str
    outcome: Outcome
    token: int = -1
    error: str = ""

    def sentence(self) -> str:
        if self.outcome == "ok":
            return f"has token {self.token} of {self.server}"
        return f"has no token of {self.server}: {self.error}"

    def authority(self) -> Sequence[Authority]:
        if self.outcome != "ok":
            return ()
        return (Authority(tokens_of(self.server), Change.GAINED, self.token, state="holder"),)

    def client_operations(self) -> Sequence[Operation]:
        subject, outcome = tokens_of(self.server), OperationOutcome(self.outcome)
        return (Operation(self.operation, "take", subject, outcome, self.error),)


KINDS: tuple[type[Struct], ...] = (ServerStarted, PeerChanged, TakeBegan, TakeEnded)
