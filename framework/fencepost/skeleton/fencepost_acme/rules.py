"""The promise of acme, and the rule that judges it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from msgspec import Struct

from fencepost import (
    Cause,
    Clause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Key,
    RunEnd,
    Scope,
    Undecided,
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


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What clients know about a server's tokens."""

    greatest: int = 0
    at: Cause | None = None
    """The event by which a client got the greatest token."""
    open: Mapping[str, tuple[int, Cause | None]] = field(default_factory=dict)
    """operation -> the greatest token when it began, and the event by which a client got that."""
    restarted: bool = False
    """Whether the server has started since."""


@final
@dataclass(frozen=True, slots=True)
class TokensGrow:
    """ACME-1, keyed by server. Exercised by the first token after a restart.

    Answers of several clients may overtake each other. So a token must be greater than the tokens
    that clients had when the request began. Tokens that came in between do not count.
    """

    clause: str = "ACME-1"
    kinds: frozenset[type[Struct]] = frozenset({ServerStarted, TakeBegan, TakeEnded})

    def keys(self, event: Event) -> Iterable[Key]:
        match event.body:
            case ServerStarted(server=server) | TakeBegan(server=server) | TakeEnded(server=server):
                return ((server,),)
        return ()

    def start(self, key: Key) -> _Tokens:
        return _Tokens()

    def step(self, state: _Tokens, event: Event) -> tuple[_Tokens, Sequence[Finding]]:
        match event.body:
            case ServerStarted():
                return replace(state, restarted=state.at is not None), ()
            case TakeBegan(operation=operation):
                known = (state.greatest, state.at)
                return replace(state, open={**state.open, operation: known}), ()
            case TakeEnded() as ended:
                return self._ended(state, event, ended)
        return state, ()

    @staticmethod
    def _ended(state: _Tokens, event: Event, ended: TakeEnded) -> tuple[_Tokens, Sequence[Finding]]:
        before, got_by = state.open.get(ended.operation, (0, None))
        still_open = {name: known for name, known in state.open.items() if name != ended.operation}
        state = replace(state, open=still_open)
        if ended.outcome != "ok":
            return state, ()
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
            return state, (broken,)
        found = [Exercised(event.ref, Evidence.CLIENT)] if state.restarted else []
        if token > state.greatest:
            state = replace(state, greatest=token, at=event.ref)
        return replace(state, restarted=False), found

    def end(self, state: _Tokens, end: RunEnd) -> Sequence[Finding]:
        if not state.restarted:
            return ()
        return (Undecided("the server restarted, and no client took a token of it afterwards"),)


RULES = (TokensGrow(),)
