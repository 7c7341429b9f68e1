"""A third party's plugin: an event kind of its own, and rules, good and bad ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost import (
    Cause,
    Clause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Key,
    Rule,
    RunEnd,
    Shared,
    Undecided,
    Violated,
    on,
)


class LampSwitched(Struct, frozen=True, tag="acme.lamp"):
    """A lamp was switched; `offset` has a core field's name, and another type."""

    lamp: str
    on: bool
    offset: str = ""


CLAUSES = {
    clause.id: clause
    for clause in (
        Clause("ACME-1", "acme", (), "A lamp is switched on and off by turns."),
        Clause("ACME-2", "acme", (), "In the end, all lamps are off."),
        Clause("ACME-3", "acme", (), "No lamp is called broken."),
        Clause("ACME-4", "acme", (), "Every lamp has a name."),
        Clause("ACME-5", "acme", ("classic",), "Lamps need no quorum."),
    )
}


def by_lamp(event: Event) -> Iterable[Key]:
    assert isinstance(event.body, LampSwitched)
    return ((event.body.lamp,),)


@dataclass(slots=True)
class Lamp:
    name: str
    last: Cause | None = None
    on: bool = False


class OfLamp(Rule[Lamp]):
    keys = staticmethod(by_lamp)

    def start(self, key: Key, shared: Shared) -> Lamp:
        return Lamp(str(key[0]))


@final
class ByTurns(OfLamp):
    """ACME-1 (and, not binding here, ACME-5)."""

    clause = "ACME-1"

    @on(LampSwitched)
    def _switched(self, state: Lamp, event: Event, body: LampSwitched) -> Findings:
        found: Finding
        if state.last is not None and state.on == body.on:
            said = f"{state.name} was switched <{'on' if state.on else 'off'}> twice"
            found = Violated(event.ref, Evidence.PEER, said, (state.last,))
        else:
            found = Exercised(event.ref, Evidence.CLIENT if state.on else Evidence.SELF)
        state.last, state.on = event.ref, body.on
        return (found,)


@final
class OffInTheEnd(OfLamp):
    """ACME-2: judged when no event is left, key by key."""

    clause = "ACME-2"

    @on(LampSwitched)
    def _switched(self, state: Lamp, event: Event, body: LampSwitched) -> Findings:
        state.last, state.on = event.ref, body.on
        return ()

    def end(self, state: Lamp, end: RunEnd) -> Findings:
        assert state.last is not None
        if not state.on:
            return (Exercised(state.last, Evidence.SELF),)
        if not end.complete:
            return (Undecided(f"whether {state.name} was switched off", state.last),)
        said = f"{state.name} was left on, {end.ended_at_ns} ns into the night"
        return (Violated(state.last, Evidence.SELF, said),)


@final
class CrashesOnBroken(OfLamp):
    """ACME-3: finds every lamp guilty, and crashes on the one called broken."""

    clause = "ACME-3"

    @on(LampSwitched)
    def _switched(self, state: Lamp, event: Event, body: LampSwitched) -> Findings:
        if state.name == "broken":
            raise RuntimeError("a broken lamp")
        found = Exercised(event.ref, Evidence.PEER)
        if body.on:
            return (found,)
        return (found, Violated(event.ref, Evidence.PEER, f"{state.name} went out"))


def by_name_or_crash(event: Event) -> Iterable[Key]:
    assert isinstance(event.body, LampSwitched)
    if not event.body.lamp:
        raise ValueError("a lamp without a name")
    return ((event.body.lamp,), ("all",))


@final
class KeysCrash(Rule[None]):
    """ACME-4: each event has two keys; the keys of a lamp without a name crash."""

    clause = "ACME-4"
    keys = staticmethod(by_name_or_crash)

    @on(LampSwitched)
    def _switched(self, state: None, event: Event, body: LampSwitched) -> Findings:
        return (Exercised(event.ref, Evidence.SELF),)


RULES = (
    ByTurns(),
    ByTurns(clause="ACME-5"),
    OffInTheEnd(),
    CrashesOnBroken(),
    KeysCrash(),
)
