"""Rules: a rule is a fold over the events of one key, and yields findings.

A rule judges one clause. It is pure: it sees events, never the cluster, the clock, or which defect
is active. Its state is small and bounded per key, so the same classes judge a history of any
length, or the histories of many runs in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.history.run_end import RunEnd
from fencepost.judging.about import Fact, Facts, sentence_of

S = TypeVar("S")
Key = tuple[str | int, ...]
"""What a rule keeps one state for, such as `("lease", 7)`; `()` for the whole run."""


class Evidence(StrEnum):
    """Where the evidence comes from: a client that saw it, a peer, or the node itself."""

    CLIENT = "client"
    PEER = "peer"
    SELF = "self"


class Exercised(Struct, frozen=True, gc=False):
    """The situation in which the protection decides occurred, and the promise held."""

    at: Cause
    evidence: Evidence


class Violated(Struct, frozen=True, gc=False):
    """The event `at` broke the promise; `because` are the earlier events that prove it.

    `facts` say what it is about. `message` is one sentence, made of them for people (`violated`).
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()
    facts: Facts = {}


def violated(
    at: Cause,
    evidence: Evidence,
    template: str,
    because: tuple[Cause, ...] = (),
    /,
    **facts: Fact,
) -> Violated:
    """A violation with these facts; each `{name}` of the template is the fact of that name."""
    return Violated(at, evidence, sentence_of(template, facts), because, facts)


class Undecided(Struct, frozen=True, gc=False):
    """The evidence ends before the promise can be judged; `message` says why, in one sentence.

    `follows` is a clause that explains it, if that is violated: what could not be read, since the
    cluster had not recovered, is undecided because of that.
    """

    message: str
    at: Cause | None = None
    follows: str = ""


class Excused(Struct, frozen=True, gc=False):
    """The event `at` would have broken the promise, if a fault had not kept the node from keeping
    it; `message` names both, in one sentence. It counts neither for the promise nor against it."""

    at: Cause
    message: str


Finding = Exercised | Violated | Undecided | Excused
"""What a rule may report about its clause."""
NOTHING: Final[Sequence[Finding]] = ()
"""The findings of most steps: none."""
_RUN: Final[tuple[Key, ...]] = ((),)
"""The same object for each event, so that the judge finds the state at once."""


def whole_run(event: Event) -> tuple[Key, ...]:
    """One key for all events: the `keys` of a rule about the whole cluster. It is called once for
    all rules that share it."""
    return _RUN


Shared = dict[type, Any]
"""What the rules of one key share: a class, and the one object of it that they all fold."""
Handler = Callable[[Any, Event, Any], Sequence[Finding]]
"""Takes a state, an event and its body. Changes the state, and returns the findings."""
Handlers = Mapping[type[Struct], Handler]
"""A kind of event -> what a rule does with such an event."""


class Rule(Protocol[S]):
    """One clause as a keyed fold.

    `kinds` are the body classes it reads: no other event reaches it. `keys` names the keys an event
    belongs to (none: the rule ignores it; the same key for every event, such as `()`, for a rule
    about the whole run). `step` returns the next state and its findings. States are values: `step`
    may return the same object only if it is unchanged or no other key can hold it. Events come in
    happens-before order.

    A rule that reads many events may have more, which the judge then uses:

    * `handlers`, instead of `step`, which then returns what `by_handlers` does. An event of a kind
      without a handler changes nothing.
    * `start_shared(key, shared)`, instead of `start`: the state may hold objects of `shared`, which
      other rules of the key hold, too. Such an object applies each event once, whichever rule
      brings it first.
    * `keeper`: `fencepost.Keeper`.
    * `forfeiture`: `fencepost.Forfeiture`.
    * `absence`: the kinds of which it reads that no node said so, a tuple of `fencepost.Owed`. If a
      node owed one, and none printed it, all that the rule found counts for nothing, and its clause
      is unknown.
    """

    @property
    def clause(self) -> str:
        """The id of the clause that it judges."""
        ...

    @property
    def kinds(self) -> frozenset[type[Struct]]:
        """The classes of the bodies that it reads."""
        ...

    def keys(self, event: Event) -> Iterable[Key]:
        """The keys that an event belongs to."""
        ...

    def start(self, key: Key) -> S:
        """The state of a key before its first event."""
        ...

    def step(self, state: S, event: Event) -> tuple[S, Sequence[Finding]]:
        """The state of a key after an event, and the findings at that event."""
        ...

    def end(self, state: S, end: RunEnd) -> Sequence[Finding]:
        """The findings that a key's last state has at the end of the run."""
        ...


class Handles(Protocol):
    """A rule with a handler for each kind of event that it does not ignore."""

    @property
    def handlers(self) -> Handlers:
        """What it does with events, by their kind."""
        ...


def by_handlers(rule: Handles, state: S, event: Event) -> tuple[S, Sequence[Finding]]:
    """What the `step` of a rule with handlers returns."""
    handler = rule.handlers.get(type(event.body))
    return state, () if handler is None else handler(state, event, event.body)


def applied(rule: Rule[Any]) -> Rule[Any]:
    """The rule that says how a clause is judged: a rule that applies another one, as
    `OfPresentTopic` does, has it as its attribute `rule`."""
    other: Any = getattr(rule, "rule", None)
    return applied(other) if hasattr(other, "clause") else rule


class Promise(StrEnum):
    """How a clause applies on a plane that its document does not mention."""

    SAME = "same"
    CHANGED = "changed"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class Applicability:
    """How a clause applies on one plane. `how` gives its names there, how it differs, or why it
    does not apply.

    The clause's rules judge only where the promise is the same. A changed promise may be another
    clause of that plane, which `how` then names.
    """

    clause: str
    plane: str
    promise: Promise
    how: str


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
        if declared is not None:
            return declared.promise is Promise.SAME
        return not self.planes or plane in self.planes

    def unbound(self, plane: str) -> str:
        """Why it does not bind systems of that plane, in words."""
        declared = self.applies_on(plane)
        if declared is None:
            return f"it binds no {plane} plane"
        return f"{declared.promise}: {declared.how}"
