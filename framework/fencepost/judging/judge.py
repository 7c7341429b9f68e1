"""The judge: every rule over one history.

The problem. A run has up to a million events, and a hundred rules and more read it. Most events
concern few rules, many rules keep their states by the same keys, and each rule is code of somebody
else, who may have made a mistake. What the rules find must not depend on which other rules there
are, nor on how the judge groups them.

How it works:

* An event goes only to rules that read its kind. What is to be called for a kind is found once
  (`_route`), and again whenever a rule has crashed.
* Rules with one `keys` function, or one `keeper`, are a group: the function is called once for an
  event, and each key has one row of states, a place for each rule. For rules about the whole run
  nothing is called: each event finds the same row.
* What rules of a key fold together (`Rule.folds`) takes an event before any of them does. Rules
  about the whole run are the first group: what they fold, keepers may ask, too.
* The state of a rule begins with the first event of the key that the rule handles, or that one of
  its folds takes, and not with the key. So a rule of the group that has seen nothing of a key is
  not asked about it at the end.
* At the end, states are asked in the order in which they began. Otherwise the grouping would decide
  which violations are the first, and so which are kept.
* An exception stops the rule that raised it, and never the judge. If `keys` raises, no rule of the
  group that reads the kind is left; if a fold does, none that names it. The clause of such a rule
  is unknown.
* A forfeiture is asked before any rule: the event by which all is lost is judged by none. The
  events after it are still read to the last: whatever passes them on, such as the writer of
  columns, counts on that, and so does the end of the history.
* Each rule gets its own end of the run: if only events of one kind are missing, only the rules that
  read this kind have an incomplete history.

One thing was found the hard way: most findings are exercises, and to count them by the hash of an
enumeration takes long (`_Rule.exercise`).

What is not done. Findings become verdicts in `fencepost.judging.verdicts`, and nothing is explained
or known here. Nothing is read from a file, so that this module can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, final

from msgspec import Struct

from fencepost.events import (
    Event,
    FaultInjected,
    FaultTookEffect,
    NodeStopped,
    ProcessExited,
    kind_name,
)
from fencepost.events.traits import by_harness
from fencepost.history.run_end import HARNESS, RunEnd
from fencepost.judging.about import Reason
from fencepost.judging.findings import Evidence, Excused, Exercised, Finding, Undecided
from fencepost.judging.owed import Unprinted
from fencepost.judging.rules import Clause, Handler, Rule, whole_run
from fencepost.judging.states import UNBEGUN, Forfeiture, Held, Keeper, Key, Shared, SharedFold
from fencepost.judging.verdicts import AT_END, Forfeited, Judgement, Tally, conclude
from fencepost.model.errors import no_such

_CLIENT: Final = Evidence.CLIENT
_PEER: Final = Evidence.PEER
_SELF: Final = Evidence.SELF


@final
class _Rule:
    """A rule with its tally."""

    def __init__(self, rule: Rule[Any]) -> None:
        self.rule = rule
        self.tally = Tally()
        """All findings but the exercises, which are counted beside it until `settled`."""
        self._by_client = self._by_peer = self._by_self = 0
        self.working = True
        """Whether it still judges: it has not crashed."""

    def exercise(self, evidence: Evidence) -> None:
        """Counts an exercise: most findings are that, and an enumeration's hash takes long."""
        if evidence is _CLIENT:
            self._by_client += 1
        elif evidence is _PEER:
            self._by_peer += 1
        else:
            self._by_self += 1

    def settled(self) -> Tally:
        """The tally with what was counted."""
        counts = (_CLIENT, self._by_client), (_PEER, self._by_peer), (_SELF, self._by_self)
        self.tally.merge(Tally(exercised={by: count for by, count in counts if count}))
        return self.tally

    def reads(self, kind: type[Struct]) -> bool:
        """Whether it still judges, and reads events of this kind."""
        return self.working and kind in self.rule.kinds

    def unseen(self, lacks: str) -> None:
        """Drops what it concluded from events that were never printed."""
        self.tally = Tally(crashed=self.tally.crashed, lacks=lacks)
        self._by_client = self._by_peer = self._by_self = 0

    def crash(self, error: Exception, where: str) -> None:
        """Stops the rule; only its first error is reported."""
        # One error of a rule is enough: it will often fail at each event of the same kind.
        if not self.working:
            return
        self.working = False
        name = type(self.rule).__name__
        said = f"the rule {name} failed {where}: {type(error).__name__}: {error}"
        # The line that raised it, so that its author finds it; without a path, which is another one
        # on each machine.
        lines = extract_tb(error.__traceback__)
        place = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
        self.tally.crashed = said + place


