"""Which rules can fire at all: a recorded history with one thing left out, added or altered.

A rule that a hand-made history breaks may yet be unable to fire in any run: what it waits for is
undone by how the harness ends a run, or is never told. So each rule is asked about histories that
were recorded, and about the same with one thing changed.

Pure: all chance comes from the stream that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Any, NamedTuple, final, get_args, get_type_hints

from msgspec import Struct, structs

from fencepost import Event
from fencepost.events import kind_name
from fencepost.events.names import slot_of
from fencepost.judging.folder import Promises
from fencepost.judging.judge import Judge
from fencepost.judging.rules import Rule
from fencepost.judging.verdicts import Outcome
from second_readings.mutations import MS, may_differ, ordered, other_value, own_books, sends
from second_readings.reading import History

SPELLED = 0.25
"""How often a field gets a value that its type has, whatever other events have there."""
EXTREMES = ("", (), 0, -1, 10**9)
"""What fields have that say nothing, or far too much."""


class How(StrEnum):
    """What is done to a history."""

    LEFT_OUT = "left out"
    """One event."""
    WITHHELD = "withheld"
    """All events of one kind that a process wrote."""
    REPEATED = "repeated"
    """One event comes a second time, later."""
    LATER = "later"
    """One event, and all that its process wrote after it."""
    ALTERED = "altered"
    """One field of one event."""
    LIED = "lied"
    """The same field of each event of that kind in which the process says the same."""
    AGREED = "agreed"
    """The same, whichever process says it: all that tell of one record."""


class OneThing(Struct, frozen=True, kw_only=True):
    """What was changed: of which slot, and in which kind of event."""

    how: How
    slot: str
    kind: str
    field: str = ""


class Changed(NamedTuple):
    """What was changed, and the events then."""

    thing: OneThing
    events: Sequence[Event]


Way = Callable[[Sequence[Event], Event, Random], Changed | None]


def _thing(how: How, event: Event, name: str = "") -> OneThing:
    return OneThing(how=how, slot=slot_of(event.process), kind=event.kind, field=name)


def _left_out(events: Sequence[Event], one: Event, random: Random) -> Changed | None:
    if sends(one):  # a client records what it sends before anybody can answer
        return None
    return Changed(_thing(How.LEFT_OUT, one), [event for event in events if event is not one])


def _withheld(events: Sequence[Event], one: Event, random: Random) -> Changed | None:
    if sends(one):
        return None
    kept = [
        event
        for event in events
        if event.process != one.process or type(event.body) is not type(one.body)
    ]
    return Changed(_thing(How.WITHHELD, one), kept)


def _repeated(events: Sequence[Event], one: Event, random: Random) -> Changed | None:
    if own_books(one):
        return None
    by_ns = random.choice((1, 100, 3_000)) * MS
    again = structs.replace(one, at_ns=one.at_ns + by_ns)
    return Changed(_thing(How.REPEATED, one), ordered([*events, again]))


def _later(events: Sequence[Event], one: Event, random: Random) -> Changed | None:
    by_ns = random.choice((5, 500, 5_000, 30_000)) * MS
    delayed = [
        structs.replace(event, at_ns=event.at_ns + by_ns)
        if event.process == one.process and event.at_ns >= one.at_ns
        else event
        for event in events
    ]
    return Changed(_thing(How.LATER, one), ordered(delayed))


def _spelled(event: Event, random: Random) -> tuple[str, Any]:
    """A field of an event, and a value that it may have by its type, though no event of the run
    may have it there: one of those that are written out, or an extreme."""
    kinds = get_type_hints(type(event.body))
    choices = [
        (name, value)
        for name in event.body.__struct_fields__
        if may_differ(event, name)
        for value in (*get_args(kinds[name]), *EXTREMES)
        if type(value) is type(was := getattr(event.body, name)) and value != was
    ]
    return random.choice(choices) if choices else ("", None)


def _altered(events: Sequence[Event], one: Event, random: Random) -> Changed | None:
    name, value = other_value(events, one, random)
    if not name or random.random() < SPELLED:
        name, value = _spelled(one, random)
    if not name:
        return None
    how = random.choice((How.ALTERED, How.LIED, How.AGREED))
    was = getattr(one.body, name)

    def told(event: Event) -> bool:
        if event is one or how is How.ALTERED:
            return event is one
        by = how is How.AGREED or event.process == one.process
        return by and type(event.body) is type(one.body) and getattr(event.body, name) == was

    def says(event: Event) -> Event:
        if not told(event):
            return event
        return structs.replace(event, body=structs.replace(event.body, **{name: value}))

    return Changed(_thing(how, one, name), [says(event) for event in events])


# Fields are many, so they are drawn more often.
WAYS: Sequence[Way] = (_left_out, _withheld, _repeated, _later, *(3 * (_altered,)))


def one_changed(events: Sequence[Event], random: Random) -> Changed | None:
    """The events with one thing changed; None if what was drawn cannot be changed so. Each kind is
    drawn as often as any other, however many events it has."""
    kinds: dict[type[Struct], list[Event]] = {}
    for event in events:
        kinds.setdefault(type(event.body), []).append(event)
    if not kinds:
        return None
    own = random.choice(list(kinds.values()))
    return random.choice(WAYS)(events, random.choice(own), random)


@final
@dataclass(frozen=True)
class Witness:
    """One rule of a clause, as it is registered."""

    rule: Rule[Any]
    beside: Sequence[Rule[Any]]
    """The rules that know from which event on nothing is promised."""

    @property
    def name(self) -> str:
        """The clause, the rule's class, and the planes that it names."""
        return " ".join((self.rule.clause, type(self.rule).__name__, *self.rule.planes))

    def judges(self, promises: Promises, plane: str) -> bool:
        clause = promises.clauses.get(self.rule.clause)
        return clause is not None and clause.judged_by(self.rule, plane)

    def reads(self, history: History) -> Sequence[Event]:
        """The events of a history that can change what it says."""
        owed = [{one.kind, *one.by} for one in self.rule.absence]
        forfeits = [one.kinds for one in self.beside]
        kinds = self.rule.kinds.union(*owed, *forfeits)
        return [event for event in history.events if type(event.body) in kinds]

    def fires(self, history: History, events: Sequence[Event], promises: Promises) -> bool:
        """Whether its clause is violated by it alone."""
        judge = Judge([self.rule, *self.beside], promises.clauses, history.plane)
        judge.take(events)
        # What comes later may come after the end that the run had.
        last_ns = max((event.at_ns for event in events), default=0)
        end = replace(history.end, ended_at_ns=max(last_ns, history.end.ended_at_ns))
        found = judge.end(end).verdicts.get(self.rule.clause)
        return found is not None and found.verdict is Outcome.VIOLATED


