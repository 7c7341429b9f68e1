"""A third party's plugin: an event kind of its own, and rules, good and bad ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    Key,
    RunEnd,
    Undecided,
    Violated,
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


@dataclass(frozen=True, slots=True)
class Lamp:
    name: str
    last: Cause | None = None
    on: bool = False


@final
@dataclass(frozen=True, slots=True)
class ByTurns:
    """ACME-1 (and, not binding here, ACME-5)."""

    clause: str = "ACME-1"
    kinds: frozenset[type[Struct]] = frozenset({LampSwitched})
    keys = staticmethod(by_lamp)

    def start(self, key: Key) -> Lamp:
        return Lamp(str(key[0]))

    def step(self, state: Lamp, event: Event) -> tuple[Lamp, Sequence[Finding]]:
        assert isinstance(event.body, LampSwitched)
        found: list[Finding] = []
        if state.last is not None and state.on == event.body.on:
            said = f"{state.name} was switched <{'on' if state.on else 'off'}> twice"
            found.append(Violated(event.ref, Evidence.PEER, said, (state.last,)))
        else:
            found.append(Exercised(event.ref, Evidence.CLIENT if state.on else Evidence.SELF))
        return Lamp(state.name, event.ref, event.body.on), found

    def end(self, state: Lamp, end: RunEnd) -> Sequence[Finding]:
        return ()


@final
@dataclass(frozen=True, slots=True)
class OffInTheEnd:
    """ACME-2: judged when no event is left, key by key."""

    clause: str = "ACME-2"
    kinds: frozenset[type[Struct]] = frozenset({LampSwitched})
    keys = staticmethod(by_lamp)

    def start(self, key: Key) -> Lamp:
        return Lamp(str(key[0]))

    def step(self, state: Lamp, event: Event) -> tuple[Lamp, Sequence[Finding]]:
        assert isinstance(event.body, LampSwitched)
        return Lamp(state.name, event.ref, event.body.on), ()

    def end(self, state: Lamp, end: RunEnd) -> Sequence[Finding]:
        assert state.last is not None
        if not state.on:
            return (Exercised(state.last, Evidence.SELF),)
        if not end.complete:
            return (Undecided(f"whether {state.name} was switched off", state.last),)
        said = f"{state.name} was left on, {end.ended_at_ns} ns into the night"
        return (Violated(state.last, Evidence.SELF, said),)


@final
@dataclass(frozen=True, slots=True)
class CrashesOnBroken:
    """ACME-3: finds every lamp guilty, and crashes on the one called broken."""

    clause: str = "ACME-3"
    kinds: frozenset[type[Struct]] = frozenset({LampSwitched})
    keys = staticmethod(by_lamp)

    def start(self, key: Key) -> str:
        return str(key[0])

    def step(self, state: str, event: Event) -> tuple[str, Sequence[Finding]]:
        assert isinstance(event.body, LampSwitched)
        if state == "broken":
            raise RuntimeError("a broken lamp")
        found = Exercised(event.ref, Evidence.PEER)
        if event.body.on:
            return state, (found,)
        return state, (found, Violated(event.ref, Evidence.PEER, f"{state} went out"))

    def end(self, state: str, end: RunEnd) -> Sequence[Finding]:
        return ()


def by_name_or_crash(event: Event) -> Iterable[Key]:
    assert isinstance(event.body, LampSwitched)
    if not event.body.lamp:
        raise ValueError("a lamp without a name")
    return ((event.body.lamp,), ("all",))


@final
@dataclass(frozen=True, slots=True)
class KeysCrash:
    """ACME-4: each event has two keys; the keys of a lamp without a name crash."""

    clause: str = "ACME-4"
    kinds: frozenset[type[Struct]] = frozenset({LampSwitched})
    keys = staticmethod(by_name_or_crash)

    def start(self, key: Key) -> int:
        return 0

    def step(self, state: int, event: Event) -> tuple[int, Sequence[Finding]]:
        return state + 1, (Exercised(event.ref, Evidence.SELF),)

    def end(self, state: int, end: RunEnd) -> Sequence[Finding]:
        return ()


RULES = (
    ByTurns(),
    ByTurns(clause="ACME-5"),
    OffInTheEnd(),
    CrashesOnBroken(),
    KeysCrash(),
)
