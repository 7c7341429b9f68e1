"""Promises of programs of the user's own that every run with apps makes.

* A program ends only when it is asked to; one that may end by itself, does so with code 0.
* Once everything has healed, it works again within the bound that its user gave.

Both are facts of the harness, which started the program, saw its end and asked it. Nothing excuses
a program that ends while a fault acts: that it survives is what the run is for. Two ends say
nothing about it: those for lack of something on the machine, and those by a signal from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import Signals
from typing import Any, final

from fencepost import (
    AppStarted,
    AppWorksAgain,
    Clause,
    Event,
    Evidence,
    Exercised,
    Findings,
    ProcessExited,
    Reason,
    Rule,
    Undecided,
    hookimpl,
    on,
    process_scope,
    slot_scope,
    violated,
)
from fencepost_plugins.running import FROM_OUTSIDE

RUNS = "APP-runs"
WORKS_AGAIN = "APP-works-again"


@dataclass(slots=True)
class _Programs:
    alive: set[str] = field(default_factory=set)


@final
class EndsOnlyWhenAsked(Rule[_Programs]):
    """APP-runs. Exercised by each process that ends when it is asked or made to, or may."""

    clause = RUNS
    state = _Programs

    @on(AppStarted)
    def started(self, state: _Programs, event: Event, body: AppStarted) -> Findings:
        state.alive.add(body.started)
        return ()

    @on(ProcessExited)
    def ended(self, state: _Programs, event: Event, body: ProcessExited) -> Findings:
        if body.ended not in state.alive:
            return ()
        state.alive.discard(body.ended)
        if body.expected:
            return (Exercised(event.ref, Evidence.PEER),)
        how = "by signal {signal}" if body.signal else "with exit code {exit_code}"
        said = ", and last said: {said}" if body.said else ""
        broken = violated(
            event.ref,
            Evidence.PEER,
            f"{{process}} ended by itself {how}{said}",
            process=process_scope(body.ended),
            exit_code=body.exit_code,
            signal=body.signal,
            said=body.said,
        )
        if body.lacked:
            return (Undecided.of(broken, Reason.of("{lacked}", lacked=body.lacked)),)
        if body.signal in FROM_OUTSIDE:
            outside = Reason.of("by {name} from outside of the run", name=Signals(body.signal).name)
            return (Undecided.of(broken, outside, ", "),)
        return (broken,)


@final
class WorksAgain(Rule[None]):
    """APP-works-again: each instance was asked, after the last heal."""

    clause = WORKS_AGAIN

    @on(AppWorksAgain)
    def asked(self, state: None, event: Event, body: AppWorksAgain) -> Findings:
        if body.works:
            return (Exercised(event.ref, Evidence.CLIENT),)
        why = ": {why}" if body.why else ""
        return (
            violated(
                event.ref,
                Evidence.CLIENT,
                f"{{slot}} did not work again within {{bound_ms}} ms of the last heal{why}",
                slot=slot_scope(body.slot),
                bound_ms=body.bound_ms,
                why=body.why,
            ),
        )


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return (
        Clause(
            id=RUNS,
            source="apps",
            planes=(),
            says="A program of the user's ends only when it is asked to, or where it may.",
            note="the slots of `Shape.apps`; `may_end` allows an end with code 0",
        ),
        Clause(
            id=WORKS_AGAIN,
            source="apps",
            planes=(),
            says="A program of the user's works again within its bound after everything healed.",
            note="`works_again_ms` is the bound; it is asked at the port or the URL by which it is "
            "ready",
        ),
    )


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return (EndsOnlyWhenAsked(), WorksAgain())
