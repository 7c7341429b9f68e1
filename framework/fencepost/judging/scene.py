"""What a run shows around one violation, for the functions of known findings.

Each function asks whether its mechanism was at work. Three questions are in all of them, and are
answered here, so that no finding answers them in its own way:

* Was a fault the cause? From the beginning of its injection until some time after it was healed,
  and only if a receipt shows that it took effect. The beginning counts, and not the event: that is
  written after the measurement, which may be later than the violation. An operation may be the
  cause from when it was asked for.
* What did the mechanism leave? Events before the violation, or no later than the last event that
  the violation names as its evidence. The violation is no trace of itself: otherwise a finding
  would be proven by what it is to explain.
* How long ago? Times are taken from the last of these events: some violations are certain only
  later, such as that of a message that only the last reading misses.

What is not done: nothing reads a sentence, and no event is kept but those of violations, those that
they name as evidence, and those of the kinds that a finding reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import msgspec
from msgspec import Struct

from fencepost.events import (
    Administered,
    Cause,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    began_ns,
)
from fencepost.events.names import slot_of
from fencepost.events.traits import has_concerns
from fencepost.judging.about import Fact, Facts, Scope
from fencepost.judging.verdicts import Broken
from fencepost.model.clock import MS

B = TypeVar("B", bound=Struct)


@dataclass(slots=True)
class Strike:
    """A fault, from the beginning of its injection until it was healed, if it was; or an operation
    that the schedule asked for, which began and ended at once."""

    name: str
    arguments: Mapping[str, Any]
    targets: Collection[str]
    """Processes or slots; of a fault of links, both ends of each link."""
    began_ns: int
    """When the injection began, if that is known: its event is written after the measurement."""
    ended_ns: int | None = None
    """None: it was never healed, so it acts until the end."""
    effective: bool = True
    """Whether it took effect, by a receipt; an operation needs none."""

    def struck(self, process: str) -> bool:
        """Whether it was aimed at the process, or at its slot, as the faults of links are."""
        return process in self.targets or slot_of(process) in self.targets

    def struck_slot(self, process: str) -> bool:
        """Whether it was aimed at any process of the slot in which the process runs: the next ones
        have its disk."""
        slot = slot_of(process)
        return any(slot_of(target) == slot for target in self.targets)


@final
@dataclass(frozen=True, slots=True)
class Place:
    """An event, and its position in the history."""

    position: int
    event: Event

    @property
    def scopes(self) -> Sequence[str]:
        """What the event concerns, in the words of `Concerning.concerns`."""
        body = self.event.body
        return tuple(body.concerns()) if has_concerns(body) else ()


@final
@dataclass(slots=True)
class Scenes:
    """What the functions of findings may ask of one history; `take` each event in order."""

    wanted: Collection[Cause]
    """The events of violations, and those that they name as evidence."""
    kinds: Collection[type[Struct]]
    """The kinds of event that are kept."""
    places: dict[Cause, Place] = field(default_factory=dict)
    """The wanted events that the history has. One may be missing: then a violation has no scene."""
    of_kind: dict[type[Struct], list[Place]] = field(default_factory=dict)
    """kind -> its events, in the order of the history."""
    faults: dict[str, Strike] = field(default_factory=dict)
    """fault id -> the fault, whether it took effect or not: a receipt may come later."""
    operations: list[Strike] = field(default_factory=list)

    def take(self, position: int, event: Event) -> None:
        """Keeps an event, if anything may be asked of it."""
        body = event.body
        # A wanted event of a kind that findings read is kept in both tables: it may be the trace of
        # another violation.
        kept = type(body) in self.kinds
        if kept or event.ref in self.wanted:
            place = Place(position, event)
            if kept:
                self.of_kind.setdefault(type(body), []).append(place)
            if event.ref in self.wanted:
                self.places[event.ref] = place
        match body:
            case FaultInjected():
                self.faults[body.fault_id] = Strike(
                    name=body.fault,
                    arguments=_arguments(body.arguments),
                    targets=body.targets,
                    began_ns=began_ns(event),
                    # Without a receipt it is not effective so far; `fault.took_effect` may come.
                    effective=body.receipt,
                )
            case FaultTookEffect() if body.fault_id in self.faults:
                self.faults[body.fault_id].effective = True
            case FaultHealed() if body.fault_id in self.faults:
                # When the heal was measured, not when it began: until then the fault may have
                # acted.
                self.faults[body.fault_id].ended_ns = event.at_ns
            case Administered():
                asked = _arguments(body.arguments)
                at = event.at_ns
                self.operations.append(Strike(body.operation, asked, body.targets, at, at))

    def around(self, broken: Broken) -> Scene | None:
        """The scene of a violation; None if the history has no such event."""
        place = self.places.get(broken.at)
        if place is None:
            return None
        evidence = [self.places[one] for one in broken.because if one in self.places]
        # Evidence may stand behind the violation's own event, as where something was not well for
        # some time after a heal.
        last = max((place, *evidence), key=lambda one: one.position)
        return Scene(broken, place, last, self)


def _arguments(text: str) -> Mapping[str, Any]:
    return msgspec.json.decode(text) if text else {}


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """One violation, and what happened before it."""

    broken: Broken
    place: Place
    """The violation's own event."""
    last: Place
    """The last event of its evidence: until then what it is about went on."""
    _scenes: Scenes

    @property
    def facts(self) -> Facts:
        """What the violation states."""
        return self.broken.facts

    @property
    def process(self) -> str:
        """The process that wrote the violation's event."""
        return self.place.event.process

    def name(self, fact: str) -> str:
        """The name of a scope that the violation states; empty if it states none such."""
        stated = self.facts.get(fact)
        return stated.name if isinstance(stated, Scope) else ""

    def names(self, fact: str) -> Sequence[str]:
        """The names of scopes that the violation states under one name."""
        stated: Fact = self.facts.get(fact, ())
        one_by_one = stated if isinstance(stated, tuple) else (stated,)
        return [one.name for one in one_by_one if isinstance(one, Scope)]

    def number(self, fact: str) -> int:
        """A number that the violation states; -1 if it states none such."""
        stated = self.facts.get(fact)
        return stated if isinstance(stated, int) else -1

    def flag(self, fact: str) -> bool:
        """Whether the violation states that this is so."""
        return self.facts.get(fact) is True

    def faults(self, *names: str, within_ms: int = 0) -> Iterator[Strike]:
        """The faults of these names that may have caused the violation: until so long after they
        were healed."""
        return self._striking(self._scenes.faults.values(), names, within_ms)

    def operations(self, *names: str, within_ms: int) -> Iterator[Strike]:
        """The operations of these names that may have: until so long after they were asked for."""
        return self._striking(self._scenes.operations, names, within_ms)

    def _striking(
        self, strikes: Iterable[Strike], names: Collection[str], within_ms: int
    ) -> Iterator[Strike]:
        from_ns, until_ns = self.place.event.at_ns, self.last.event.at_ns
        for one in strikes:
            # From the violation's event backwards, and from its last evidence forwards: a fault
            # that began while the violation went on may be its cause.
            over = one.ended_ns is not None and one.ended_ns + within_ms * MS < from_ns
            if one.name in names and one.effective and one.began_ns <= until_ns and not over:
                yield one

    def tells(self, kind: type[Struct]) -> bool:
        """Whether the history has any event of the kind. If it has none, that one is missing shows
        nothing: programs change the words of their logs."""
        return bool(self._scenes.of_kind.get(kind))

    def traces(
        self, kind: type[B], *, within_ms: int = 0, since: Strike | None = None
    ) -> Iterator[tuple[Event, B]]:
        """The events of a kind, with their bodies, that the mechanism may have left: at most so
        long ago (0: any time), and since a fault or an operation began."""
        began_ns = 0 if since is None else since.began_ns
        for one in self._scenes.of_kind.get(kind, ()):
            event, age_ns = one.event, self.last.event.at_ns - one.event.at_ns
            # By position, since two events may have one time.
            late = one.position > self.last.position or one.position == self.place.position
            old = bool(within_ms) and age_ns > within_ms * MS
            if not late and not old and began_ns <= event.at_ns:
                assert isinstance(event.body, kind)
                yield event, event.body
