"""`fencepost lies`: histories in which one node's own words are false, judged by all rules.

A defect changes what a node does, and so what it says. A lie changes only what it says: every event
of one kind that one slot's processes wrote has another value in one field, or is withheld. A rule
that has an independent witness, such as a client, a peer, or a committed record, finds the
contradiction. The fields that no rule contradicts are listed: there a node is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Any, Final, Literal, final

from msgspec import Struct, structs, to_builtins

from fencepost.campaigns.jobs import done
from fencepost.events import Cause, Event, kind_name
from fencepost.events.names import slot_of
from fencepost.history.run_end import RunEnd
from fencepost.judging.folder import Promises
from fencepost.judging.judge import judge
from fencepost.judging.rules import Rule
from fencepost.judging.verdicts import Judgement, Outcome

WITHHELD = ""
"""The field of a lie that withholds whole events."""
VALUES_KEPT = 50
"""How many values of a field are remembered, used in place of others."""
_OTHERS: Final[Mapping[type, int]] = {bool: 0, int: 2, tuple: 1}
"""How many of them compete with what can be made of a value of that type."""

How = Literal["withheld", "more", "less", "opposite", "shorter", "other"]
Way = tuple[How, Any]
"""How a field is altered, and the value that it then has, if that is another one's."""


class Lie(Struct, frozen=True, kw_only=True):
    """What the processes of `slot` say in place of the truth, in each event of `kind`, or only in
    those that `places` names.

    `how`: the event is withheld, a number is one more or one less, a yes is a no, a list lacks its
    last element, or the field is `value`, which the same history has elsewhere.
    """

    slot: str
    kind: type[Struct]
    field: str
    how: How
    value: Any = None
    places: frozenset[Cause] = frozenset()

    def applied(self, event: Event) -> Event | None:
        """An event as it is recorded then; None if it is withheld."""
        if type(event.body) is not self.kind or slot_of(event.process) != self.slot:
            return event
        if self.places and event.ref not in self.places:
            return event
        if self.how == "withheld":
            return None
        was = getattr(event.body, self.field)
        body = structs.replace(event.body, **{self.field: self._said(was)})
        return structs.replace(event, body=body)

    def _said(self, was: Any) -> Any:
        match self.how:
            case "more":
                return was + 1
            case "less":
                return was - 1
            case "opposite":
                return not was
            case "shorter":
                return was[:-1]
        return self.value


class AboutField(Struct, frozen=True, kw_only=True):
    """All lies about one field of one kind of event (no field: it was withheld): how many there
    were, how many of them a clause contradicts, and by how many more a clause lost its hold: it
    holds without the lie, and with it is unknown or not exercised."""

    kind: str
    field: str
    of: int
    noticed: int
    doubted: int
    noticed_by: Sequence[str]


