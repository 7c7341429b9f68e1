"""The promise of acme, and the rule that judges it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from fencepost import (
    NOTHING,
    Cause,
    Clause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Key,
    Rule,
    RunEnd,
    Scope,
    Undecided,
    on,
    violated,
)
from fencepost_acme.events import ServerStarted, TakeBegan, TakeEnded

PLANE = "acme"
"""Systems of one plane make the same promises."""
CLAUSES = (
    Clause(
        "ACME-1",
        "acme: its manual",
        (PLANE,),
        "A server hands out tokens that grow, whatever happens to its process.",
    ),
)


@dataclass(slots=True)
class _Tokens:
    """What clients know about a server's tokens."""

    greatest: int = 0
    at: Cause | None = None
    """The event by which a client got the greatest token."""
    open: dict[str, tuple[int, Cause | None]] = field(default_factory=dict)
    """operation -> the greatest token when it began, and the event by which a client got that."""
    restarted: bool = False
    """Whether the server has started since."""


@final
class TokensGrow(Rule[_Tokens]):
    """ACME-1, keyed by server. Exercised by the first token after a restart.

    Answers of several clients may overtake each other. So a token must be greater than the tokens
    that clients had when the request began. Tokens that came in between do not count.
    """

    clause = "ACME-1"
    state = _Tokens

    @staticmethod
    def keys(event: Event) -> Iterable[Key]:
        match event.body:
            case ServerStarted(server=server) | TakeBegan(server=server) | TakeEnded(server=server):
                return ((server,),)
        return ()

    @on(ServerStarted)
    def _started(self, state: _Tokens, event: Event, started: ServerStarted) -> Findings:
        state.restarted = state.at is not None
        return NOTHING

    @on(TakeBegan)
    def _began(self, state: _Tokens, event: Event, began: TakeBegan) -> Findings:
        state.open[began.operation] = (state.greatest, state.at)
        return NOTHING

    @on(TakeEnded)
    def _ended(self, state: _Tokens, event: Event, ended: TakeEnded) -> Findings:
        before, got_by = state.open.pop(ended.operation, (0, None))
        if ended.outcome != "ok":
            return NOTHING
        token = ended.token
        if token <= before:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{server} gave out token {token} after a client had token {before}",
                () if got_by is None else (got_by,),
                server=Scope("tokens of", ended.server),
                token=token,
                before=before,
            )
            return (broken,)
        if token > state.greatest:
            state.greatest, state.at = token, event.ref
        if not state.restarted:
            return NOTHING
        state.restarted = False
        return (Exercised(event.ref, Evidence.CLIENT),)

    def end(self, state: _Tokens, end: RunEnd) -> Findings:
        if not state.restarted:
            return NOTHING
        return (Undecided("the server restarted, and no client took a token of it afterwards"),)


RULES = (TokensGrow(),)
