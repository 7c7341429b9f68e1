"""Rules: a rule is a fold over the events of one key, and yields findings.

A rule judges one clause. It is pure: it sees events, never the cluster, the clock, or which defect
is active. Its state is small and bounded per key, so the same classes judge a history of any
length, or the histories of many runs in Spark. docs/explanation/judging.md follows one rule line by
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, final

from msgspec import Struct

from fencepost.events import Event
from fencepost.history.run_end import RunEnd
from fencepost.judging.findings import NOTHING, Findings
from fencepost.judging.owed import Owed
from fencepost.judging.states import Forfeiture, Keeper, Key, Shared, SharedFold

S = TypeVar("S")
_RUN: Final[tuple[Key, ...]] = ((),)


def whole_run(event: Event) -> tuple[Key, ...]:
    """One key for all events: the `keys` of a rule about the whole cluster."""
    return _RUN


Handler = Callable[[S, Event, Any], Findings]
"""Takes a state, an event and its body. Changes the state, and returns the findings."""
_Method = TypeVar("_Method", bound=Callable[..., Any])


@final
class _On:
    """A method that handles events of some kinds. A compiled method takes no attribute, so the mark
    is around it."""

    def __init__(self, method: Any, kinds: tuple[type[Struct], ...]) -> None:
        self.method = method
        self.kinds = kinds

    def __get__(self, rule: object, of: type | None = None) -> Any:
        return self if rule is None else self.method.__get__(rule, of)


def on(*kinds: type[Struct]) -> Callable[[_Method], _Method]:
    """Marks a method of a rule as the handler of events of these kinds.

        @on(LeaderElected, LeaderResigned)
        def _changed(self, state: Led, event: Event, body: Struct) -> Findings:

    It changes the state, and returns the findings at this event, often `NOTHING`.
    """

    def mark(method: _Method) -> _Method:
        marked: Any = _On(method, kinds)
        return cast(_Method, marked)

    return mark


class Rule(Generic[S]):
    """One clause as a keyed fold: a state for each key, which the handlers change.

    A rule is a subclass with a handler (`on`) for each kind of event that it does not ignore. It
    may have more: `keys`, if it is not about the whole run; `state`, or `start`, if it remembers
    anything; `end`, if it waits for anything. A state begins with the first event of its key that
    the rule handles, or one of its folds takes. Events come in happens-before order, each event
    once for each of its keys.

    What the rule depends on beside its events is declared, so that a reader sees what decides
    whether an event counts: `absence`, `forfeiture`, and where it is registered, `kept`.

    Raises TypeError, when the class is made, if two of its methods handle one kind.
    """

    clause: str = ""
    """The id of the clause that it judges. One class may judge several: `Serves("HB-07")`."""
    planes: tuple[str, ...] = ()
    """The planes on which it is a witness; empty: those where its clause is the same. A clause has
    several witnesses: clients, peers, logs, disks. Each judges by what it sees."""
    state: Callable[[], Any] = type(None)
    """Makes the state of a key before its first event; a class, in most rules."""
    reads: frozenset[type[Struct]] = frozenset()
    """Other kinds that it needs all the same: a history that lacks one is incomplete for it, and
    its keeper sees them."""
    folds: tuple[type[SharedFold], ...] = ()
    """What it folds together with other rules of its key: `start` finds one object of each in
    `shared`."""
    absence: tuple[Owed, ...] = ()
    """The kinds of which it reads that no node said so. If a node owed one, and none printed it,
    all that the rule found counts for nothing, and its clause is unknown."""
    forfeiture: Callable[[], Forfeiture] | None = None
    """Makes what knows from which event on nothing is promised any more."""
    keys: Callable[[Event], Iterable[Key]] = staticmethod(whole_run)
    """The keys that an event belongs to; none if the rule ignores it. Rules with the same function
    are asked together, and all rules about the whole run are."""
    keeper: Callable[[Sequence[Any], Shared], Keeper] | None = None
    """Makes what keeps the states of all rules with this keeper, where keys alone do not find
    them: of the rules, and of what is shared about the whole run."""
    run_folds: tuple[type[SharedFold], ...] = ()
    """What its keeper asks about the whole run, and shares with the rules about it."""
    handled: ClassVar[Mapping[type[Struct], str]] = {}
    """Kind -> the name of the method that handles it."""

    def __init__(self, clause: str = "") -> None:
        if clause:
            self.clause = clause

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own: dict[type[Struct], str] = {}
        for name, method in vars(cls).items():
            # Two handlers of one kind would depend on their order, which nobody sees. One method
            # for several kinds is fine, and a subclass may replace a handler of its base.
            for kind in method.kinds if isinstance(method, _On) else ():
                if own.setdefault(kind, name) != name:
                    raise TypeError(f"{cls.__name__} handles {kind.__name__} twice")
        cls.handled = {**cls.handled, **own}

    @property
    def kinds(self) -> frozenset[type[Struct]]:
        """The kinds of events that it reads; no other event reaches it."""
        return self.found.union(*(fold.kinds for fold in self.run_folds))

    @property
    def found(self) -> frozenset[type[Struct]]:
        """Those of them for which its keys or its keeper find what they belong to."""
        return self.reads | self.applied

    @property
    def applied(self) -> frozenset[type[Struct]]:
        """Those of them that change its states: a handler or a fold takes them."""
        return frozenset(self.handled).union(*(fold.kinds for fold in self.folds))

    def start(self, key: Key, shared: Shared) -> S:
        """The state of a key before its first event. It may hold objects of `shared`, which other
        rules of the key hold, too: its folds are there."""
        made: S = self.state()
        return made

    def end(self, state: S, end: RunEnd) -> Findings:
        """What a key's last state shows at the end of the run: what was waited for, and never came.
        `Undecided` if the run might have shown it later."""
        return NOTHING

    def kept(
        self,
        by: Callable[[Sequence[Any], Shared], Keeper],
        reads: frozenset[type[Struct]],
        folds: tuple[type[SharedFold], ...] = (),
    ) -> Rule[S]:
        """The same rule, whose states a keeper keeps. The keeper reads these kinds, too, and asks
        these folds about the whole run."""
        # A copy: the rule itself may be registered without a keeper elsewhere.
        rule = copy(self)
        rule.keeper, rule.reads, rule.run_folds = by, self.reads | reads, folds
        return rule


class Promise(StrEnum):
    """How a clause applies on a plane that its document does not mention."""

    SAME = "same"
    WITNESSED = "witnessed"
    """The same, shown by other events: the rules that name the plane are its witnesses."""
    CHANGED = "changed"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class Applicability:
    """How a clause applies on one plane. `how` gives its names there, how it differs, or why it
    does not apply.

    The clause's rules judge only where the promise is the same or witnessed. A changed promise may
    be another clause of that plane, which `how` then names. `formerly` is the id of a clause of
    that plane that this one has replaced: the id still finds it.
    """

    clause: str
    plane: str
    promise: Promise
    how: str
    formerly: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: its id, the document it comes from, the planes it binds, and its sentence.

    `planes` are the ones that its document is about; a clause about clients has none and binds
    every system. `applicability` says what it is on other planes; plugins provide it
    (`fencepost_applicability`).
    """

    id: str
    source: str
    planes: tuple[str, ...]
    says: str
    defect: str = ""
    note: str = field(default="", compare=False)
    vocabulary: str = ""
    """The package of the events that the clause is about, such as one about the logs of partitions.
    Without planes of its own, it binds the systems whose folds come from that package, for these
    record such events; with neither, it binds every system."""
    bounded: bool = False
    """Whether it is judged by bounds that a system states: then its vocabulary binds only systems
    that state some (`StatesBounds`)."""
    judges: str = ""
    """The kind of an event by which the harness itself reports that the promise was not kept, such
    as `cluster.recovered`. Where the clause is violated, that event is no failure beside it."""
    applicability: tuple[Applicability, ...] = field(default=(), compare=False)

    def applies_on(self, plane: str) -> Applicability | None:
        """Its applicability to that plane, if any was declared."""
        return next((one for one in self.applicability if one.plane == plane), None)

    def binds(self, plane: str) -> bool:
        """Whether its rules judge systems of that plane."""
        declared = self.applies_on(plane)
        # What a plane declares for itself is stronger than the planes that the clause names.
        if declared is not None:
            return declared.promise in (Promise.SAME, Promise.WITNESSED)
        return not self.planes or plane in self.planes

    def judged_by(self, rule: Rule[Any], plane: str) -> bool:
        """Whether a rule of this clause judges systems of that plane."""
        if not self.binds(plane):
            return False
        # A rule that names planes judges on these alone. Where the promise is witnessed by other
        # events, a rule without planes reads events that no node there writes: it would find
        # nothing, or accuse.
        return plane in rule.planes if rule.planes or self.witnessed_on(plane) else True

    def witnessed_on(self, plane: str) -> bool:
        """Whether other events show the promise there, so that rules and tests which do not name
        the plane see nothing of it."""
        declared = self.applies_on(plane)
        return declared is not None and declared.promise is Promise.WITNESSED

    def unbound(self, plane: str) -> str:
        """Why it does not bind systems of that plane, in words."""
        declared = self.applies_on(plane)
        if declared is None:
            return f"it binds no {plane} plane"
        return f"{declared.promise}: {declared.how}"