def witnesses(promises: Promises) -> Sequence[Witness]:
    """Every rule of every clause."""
    forfeiting = [rule for rule in promises.rules if rule.forfeiture is not None]
    return [
        Witness(rule, [one for one in forfeiting if one is not rule]) for rule in promises.rules
    ]


@final
class Fired(Struct, frozen=True):
    """What one rule says of one run: whether it fires as it was recorded, and if not, after how
    many changes it fired at last, and by which; None: by none of them."""

    as_recorded: bool
    tried: int = 0
    by: OneThing | None = None
    kinds: frozenset[str] = frozenset()
    """The kinds that it applies, and that the run has."""


def fired(
    witness: Witness, history: History, promises: Promises, random: Random, *, tries: int
) -> Fired:
    """Changes one thing after the other until the rule fires."""
    events = witness.reads(history)
    applied = witness.rule.applied
    kinds = frozenset(kind_name(type(one.body)) for one in events if type(one.body) in applied)
    if witness.fires(history, events, promises):
        return Fired(True, kinds=kinds)
    for tried in range(1, tries + 1):
        changed = one_changed(events, random)
        if changed is not None and witness.fires(history, changed.events, promises):
            return Fired(False, tried, changed.thing, kinds)
    return Fired(False, tries, kinds=kinds)
