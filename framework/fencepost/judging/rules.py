"""What a rule is: a fold over the events of one key, and what it may find.

A rule judges one clause. It is pure: it sees events, never the cluster, the clock, or which defect
is switched on. Its state is small and bounded by its key, so that a history of any length, or the
histories of many runs in Spark, are judged with the same classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from msgspec import Struct

from fencepost.events import Cause, Event
from fencepost.history.run_end import RunEnd

S = TypeVar("S")
Key = tuple[str | int, ...]


class Evidence(StrEnum):
    """Where the evidence comes from: a client that saw it, a peer, or the node itself."""

    CLIENT = "client"
    PEER = "peer"
    SELF = "self"


class Exercised(Struct, frozen=True):
    """The situation occurred in which the protection decides, and it held."""

    at: Cause
    evidence: Evidence


class Violated(Struct, frozen=True):
    """The promise was broken by the event `at`; `because` are the earlier events that make it so.

    `message` is one sentence with the figures in it.
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()


class Undecided(Struct, frozen=True):
    """The evidence stops before the promise could be judged; `message` is why, in one sentence."""

    message: str
    at: Cause | None = None


Finding = Exercised | Violated | Undecided


class Rule(Protocol[S]):
    """One clause as a keyed fold.

    `kinds` are the body classes it reads: no other event reaches it. `keys` names the keys an event
    belongs to (none: not mine; the same key from `()` for a run-wide rule). `step` returns the next
    state and what was found; states are values: it may return the same object only if unchanged
    or if no other key can hold it. Events come in happens-before order.
    """

    @property
    def clause(self) -> str: ...
    @property
    def kinds(self) -> frozenset[type[Struct]]: ...
    def keys(self, event: Event) -> Iterable[Key]: ...
    def start(self, key: Key) -> S: ...
    def step(self, state: S, event: Event) -> tuple[S, Sequence[Finding]]: ...
    def end(self, state: S, end: RunEnd) -> Sequence[Finding]: ...


class Promise(StrEnum):
    """What a clause is on a plane that its document does not speak of."""

    SAME = "same"
    CHANGED = "changed"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class Applicability:
    """What a clause comes to on one plane, and how: by which names, otherwise in what, or why not.

    Only where the promise is the same do the clause's rules judge. A changed one may be another
    clause of that plane, which `how` then names.
    """

    clause: str
    plane: str
    promise: Promise
    how: str


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: its id, the document it comes from, the planes it binds, and its sentence.

    `planes` are those that its document speaks of; a clause about clients has none and binds every
    system. `applicability` say of other planes what it is there; plugins give them
    (`fencepost_applicability`).
    """

    id: str
    source: str
    planes: tuple[str, ...]
    says: str
    defect: str = ""
    note: str = field(default="", compare=False)
    applicability: tuple[Applicability, ...] = field(default=(), compare=False)

    def applies_on(self, plane: str) -> Applicability | None:
        """What was said of it on that plane, if anything was."""
        return next((mark for mark in self.applicability if mark.plane == plane), None)

    def binds(self, plane: str) -> bool:
        """Whether its rules judge systems of that plane."""
        mark = self.applies_on(plane)
        if mark is not None:
            return mark.promise is Promise.SAME
        return not self.planes or plane in self.planes

    def unbound(self, plane: str) -> str:
        """Why it does not bind systems of that plane, in words."""
        mark = self.applies_on(plane)
        if mark is None:
            return f"it binds no {plane} plane"
        return f"{mark.promise}: {mark.how}"
