"""What a reading is: a function from a whole history to what it says about one clause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, final

from msgspec import Struct

from fencepost import Effect, Event, FaultHealed, FaultInjected, RunEnd
from fencepost.events.effects import HARMS_DISK
from fencepost.history.run_end import HARNESS

Body = TypeVar("Body", bound=Struct)


class Says(StrEnum):
    """What a reading says of a clause in a history."""

    VIOLATED = "violated"
    UNDECIDED = "undecided"
    """The history does not tell: it is damaged or cut short where it matters, or the promise may
    not have been given."""
    SILENT = "silent"
    """Nothing speaks against the clause."""


class Word(NamedTuple):
    """One thing that a reading has to say, and what it is about."""

    says: Says
    about: tuple[object, ...]


def violated(*about: object) -> Word:
    return Word(Says.VIOLATED, about)


def undecided(*about: object) -> Word:
    return Word(Says.UNDECIDED, about)


class At(NamedTuple):
    """An event's body, who wrote it, and when."""

    body: Any
    process: str
    at_ns: int
    place: int
    """Its position in the history: of two events of one process, the later has the greater one."""


class Fault(NamedTuple):
    """A fault of the run: what the harness wrote of it, and when it acted (for good: NEVER)."""

    body: FaultInjected
    from_ns: int
    to_ns: int


NEVER = 1 << 62


@final
@dataclass(frozen=True)
class History:
    """A whole history: the events in order, how the run ended, and the plane of the system."""

    events: Sequence[Event]
    end: RunEnd
    plane: str

    @cached_property
    def _by_kind(self) -> Mapping[type[Struct], list[At]]:
        found: dict[type[Struct], list[At]] = {}
        for place, event in enumerate(self.events):
            at = At(event.body, event.process, event.at_ns, place)
            found.setdefault(type(event.body), []).append(at)
        return found

    def of(self, *kinds: type[Struct]) -> Sequence[At]:
        """All events of these kinds, in the order of the history."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], ())
        found = [at for kind in kinds for at in self._by_kind.get(kind, ())]
        return sorted(found, key=lambda at: at.place)

    @cached_property
    def faults(self) -> Sequence[Fault]:
        """The faults that the harness injected."""
        healed = {at.body.fault_id: at.at_ns for at in self.of(FaultHealed)}
        return [
            Fault(
                at.body,
                at.body.began_at_ns or at.at_ns,
                healed.get(at.body.fault_id, NEVER),
            )
            for at in self.of(FaultInjected)
            if at.process == HARNESS
        ]

    @cached_property
    def lost_data(self) -> bool:
        """Whether a fault may have taken what a disk held, or given an id to a second process with
        a disk of its own. What clients wrote may then be gone, by nobody's guilt."""
        return any(
            fault.body.acts(effect)
            for fault in self.faults
            for effect in (*HARMS_DISK, Effect.DOUBLES)
        )


Reads = Callable[[History], Iterable[Word]]


@final
@dataclass(frozen=True)
class Reading:
    """The second reading of one clause."""

    clause: str
    words: Reads
    kinds: frozenset[type[Struct]]
    """The kinds of events that it reads."""

    def __call__(self, history: History) -> Sequence[Word]:
        """What is wrong by this reading; nothing: it is silent."""
        return list(self.words(history))


READINGS: dict[str, Reading] = {}
"""clause -> its second reading"""


def reading(clause: str, *kinds: type[Struct]) -> Callable[[Reads], Reads]:
    """Registers a function as the reading of a clause, which reads these kinds of events."""

    def register(words: Reads) -> Reads:
        assert clause not in READINGS, f"{clause} has a second reading already"
        READINGS[clause] = Reading(clause, words, frozenset(kinds))
        return words

    return register


def said(words: Iterable[Word]) -> Says:
    """What all words weigh together: one that is violated outweighs all others."""
    every = {word.says for word in words}
    return next((one for one in (Says.VIOLATED, Says.UNDECIDED) if one in every), Says.SILENT)


def softened(words: Iterable[Word]) -> Iterator[Word]:
    """The same, where nothing is certain: what would be violated is undecided."""
    for word in words:
        yield undecided(*word.about)