@final
class _OfRun:
    """Keeps the states of rules about the whole run: there is one key, and each event is of it."""

    def __init__(self, rules: int) -> None:
        self.every: tuple[Held, ...] = (Held((), rules),)

    def find(self, event: Event) -> tuple[Held, ...]:
        return self.every

    def excused(self) -> Iterable[tuple[int, Excused | Undecided]]:
        return ()

    def held(self) -> Iterable[Sequence[Held]]:
        return (self.every,)


@final
class _ByKeys:
    """Keeps the states of rules that share their `keys` function, which is called once per event
    for all of them."""

    def __init__(self, rules: Sequence[Rule[Any]]) -> None:
        self.rules = rules
        self._keys = rules[0].keys
        self._held: dict[Key, tuple[Held, ...]] = {}
        """key -> a tuple of one, as `find` returns it: most events belong to one key, and then no
        tuple is made."""

    def find(self, event: Event) -> tuple[Held, ...]:
        keys: Any = self._keys(event)
        # `keys` may be a generator, which can be read once only.
        if type(keys) is not tuple:
            keys = tuple(keys)
        if len(keys) == 1:
            # One key, as for most events: the tuple that is kept is returned as it is.
            return self._held.get(keys[0]) or self._new(keys[0])
        if not keys:
            return ()  # as for what followers store, where only leaders are judged
        return tuple(held for key in keys for held in self._held.get(key) or self._new(key))

    def _new(self, key: Key) -> tuple[Held, ...]:
        new = self._held[key] = (Held(key, len(self.rules)),)
        return new

    def excused(self) -> Iterable[tuple[int, Excused | Undecided]]:
        return ()

    def held(self) -> Iterable[Sequence[Held]]:
        return self._held.values()


@final
class _Group:
    """Rules that are judged together, and what keeps their states."""

    def __init__(self, rules: list[_Rule], keeper: Keeper, kept: Sequence[_Rule] = ()) -> None:
        self.rules = rules
        self.keeper = keeper
        self.kept = kept
        """Rules of other groups, whose keepers ask what is folded here."""

    def kinds(self) -> set[type[Struct]]:
        """The kinds of events that it is called for."""
        found = {kind for one in self.rules if one.working for kind in one.rule.found}
        folds = {fold for one in self.kept if one.working for fold in one.rule.run_folds}
        return found.union(*(fold.kinds for fold in folds))


_Call = tuple[int, Handler[Any], _Rule]
"""What is called for one rule and one kind of event: the number of the rule in its group, which is
that of its state in each `Held.states`, and the method. It is a tuple, since the innermost loop
takes one apart for each call."""


@final
class _Feed:
    """A fold that takes events of one kind, and the rules that name it."""

    def __init__(self, fold: type[SharedFold], group: _Group) -> None:
        self.fold = fold
        self.rules = [
            (number, one)
            for number, one in enumerate(group.rules)
            if one.working and fold in one.rule.folds
        ]
        """Each with its number in the group."""
        asked = [one for one in group.kept if fold in one.rule.run_folds]
        self.all = [one for _, one in self.rules] + asked
        """Those that crash if it does."""


@final
class _Route:
    """For one kind of event: what finds the states, and what is called with them."""

    def __init__(self, group: _Group, kind: type[Struct]) -> None:
        self.find = group.keeper.find
        self.every = group.keeper.every if isinstance(group.keeper, _OfRun) else None
        """What it finds for each event, if that is the same."""
        self.by_keys = group.keeper if isinstance(group.keeper, _ByKeys) else None
        """The same keeper, if it is ours: compiled code calls a method of a known class faster."""
        folds = [fold for one in group.rules if one.working for fold in one.rule.folds]
        folds += [fold for one in group.kept if one.working for fold in one.rule.run_folds]
        self.feeds = [_Feed(fold, group) for fold in dict.fromkeys(folds) if kind in fold.kinds]
        self.rules = [one for one in group.rules if one.reads(kind)]
        """Those that crash if the keeper does: they read the kind, though some may not handle
        it."""
        self.calls: list[_Call] = [
            (number, getattr(one.rule, one.rule.handled[kind]), one)
            for number, one in enumerate(group.rules)
            if one.working and kind in one.rule.handled
        ]


_NO_ROUTES: Final[list[_Route]] = []
_RECEIPTS: Final[frozenset[type[Struct]]] = frozenset({FaultInjected, FaultTookEffect})
OnFinding = Callable[[str, Finding, int], None]