@final
@dataclass(frozen=True, slots=True)
class Results:
    """Every field that was lied about, those that no rule contradicts first."""

    fields: Sequence[AboutField]

    @property
    def of(self) -> int:
        """How many lies there were."""
        return sum(one.of for one in self.fields)

    @property
    def noticed(self) -> int:
        """How many of them were noticed."""
        return sum(one.noticed for one in self.fields)

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost lies --json` prints."""
        return {"of": self.of, "noticed": self.noticed, "fields": to_builtins(list(self.fields))}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A judged history of a system of that plane, and the slots whose processes may lie."""

    events: Sequence[Event]
    end: RunEnd
    plane: str
    nodes: Collection[str]
    promises: Promises
    verdicts: Judgement = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdicts", self._judged(self.promises.rules, self.events))

    def lies(self, random: Random) -> Iterator[Lie]:
        """One lie about each field of each kind of event that a node wrote, and one that withholds
        the events; drawn from the values that the history has."""
        values = self.values()
        slots: dict[type[Struct], set[str]] = {}
        for event in self.events:
            slot = slot_of(event.process)
            if slot in self.nodes:
                slots.setdefault(type(event.body), set()).add(slot)
        # In the order of names, so the same seed draws the same lies.
        for kind in sorted(slots, key=kind_name):
            if not self._concerned(kind):
                continue
            liars = sorted(slots[kind])
            for name in (WITHHELD, *kind.__struct_fields__):
                slot = liars[random.randrange(len(liars))]
                lie = _drawn(random, slot, kind, name, values.get((kind, name), []))
                if lie is not None:
                    yield lie

    def values(self) -> Mapping[tuple[type[Struct], str], Sequence[Any]]:
        """What nodes say in each field of each kind of event, the first `VALUES_KEPT` values."""
        values: dict[tuple[type[Struct], str], list[Any]] = {}
        for event in self.events:
            if slot_of(event.process) not in self.nodes:
                continue
            kind = type(event.body)
            for name in kind.__struct_fields__:
                seen = values.setdefault((kind, name), [])
                value = getattr(event.body, name)
                # Values of the same history: one that no run has would be noticed for that alone.
                if len(seen) < VALUES_KEPT and value not in seen:
                    seen.append(value)
        return values

    def judged(self, lie: Lie) -> tuple[Sequence[str], bool]:
        """The clauses that a lie violates, and whether it took the hold from any."""
        clauses = self._concerned(lie.kind)
        # Only the rules that read the kind: no other clause can change.
        rules = [rule for rule in self.promises.rules if rule.clause in clauses]
        altered = (said for event in self.events if (said := lie.applied(event)) is not None)
        found = {
            clause: one.verdict for clause, one in self._judged(rules, altered).verdicts.items()
        }
        before = {clause: self.verdicts.verdicts[clause].verdict for clause in found}
        other = [clause for clause in found if found[clause] is not before[clause]]
        violated = [clause for clause in other if found[clause] is Outcome.VIOLATED]
        # A clause that held, and now is unknown or not exercised: the lie was not contradicted, and
        # yet something was missed.
        doubted = not violated and Outcome.HOLDS in [before[clause] for clause in other]
        return violated, doubted

    def _concerned(self, kind: type[Struct]) -> frozenset[str]:
        """The clauses with a rule that reads a kind of event."""
        return frozenset(rule.clause for rule in self.promises.rules if kind in rule.kinds)

    def _judged(self, rules: Sequence[Rule[Any]], events: Iterable[Event]) -> Judgement:
        return judge(events, rules, self.promises.clauses, self.end, self.plane)


def tell(
    truths: Sequence[Truth], random: Random, jobs: int, report: Callable[[str], None]
) -> Results:
    """Tells every lie of each history, and judges the result."""
    lies = [(truth, lie) for truth in truths for lie in truth.lies(random)]
    found: dict[tuple[str, str], list[tuple[Sequence[str], bool]]] = {}
    for place, result in done(lambda one: one[0].judged(one[1]), lies, jobs):
        lie = lies[place][1]
        found.setdefault((kind_name(lie.kind), lie.field), []).append(result)
        report(f"{sum(map(len, found.values()))} of {len(lies)}: {kind_name(lie.kind)} {lie.field}")
    altered = [
        AboutField(
            kind=kind,
            field=name,
            of=len(each),
            noticed=sum(bool(violated) for violated, _ in each),
            doubted=sum(doubted for _, doubted in each),
            noticed_by=sorted({clause for violated, _ in each for clause in violated}),
        )
        for (kind, name), each in found.items()
    ]
    altered.sort(key=lambda one: (one.noticed > 0, one.doubted > 0, one.kind, one.field))
    return Results(altered)


def ways_of(value: Any) -> Sequence[Way]:
    """How a value can be altered without one of another event."""
    # Before int, since a bool is one.
    if isinstance(value, bool):
        return [("opposite", None)]
    if isinstance(value, int):
        return [("more", None), ("less", None)]
    return [("shorter", None)] if isinstance(value, tuple) else []


def _drawn(
    random: Random, slot: str, kind: type[Struct], name: str, seen: Sequence[Any]
) -> Lie | None:
    """A lie about a field with these values; None if nothing else can be said."""
    if name == WITHHELD:
        return Lie(slot=slot, kind=kind, field=name, how="withheld")
    first = seen[0]
    others: list[Way] = [("other", one) for one in seen[1:]]
    ways = [*ways_of(first), *others[: _OTHERS.get(type(first), VALUES_KEPT)]]
    if not ways:
        return None
    how, value = ways[random.randrange(len(ways))]
    return Lie(slot=slot, kind=kind, field=name, how=how, value=value)
