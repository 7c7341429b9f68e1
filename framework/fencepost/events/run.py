"""Kinds of events about a run itself: its phases, its faults, its tests."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from msgspec import Struct

from fencepost.events.effects import FORMERLY, Effect
from fencepost.events.envelope import Event
from fencepost.events.names import slot_of
from fencepost.events.words import because, fault_began, fault_in_words

RunPhase = Literal["start", "load", "inject", "heal", "drain", "read", "end"]
"""The phases of a run, in their order."""


class RunStarted(Struct, frozen=True, gc=False, tag="run.started", kw_only=True):
    """The harness began; its first event."""

    by_harness: ClassVar[bool] = True

    system: str
    runtime: str
    seed: int

    def sentence(self) -> str:
        return f"a run of {self.system} on {self.runtime} with seed {self.seed} began"


class PhaseStarted(Struct, frozen=True, gc=False, tag="run.phase", kw_only=True):
    """The run entered a phase: a `RunPhase`, or one of an older version."""

    by_harness: ClassVar[bool] = True

    phase: str

    def sentence(self) -> str:
        return f"the phase {self.phase} began"


class RunEnded(Struct, frozen=True, gc=False, tag="run.ended", kw_only=True):
    """The harness finished in order; its last event."""

    by_harness: ClassVar[bool] = True

    completed: bool
    reason: str = ""
    """What cut it short, if that is known: a node that ended by itself too often."""

    def sentence(self) -> str:
        return "the run ended" if self.completed else f"the run was cut short{because(self.reason)}"


class EvidenceMissed(Struct, frozen=True, gc=False, tag="run.evidence_missed", kw_only=True):
    """Events of the run are missing and will not be recorded, so the history is not complete.
    `what` is a sentence; `kinds` are the kinds of the missing events, none if they may be of any.
    With kinds, only the rules that read one of them lack evidence.

    Written by a client that observes the cluster's state and could not see all of it.
    """

    what: str
    kinds: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"missing from this history: {self.what}"


class EvidenceSupplied(Struct, frozen=True, gc=False, tag="run.evidence_supplied", kw_only=True):
    """What the `EvidenceMissed` that is this event's cause reports as missing was found after the
    run, and is in the history. `what` names it and where it was found."""

    what: str

    def sentence(self) -> str:
        return f"found after the run: {self.what}"


TO = " -> "
"""Between the source and the target of a direction."""
WAS = ": "
"""Between a slot and a state that it was in."""


class FaultIntended(Struct, frozen=True, gc=False, tag="fault.intended", kw_only=True):
    """A fault is about to be injected: written before its first effect, so that a run which dies of
    it shows it. `arguments` are a JSON object. A `fault.injected` with the same id follows, unless
    the injection failed."""

    by_harness: ClassVar[bool] = True

    fault_id: str
    fault: str
    arguments: str

    def sentence(self) -> str:
        return f"{fault_in_words(self.fault, self.arguments, ())} begins ({self.fault_id})"


class FaultInjected(Struct, frozen=True, gc=False, tag="fault.injected", kw_only=True):
    """A fault was injected. `receipt` is true only if `evidence`, a measurement, shows its effect.

    Written after the measurement; `began_at_ns` is when injecting it began (0: not known).
    `arguments` are those of the fault, as a JSON object (empty: not known). `directions` are, for a
    fault of links, the slots between which it affects data, a `source -> target` each; a fault of
    links names both ends of each as `targets`. Empty: it acts upon its targets themselves, or the
    directions are not known. `states` are those of its victims right before, by the events
    so far, a `slot: state` each (empty: not known). `effects` are its acts, as the runtime saw
    them, an `Effect` and what it acts upon each, such as `severs node-1 -> node-2` or
    `stops node-1` (empty: not known, as in histories of before they were written).
    """

    by_harness: ClassVar[bool] = True

    fault_id: str
    fault: str
    targets: tuple[str, ...]
    receipt: bool
    evidence: str
    began_at_ns: int = 0
    arguments: str = ""
    directions: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()

    def acts(self, *effects: Effect) -> frozenset[str]:
        """What it acts upon with any of these effects: slots, or directions; none: it has no such
        effect."""
        if self.effects:
            split = (one.partition(" ") for one in self.effects)
            return frozenset(upon for name, _, upon in split if name in effects)
        formerly = (name for one in effects for name in FORMERLY.get(one, ()))
        if not any(fnmatchcase(self.fault, name) for name in formerly):
            return frozenset()
        return frozenset(self.directions or map(slot_of, self.targets))

    def pairs(self) -> frozenset[tuple[str, str]]:
        """The source and the target of each direction."""
        split = (one.partition(TO) for one in self.directions)
        return frozenset((source, target) for source, _, target in split)

    def sentence(self) -> str:
        what = fault_in_words(self.fault, self.arguments, self.targets)
        return fault_began(what, self.fault_id, self.receipt, self.evidence)


class FaultTookEffect(Struct, frozen=True, gc=False, tag="fault.took_effect", kw_only=True):
    """A fault that was injected without a receipt, since it waited for something to act on, has one
    now. `evidence` is the measurement; it took effect before this was written."""

    by_harness: ClassVar[bool] = True

    fault_id: str
    evidence: str

    def sentence(self) -> str:
        return f"{self.fault_id} took effect: {self.evidence}"


class FaultHealed(Struct, frozen=True, gc=False, tag="fault.healed", kw_only=True):
    """A fault was healed; `receipt` is true if that was measured, `began_at_ns` is as above."""

    by_harness: ClassVar[bool] = True

    fault_id: str
    receipt: bool
    evidence: str
    began_at_ns: int = 0

    def sentence(self) -> str:
        return f"{self.fault_id} was healed{because(self.evidence)}"


class Administered(Struct, frozen=True, gc=False, tag="schedule.administered", kw_only=True):
    """The schedule had an administrator ask the cluster for an operation. What came of it is in the
    events of that client. `arguments` are a JSON object; `targets` are the slots that it concerns,
    and `states` those that each of them was in, as above.
    """

    by_harness: ClassVar[bool] = True

    operation: str
    arguments: str
    targets: tuple[str, ...]
    states: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"the schedule asked for {self.operation} {self.arguments}"


class LinkFailed(Struct, frozen=True, gc=False, tag="link.failed", kw_only=True):
    """A link was not in the state that was set for it, and no fault explains that. It was last seen
    in that state at `since_ns`; 0: not in this run."""

    by_harness: ClassVar[bool] = True

    link: str
    what: str
    since_ns: int

    def sentence(self) -> str:
        return f"the link {self.link} failed without a fault: {self.what}"


class TestStarted(Struct, frozen=True, gc=False, tag="test.started", kw_only=True):
    """A pytest test began; `clauses` are the ones it is marked with."""

    by_harness: ClassVar[bool] = True

    __test__: ClassVar[bool] = False
    nodeid: str
    clauses: tuple[str, ...]

    def sentence(self) -> str:
        return f"the test {self.nodeid} began"


class TestEnded(Struct, frozen=True, gc=False, tag="test.ended", kw_only=True):
    """A pytest test ended: passed, failed or error. `error` is the first line of what it raised
    (empty: nothing, or not known)."""

    by_harness: ClassVar[bool] = True

    __test__: ClassVar[bool] = False
    nodeid: str
    outcome: Literal["passed", "failed", "error"]
    error: str = ""

    def sentence(self) -> str:
        why = f": {self.error}" if self.error else ""
        return f"the test {self.nodeid} {self.outcome}{why}"


class PromiseObserved(Struct, frozen=True, gc=False, tag="test.promise_observed", kw_only=True):
    """A test checked one promise itself: a format, a default, a surface that no event shows.

    `evidence` is the observation, and `seen_by` the kind of that evidence.
    """

    clause: str
    held: bool
    evidence: str
    seen_by: Literal["client", "peer", "self"]

    def sentence(self) -> str:
        return f"the test saw {self.clause} {'hold' if self.held else 'broken'}: {self.evidence}"


class ClusterRecovered(Struct, frozen=True, gc=False, tag="cluster.recovered", kw_only=True):
    """Whether the cluster recovered after healing: nothing was missing (`System.missing`) within
    the bound.

    If `recovered` is false, `missing` lists in words what was still missing.
    """

    by_harness: ClassVar[bool] = True

    recovered: bool
    took_ms: int
    bound_ms: int
    missing: tuple[str, ...]

    def sentence(self) -> str:
        if self.recovered:
            return f"the cluster recovered in {self.took_ms} ms"
        return f"the cluster had not recovered after {self.bound_ms} ms: {'; '.join(self.missing)}"


def began_ns(event: Event) -> int:
    """When what an event tells of began. The injection and the healing of a fault are told once
    they were measured, and what came of them may be recorded before that."""
    body = event.body
    began = body.began_at_ns if isinstance(body, FaultInjected | FaultHealed) else 0
    return began or event.at_ns