@final
class Judge:
    """Judges one history: `take` its events in happens-before order, then ask for the `end`.

    `found` is called with each finding, its clause, and the position of the event at which it was
    made, or `AT_END`. `release` names what was judged, for `Owed`. Raises UsageError for a rule
    whose clause is not among `clauses`.
    """

    def __init__(
        self,
        rules: Sequence[Rule[Any]],
        clauses: Mapping[str, Clause],
        plane: str,
        found: OnFinding | None = None,
        release: str = "the system",
    ) -> None:
        self._found = found
        self._release = release
        for rule in rules:
            if rule.clause not in clauses:
                raise no_such("clause", rule.clause, clauses)
        self._clauses = clauses
        self._judged = sorted({rule.clause for rule in rules})
        # A clause that binds another plane has no rule here, and a verdict all the same:
        # `not-applicable`. So `_judged` above has the clauses of all rules.
        self._rules = [_Rule(rule) for rule in rules if clauses[rule.clause].judged_by(rule, plane)]
        self._plane = plane
        self._missed: dict[str, str] = {}
        """fault id -> its name, of faults that have no receipt so far."""
        self._position = 0
        """That of the next event: `take` may be called for one part of a history after the
        other."""
        self._turn = 0
        """How many states have begun so far, over all rules and keys."""
        kinds = {kind for one in self._rules for kind in one.rule.kinds}
        self._by_harness = frozenset(kind for kind in kinds if by_harness(kind))
        self._watched = _watched(self._rules)
        """What is asked before any rule, by kind; each with the rule that stops if it raises."""
        self._unprinted = Unprinted(
            (kind for one in self._rules for kind in one.rule.absence), plane
        )
        self._forfeited: tuple[Event, Reason] | None = None
        """The event from which on nothing is judged, and why."""
        self._stopped: set[str] = set()
        self._ended: list[str] = []
        """The processes that said after it that they end, and those that did, unexpectedly. A node
        may end itself once all is lost, if it says so; one that ends without a word has crashed."""
        self._excused: dict[str, _Rule] = {}
        """The clauses that were judged until then, each with a rule of it."""
        self._groups = _grouped(self._rules)
        self._dispatch: dict[type[Struct], list[_Route]] = {}
        """kind -> what is called for it. It is always the same dictionary, which `_route` fills
        anew: `take` holds it while a rule crashes."""
        self._route()

    @property
    def crashed(self) -> Sequence[str]:
        """Why rules have stopped: the first error of each."""
        return [one.tally.crashed for one in self._rules if one.tally.crashed]

    def _route(self) -> None:
        """Finds the groups and calls for each kind of event; called again when a rule has
        crashed."""
        # Cleared and filled, never replaced: `take` reads this dictionary in its loop. Rules that
        # have crashed are left out, so an event costs nothing for them.
        self._dispatch.clear()
        for group in self._groups:
            for kind in group.kinds():
                self._dispatch.setdefault(kind, []).append(_Route(group, kind))

    def take(self, events: Iterable[Event]) -> None:
        """Judges these events too. An exception of a rule stops that rule, never the judge."""
        dispatch, position = self._dispatch, self._position
        by_harness, watched, owed = self._by_harness, self._watched, self._unprinted.watched
        coming = iter(events)
        # Local names: this loop runs once for each event, and its body once for each rule of the
        # event.
        for event in coming if self._forfeited is None else ():
            body = event.body
            kind = type(body)
            # 0. What only the harness can know counts from the harness: a node that said that it
            # had been struck excused itself.
            if kind in by_harness and event.process != HARNESS:
                position += 1
                continue
            # 1. Is anything promised still? If not, this event is judged by no rule.
            if kind in watched and self._forfeits(event):
                break
            # 2. What nodes owe. The set shrinks while events are taken: soon it is empty in most
            # runs.
            if kind in owed:
                self._unprinted.take(event)
            # 3. The rules, by groups: the states that the event belongs to, then each rule with its
            # own.
            for route in dispatch.get(kind, _NO_ROUTES):
                found = route.every
                if found is None:
                    try:
                        # Somebody else's code may raise anything here. Whatever the group's rules
                        # would have seen of this event is lost, so none of them that reads the kind
                        # goes on.
                        by_keys = route.by_keys
                        found = route.find(event) if by_keys is None else by_keys.find(event)
                    except Exception as error:  # a plugin's own code may raise anything
                        self._crashed(route.rules, error, event)
                        continue
                for held in found:
                    for feed in route.feeds:
                        try:
                            fold = held.folds.get(feed.fold)
                            if fold is None:
                                fold = self._begin(feed, held, event)
                            fold.take(event, body)
                        except Exception as error:
                            self._crashed(feed.all, error, event)
                    states = held.states
                    for number, handle, one in route.calls:
                        try:
                            state = states[number]
                            # By identity: None, or an empty list, may be the state of a rule.
                            if state is UNBEGUN:
                                state = self._start(number, one, held)
                            findings = handle(state, event, body)
                            if findings:
                                self._add(one, findings, position, event.at_ns)
                        except Exception as error:
                            self._crashed([one], error, event)
            # 4. After the rules: which faults have no receipt so far.
            if kind in _RECEIPTS:
                self._receive(body)
            position += 1
        self._position = position
        for event in coming:  # what passes the events on has to see them all
            self._pass_by(event)

    def _forfeits(self, event: Event) -> bool:
        """Whether nothing is promised from an event on."""
        # A forfeiture that raises stops its own rule, and excuses nothing: else a mistake in it
        # would silence all rules.
        for rule, one in self._watched[type(event.body)]:
            try:
                reason = one.take(event) if rule.working else None
                if isinstance(reason, str):
                    raise TypeError("a forfeiture returns a Reason or None, and no words any more")
            except Exception as error:
                self._crashed([rule], error, event)
                continue
            if reason is not None:
                self._forfeited = event, reason
                return True
        return False

    def _pass_by(self, event: Event) -> None:
        """An event from which on nothing is promised: only the ends of processes count."""
        body = event.body
        if isinstance(body, NodeStopped):
            self._stopped.add(event.process)
        # A node that said that it ends itself may do so once all is lost. One that ends without a
        # word has crashed, which no loss excuses.
        elif isinstance(body, ProcessExited) and body.ended in self._stopped and not body.expected:
            self._ended.append(body.ended)

    def _receive(self, body: Struct) -> None:
        """Notes a fault without a receipt, or its receipt."""
        if isinstance(body, FaultInjected) and not body.receipt:
            # It missed so far; `fault.took_effect` takes it out again.
            self._missed[body.fault_id] = f"{body.fault} ({body.fault_id})"
        elif isinstance(body, FaultTookEffect):
            self._missed.pop(body.fault_id, None)

    def _begin(self, feed: _Feed, held: Held, event: Event) -> SharedFold:
        """Begins a fold, and the states of the rules that name it."""
        for number, one in feed.rules:
            if held.states[number] is UNBEGUN:
                try:
                    self._start(number, one, held)
                except Exception as error:
                    self._crashed([one], error, event)
        begun: SharedFold = held.shared[feed.fold]
        held.folds[feed.fold] = begun
        return begun

    def _start(self, number: int, one: _Rule, held: Held) -> Any:
        """Begins the state of a rule."""
        self._turn += 1
        held.began[number] = self._turn
        for fold in one.rule.folds:
            if fold not in held.shared:
                held.shared[fold] = fold()
        state = held.states[number] = one.rule.start(held.key, held.shared)
        return state

    def _add(self, one: _Rule, findings: Sequence[Finding], position: int, at_ns: int) -> None:
        # A rule that crashed on one key of an event is still called with the others of that event.
        if not one.working:
            return
        for finding in findings:
            # By its class, and not by isinstance: there is no subclass, and this is the most
            # frequent call of all.
            if type(finding) is Exercised:
                one.exercise(finding.evidence)
            else:
                one.tally.add(finding, position, at_ns)
            if self._found is not None:
                self._found(one.rule.clause, finding, position)

    def _crashed(self, rules: Sequence[_Rule], error: Exception, event: Event) -> None:
        for one in rules:
            one.crash(error, f"on {event.kind} {event.ref}")
        self._route()

    def end(self, end: RunEnd) -> Judgement:
        """The verdicts, once no event is left."""
        until = end  # the end as rules see it; `end` itself decides whether the history is complete
        if self._forfeited is not None:
            # For the rules the run ended at that event: a bound that would have passed later has
            # not passed.
            until = replace(end, complete=False, ended_at_ns=self._forfeited[0].at_ns)
        # Each rule's own end: it is incomplete only for rules that read a kind of which events are
        # missing.
        ends = {
            id(one): until.as_read({kind_name(k) for k in one.rule.kinds}) for one in self._rules
        }
        for group in self._groups:
            # First what a keeper stopped to judge, then the states that it still has.
            for number, excused in group.keeper.excused():
                self._add(group.rules[number], (excused,), AT_END, until.ended_at_ns)
            for several in group.keeper.held():
                for number, one in enumerate(group.rules):
                    # In the order in which the states of this rule began, whatever the keeper's
                    # order is. A state that never began has 0, and is passed over by `_end`.
                    for held in sorted(several, key=lambda held: held.began[number]):
                        self._end(one, held.states[number], ends[id(one)])
        forfeited: Forfeited | None = None
        if self._forfeited is not None:  # what waited for an event is excused, and not undecided
            event, reason = self._forfeited
            forfeited = Forfeited(reason.words, tuple(self._ended), event.at_ns)
            for one in self._excused.values():
                self._add(one, (Excused.after(event.ref, reason),), AT_END, until.ended_at_ns)
            if not end.damage and not end.gaps:  # it was cut short only after that
                end = replace(end, complete=True)
        tallies: dict[str, Tally] = {}
        for one in self._rules:
            seen = ends[id(one)]
            one.tally.lacks = seen.lacks if seen is not until else ""
            # Known only now: any later event may have been the first of its kind.
            unseen = self._unprinted.lacks(one.rule.absence, self._release)
            if unseen:
                one.unseen(unseen)
            # A clause with several rules has one tally: a violation that one witness saw is one,
            # though others saw nothing.
            tallies.setdefault(one.rule.clause, Tally()).merge(one.settled())
        return conclude(
            self._judged,
            self._clauses,
            plane=self._plane,
            tallies=tallies,
            end=end,
            missed=tuple(self._missed.values()),
            forfeited=forfeited,
        )

    def _end(self, one: _Rule, state: Any, end: RunEnd) -> None:
        if state is UNBEGUN or not one.working:
            return
        try:
            found: Sequence[Finding] = one.rule.end(state, end)
            if self._forfeited is not None:
                # One excuse for a clause, by the first rule that had judged anything of it.
                self._excused.setdefault(one.rule.clause, one)
                found = [finding for finding in found if not isinstance(finding, Undecided)]
            self._add(one, found, AT_END, end.ended_at_ns)
        except Exception as error:
            one.crash(error, "at the end of the history")


