"""`fencepost lies --acquit`: which false words of a node turn a violation into silence.

A planted defect confesses: its node says what it does, and a rule reads it. A node of somebody else
has no such manners. So in a run in which a clause accuses a node, one word of that node is altered
or withheld, and the history is judged again. Words count within the keys of the violation (such as
one lease) and in the kinds that the clause's rules read: no other word reaches them.

What a lie makes of a violation, the first that is true:

* `violated`: the clause accuses within these keys all the same;
* `contradicted`: it does not, but something is accused that was not: the lie is found out;
* `undecided`: nobody is accused, and the clause says that it cannot tell. That is not silence: a
  run with such a verdict does not pass;
* `excused`: the clause says what would have been violated, and by which fault it is excused. That
  is not silence either: the reason is printed, counted, and measured by the one who injected it;
* `acquitted`: nothing is said at all. Here the word of the accused is what the verdict stands on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Any, Final, final

from msgspec import Struct, to_builtins

from fencepost.campaigns.endings import counted
from fencepost.campaigns.lies import WITHHELD, Lie, Truth, Way, ways_of
from fencepost.events import Cause, Event, Stalled, kind_name
from fencepost.events.names import slot_of
from fencepost.history.run_end import RunEnd
from fencepost.history.stalls import Stalls
from fencepost.judging.about import scopes_of
from fencepost.judging.findings import Excused, Exercised, Finding, Undecided, Violated
from fencepost.judging.judge import judge
from fencepost.judging.rules import Rule
from fencepost.judging.states import Key
from fencepost.judging.verdicts import Outcome, Verdict

PLACES: Final = 20
"""At how many places each field is altered, if not said otherwise."""
ALL_WAYS: Final = 5
"""How many ways to alter a field are tried at most where the violation names the event, and where
all events are altered at once; elsewhere it is one."""
EVERYWHERE: Final = ""
"""The place of a lie that is told in every event of the kind within the keys."""


class Became(StrEnum):
    """What a lie makes of a violation."""

    VIOLATED = "violated"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    EXCUSED = "excused"
    ACQUITTED = "acquitted"


class Tried(Struct, frozen=True, kw_only=True):
    """One lie of the accused node, and what it made of the violation. `place` is the event that was
    altered; empty: every one of the kind within the keys. `said` is what it says then; `by` are the
    clauses that contradict it."""

    defect: str
    clause: str
    slot: str
    kind: str
    field: str
    how: str
    said: Any = None
    place: str = EVERYWHERE
    became: Became
    by: tuple[str, ...] = ()


class AboutWord(Struct, frozen=True, kw_only=True):
    """All lies about one field of a kind (no field: it was withheld) against one clause: how many,
    and what became of how many."""

    clause: str
    kind: str
    field: str
    tried: int
    became: Mapping[str, int]
    defects: Sequence[str]
    """The defects whose violation one of them acquits."""

    @property
    def acquitted(self) -> int:
        """How many acquit."""
        return self.became.get(Became.ACQUITTED, 0)


@final
@dataclass(frozen=True, slots=True)
class Acquittals:
    """Every lie that was tried, and the defects of which no run showed a violation."""

    lies: Sequence[Tried]
    not_found: Sequence[str] = ()

    @property
    def acquitted(self) -> Sequence[Tried]:
        """The lies that turned a violation into silence."""
        return [one for one in self.lies if one.became is Became.ACQUITTED]

    @property
    def consistent(self) -> Acquittals:
        """The lies that were told everywhere at once: no word of the same kind betrays them."""
        return Acquittals([one for one in self.lies if not one.place])

    def words(self) -> Sequence[AboutWord]:
        """The lies by what they are about, those that acquit most first."""
        about: dict[tuple[str, str, str], list[Tried]] = {}
        for one in self.lies:
            about.setdefault((one.clause, one.kind, one.field), []).append(one)
        words = [
            AboutWord(
                clause=clause,
                kind=kind,
                field=name,
                tried=len(each),
                became=Counter(one.became.value for one in each),
                defects=sorted({one.defect for one in each if one.became is Became.ACQUITTED}),
            )
            for (clause, kind, name), each in about.items()
        ]
        return sorted(words, key=lambda one: (-one.acquitted, one.clause, one.kind, one.field))

    def lines(self) -> Iterator[str]:
        """What the command prints: each word that acquits, then how many of how many did."""
        for one in self.words():
            if one.acquitted:
                what = (
                    f"{one.kind}.{one.field}" if one.field != WITHHELD else f"{one.kind} withheld"
                )
                yield f"{one.clause}: {what}: {one.acquitted} of {one.tried} acquit"
        for name in self.not_found:
            yield f"not found, so nothing was tried: {name}"
        share = 100 * len(self.acquitted) / len(self.lies) if self.lies else 0.0
        tried = counted(len(self.lies), "lie")
        yield f"{len(self.acquitted)} of {tried} turned a violation into silence ({share:.1f} %)"

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost lies --acquit --json` prints."""
        return {
            "tried": len(self.lies),
            "acquitted": len(self.acquitted),
            "consistent": {
                "tried": len(self.consistent.lies),
                "acquitted": len(self.consistent.acquitted),
            },
            "became": {one.value: n for one, n in Counter(x.became for x in self.lies).items()},
            "words": to_builtins(self.words()),
            "lies": to_builtins(self.lies),
            "not_found": list(self.not_found),
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The first violation of a clause in a run: the keys that it is about, and who is accused."""

    truth: Truth
    clause: str
    rules: Sequence[Rule[Any]]
    """The rules of the clause, and those that know from which event on nothing is promised."""
    keys: frozenset[Key]
    named: frozenset[Cause]
    """The events of the violations within the keys, and those that prove them."""
    slots: Sequence[str]
    findings: Sequence[Finding]
    """All that the clause reported of the true history."""
    at: Mapping[Cause, int] = field(repr=False)
    """Where each event stands in the history."""

    @property
    def kinds(self) -> frozenset[type[Struct]]:
        """The kinds of words that reach the clause. A claimed stall reaches every bound."""
        of_clause = (rule.kinds for rule in self.rules if rule.clause == self.clause)
        return frozenset({Stalled}).union(*of_clause)

    def lies(self, random: Random, places: int) -> Iterator[Lie]:
        """What the accused may say in place of the truth: each field of each kind, at up to so many
        places and everywhere at once. The places that the violation names come first."""
        values = self.truth.values()
        for slot in self.slots:
            said: dict[type[Struct], list[Event]] = {}
            for event in self.truth.events:
                if slot_of(event.process) == slot and self._reaches(event):
                    said.setdefault(type(event.body), []).append(event)
            # In the order of names, so the same seed draws the same lies.
            for kind in sorted(said, key=kind_name):
                for name in (WITHHELD, *kind.__struct_fields__):
                    seen = values.get((kind, name), ())
                    for told_in, most in self._places(random, said[kind], places):
                        yield from _lies(
                            random, told_in, slot=slot, name=name, values=seen, most=most
                        )

    def became(self, lie: Lie) -> tuple[Became, tuple[str, ...]]:
        """What a lie makes of the violation, and the clauses that contradict it."""
        altered = self._altered(lie)
        end = end_of(altered, self.truth.end) if lie.kind is Stalled else self.truth.end
        findings, verdict = self._judged(altered, end)
        broken = [one for one in findings if isinstance(one, Violated)]
        if any(self._within(one.at) for one in broken):
            return Became.VIOLATED, ()
        known = {one.at for one in self.findings if isinstance(one, Violated)}
        if any(one.at not in known for one in broken):
            return Became.CONTRADICTED, (self.clause,)
        others = self._accused_elsewhere(altered, end, lie.kind)
        if others:
            return Became.CONTRADICTED, others
        # The rule crashed, or lacks a kind that was owed: it cannot tell anything.
        blind = verdict.verdict is Outcome.UNKNOWN and not verdict.undecided
        if blind or self._more(Undecided, findings):
            return Became.UNDECIDED, ()
        if self._more(Excused, findings):
            return Became.EXCUSED, ()
        return Became.ACQUITTED, ()

    # ---------------------------------------------------------------------------------- workings

    def _reaches(self, event: Event) -> bool:
        """Whether the clause's rules read an event as one of these keys."""
        return type(event.body) in self.kinds and self._about(event)

    def _places(
        self, random: Random, said: Sequence[Event], most: int
    ) -> Iterator[tuple[Sequence[Event], int]]:
        """The events in which lies are told together, with how many of the lies about a field are
        told there: many where the violation names the event, and everywhere at once."""
        named = [event for event in said if event.ref in self.named][:most]
        others = [event for event in said if event.ref not in self.named]
        drawn = random.sample(others, min(len(others), most - len(named)))
        yield from (([event], ALL_WAYS) for event in named)
        yield from (([event], 1) for event in drawn)
        if len(said) > 1:
            yield said, ALL_WAYS

    def _altered(self, lie: Lie) -> Sequence[Event]:
        events: list[Event | None] = [*self.truth.events]
        for ref in lie.places:
            place = self.at[ref]
            events[place] = lie.applied(self.truth.events[place])
        return [event for event in events if event is not None]

    def _judged(self, events: Sequence[Event], end: RunEnd) -> tuple[Sequence[Finding], Verdict]:
        return _judged(self.truth, self.rules, self.clause, events, end)

    def _within(self, at: Cause | None) -> bool:
        """Whether a finding at an event is about the keys; one at no event may be."""
        return at is None or self._about(self.truth.events[self.at[at]])

    def _about(self, event: Event) -> bool:
        # By the true event: what it says now may be of another key, and is the same event.
        # One that only a keeper reads, or no rule, has no key: it may be about any.
        keys = _keys(self.rules, self.clause, event)
        return not keys or bool(keys & self.keys)

    def _more(self, what: type[Undecided] | type[Excused], findings: Sequence[Finding]) -> bool:
        """Whether there are more such findings about the keys than there were."""
        before, now = (
            sum(isinstance(one, what) and self._within(one.at) for one in each)
            for each in (self.findings, findings)
        )
        return now > before

    def _accused_elsewhere(
        self, events: Sequence[Event], end: RunEnd, kind: type[Struct]
    ) -> tuple[str, ...]:
        """The other clauses that accuse somebody now, and did not."""
        promises, before = self.truth.promises, self.truth.verdicts.verdicts
        # Only the rules that read the kind: no other clause can change.
        clauses = {
            rule.clause for rule in promises.rules if kind in rule.kinds or kind is Stalled
        } - {self.clause}
        rules = [rule for rule in promises.rules if rule.clause in clauses]
        found = judge(events, rules, promises.clauses, end, self.truth.plane)
        return tuple(
            clause
            for clause in found.of(Outcome.VIOLATED)
            if before[clause].verdict is not Outcome.VIOLATED
        )


def charged(truth: Truth, clause: str) -> Charge | None:
    """The charge of a clause against a node of a history; None if nothing is violated."""
    rules = [
        rule
        for rule in truth.promises.rules
        if rule.clause == clause or rule.forfeiture is not None
    ]
    findings, verdict = _judged(truth, rules, clause, truth.events, truth.end)
    broken = [one for one in findings if isinstance(one, Violated)]
    if verdict.verdict is not Outcome.VIOLATED:
        return None
    at = {event.ref: place for place, event in enumerate(truth.events)}
    first = broken[0]
    keys = _keys(rules, clause, truth.events[at[first.at]])
    within = [one for one in broken if _keys(rules, clause, truth.events[at[one.at]]) & keys]
    return Charge(
        truth=truth,
        clause=clause,
        rules=rules,
        keys=keys,
        named=frozenset(ref for one in within or broken for ref in (one.at, *one.because)),
        slots=_accused(truth, first, at),
        findings=findings,
        at=at,
    )


def tried(
    truth: Truth, defect: str, clauses: Sequence[str], random: Random, places: int
) -> Sequence[Tried]:
    """Tries every lie against the first violation of each of these clauses."""
    each: list[Tried] = []
    for clause in clauses:
        charge = charged(truth, clause)
        if charge is None:
            continue
        for lie in charge.lies(random, places):
            became, by = charge.became(lie)
            each.append(
                Tried(
                    defect=defect,
                    clause=clause,
                    slot=lie.slot,
                    kind=kind_name(lie.kind),
                    field=lie.field,
                    how=lie.how,
                    said=lie.value,
                    place=str(next(iter(lie.places))) if len(lie.places) == 1 else EVERYWHERE,
                    became=became,
                    by=by,
                )
            )
    return each


def end_of(events: Sequence[Event], end: RunEnd) -> RunEnd:
    """The end of a run with the stalls that these events claim."""
    stalls = Stalls()
    for event in events:
        stalls.take(event)
    return replace(end, stalls=tuple(stalls.found))


def _judged(
    truth: Truth,
    rules: Sequence[Rule[Any]],
    clause: str,
    events: Sequence[Event],
    end: RunEnd,
) -> tuple[Sequence[Finding], Verdict]:
    """What a clause finds in a history, without its exercises, and the verdict."""
    findings: list[Finding] = []

    def found(of: str, finding: Finding, _: int) -> None:
        if of == clause and not isinstance(finding, Exercised):
            findings.append(finding)

    judgement = judge(events, rules, truth.promises.clauses, end, truth.plane, found=found)
    return findings, judgement.verdicts[clause]


def _keys(rules: Sequence[Rule[Any]], clause: str, event: Event) -> frozenset[Key]:
    """The keys that rules of a clause find in an event; none if no rule applies its kind."""
    return frozenset(
        key
        for rule in rules
        if rule.clause == clause and type(event.body) in rule.applied
        for key in rule.keys(event)
    )


def _accused(truth: Truth, broken: Violated, at: Mapping[Cause, int]) -> Sequence[str]:
    """Whose words are altered: the first node among the writers of the violation's events, its own
    event before its proof; else the nodes that the facts name. If clients alone saw it, it may be
    any node."""
    for ref in (broken.at, *broken.because):
        if ref in at and slot_of(ref.process) in truth.nodes:
            return [slot_of(ref.process)]
    stated = {slot_of(scope.name) for scope in scopes_of(broken.facts)}
    return sorted(stated.intersection(truth.nodes) or truth.nodes)


def _lies(
    random: Random,
    told_in: Sequence[Event],
    *,
    slot: str,
    name: str,
    values: Sequence[Any],
    most: int,
) -> Iterator[Lie]:
    """Up to so many lies about a field, told in these events together."""
    kind, places = type(told_in[0].body), frozenset(event.ref for event in told_in)
    ways: list[Way] = [("withheld", None)]
    if name != WITHHELD:
        was = getattr(told_in[0].body, name)
        own = ways_of(was)
        # A yes has no other value than a no.
        seen = () if isinstance(was, bool) else values
        others: list[Way] = [("other", value) for value in seen if value != was]
        # Values of other events beside those that are made of this one's, and some of each.
        drawn = random.sample(others, min(len(others), max(1, most - len(own))))
        ways = [*own, *drawn]
    for how, value in random.sample(ways, min(len(ways), most)):
        lie = Lie(slot=slot, kind=kind, field=name, how=how, value=value, places=places)
        if any(lie.applied(event) != event for event in told_in):
            yield lie