def _watched(rules: Sequence[_Rule]) -> dict[type[Struct], list[tuple[_Rule, Forfeiture]]]:
    """The forfeitures that rules name, by the kinds of events that they read."""
    watched: dict[type[Struct], list[tuple[_Rule, Forfeiture]]] = {}
    for rule in rules:
        if rule.rule.forfeiture is not None:
            one = rule.rule.forfeiture()
            for kind in one.kinds:
                watched.setdefault(kind, []).append((rule, one))
    return watched


def _grouped(rules: Sequence[_Rule]) -> list[_Group]:
    """Groups rules whose `keeper` is one function, or else their `keys`; a rule with a bound method
    is a group of its own. First are those about the whole run.

    The functions are kept meanwhile, so no two of them have one id.
    """
    groups: dict[int, tuple[Any, list[_Rule]]] = {id(whole_run): (whole_run, [])}
    for one in rules:
        # By the id of the function, since a third party's function need not be hashable.
        together: Any = one.rule.keeper or one.rule.keys
        groups.setdefault(id(together), (together, []))[1].append(one)
    (_, of_run), *others = groups.values()
    run = _OfRun(len(of_run))
    shared = run.every[0].shared
    kept = [one for one in rules if one.rule.keeper is not None]
    for fold in dict.fromkeys(fold for one in kept for fold in one.rule.run_folds):
        shared[fold] = fold()
    return [_Group(of_run, run, kept), *(_group(several, shared) for _, several in others)]


def _group(several: list[_Rule], shared: Shared) -> _Group:
    rules = [one.rule for one in several]
    make = rules[0].keeper
    return _Group(several, _ByKeys(rules) if make is None else make(rules, shared))


def judge(
    events: Iterable[Event],
    rules: Sequence[Rule[Any]],
    clauses: Mapping[str, Clause],
    end: RunEnd | Callable[[], RunEnd],
    plane: str,
    found: OnFinding | None = None,
    release: str = "the system",
) -> Judgement:
    """Judges one history of a system of that plane; `found` and `release` are as in `Judge`.

    `end` may be a function, which is called once all events were read
    (`fencepost.history.merge.Reading.end`).
    """
    judging = Judge(rules, clauses, plane, found, release)
    judging.take(events)
    return judging.end(end() if callable(end) else end)
