"""The failures of a run, and the loss of authority that explains each.

The explanation of a failure is the framework's own (`fencepost.reporting.explain`): the chain of
events that led to it. The event that explains the failure is chosen from that chain: a loss of
authority that the rule names; else the latest loss over a scope that the failure concerns; else the
latest loss of authority that the whole cluster depends on. If the chain has no loss of authority,
none explains the failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from fencepost import Event, Evidence, OperationOutcome
from fencepost.reporting import (
    BROKE,
    Broken,
    Explanation,
    Verdict,
    explain,
    has_concerns,
    tells_operations,
)
from fencepost_reports.one_run.history import History, Placed
from fencepost_reports.one_run.tables import AuthorityRow, FailureRow, FaultRow

VIOLATIONS = 20
"""How many violations of one clause are rows, each with its explanation."""
OPERATIONS = 100
"""How many groups of operations are explained: the largest ones."""

NAMED = "named by the rule"
SAME = "the latest loss of authority over what it concerns"
WIDE = "the latest loss of authority that the cluster depends on"

_REMARKS = {"violation": BROKE, "operation": "this failed"}
_FAILED = (OperationOutcome.FAILED, OperationOutcome.UNKNOWN)
Ref = tuple[str, int]


@final
@dataclass(slots=True, kw_only=True)
class Operations:
    """Consecutive operations of one sort that failed or were left open; see `FailureRow`."""

    first: Event
    position: int
    says: str
    subject: str
    outcome: OperationOutcome
    faults: tuple[str, ...]
    began_ns: int
    at_ns: int
    count: int = 1


@final
class OperationFold:
    """A fold over the events of client operations, in order; `groups` are the operations that did
    not succeed."""

    def __init__(self) -> None:
        self.groups: list[Operations] = []
        self._invoked: dict[str, int] = {}
        self._newest: dict[tuple[str, str, str], Operations] = {}

    def apply(self, position: int, event: Event, active: tuple[str, ...]) -> None:
        """Applies one event; `active` are the ids of the faults that are active."""
        if not tells_operations(event.body):
            return
        for one in event.body.client_operations():
            if one.outcome is None:
                self._invoked[one.name] = event.at_ns
                continue
            began_ns = self._invoked.pop(one.name, event.at_ns) if one.name else event.at_ns
            if one.outcome not in _FAILED:
                continue
            says = " ".join(filter(None, (one.what, one.outcome, one.error)))
            key = (event.process, says, one.subject)
            group = self._newest.get(key)
            if group is not None and group.faults == active:
                group.at_ns = event.at_ns
                group.began_ns = min(group.began_ns, began_ns)
                group.count += 1
                continue
            found = Operations(
                first=event,
                position=position,
                says=says,
                subject=one.subject,
                outcome=one.outcome,
                faults=active,
                began_ns=began_ns,
                at_ns=event.at_ns,
            )
            self._newest[key] = found
            self.groups.append(found)


@final
@dataclass(frozen=True, slots=True)
class _Failure:
    """A failure that is still to be explained, in the explainer's terms and in the table's."""

    broken: Broken
    what: Literal["violation", "operation"]
    clause: str
    outcome: str
    subject: str
    count: int = 1
    span_ns: tuple[int, int] | None = None
    """Its begin and its end; None: it is at the time of the event."""


@final
@dataclass(slots=True)
class _Wanted:
    """The wanted events, by process and number, each with its position once it was read."""

    refs: frozenset[Ref]
    found: dict[Ref, tuple[int, Event]] = field(default_factory=dict)

    def passing(self, events: Iterable[Placed]) -> Iterable[Event]:
        """Passes the events on, without their positions."""
        for position, event in events:
            ref = (event.process, event.node_seq)
            if ref in self.refs:
                self.found[ref] = (position, event)
            yield event


@final
@dataclass(frozen=True, slots=True)
class Explained:
    """The failures of a run, and the events that they and their explanations name, by position."""

    rows: tuple[FailureRow, ...]
    events: Mapping[int, Event]


def explained(
    verdicts: Mapping[str, Verdict],
    operations: Sequence[Operations],
    *,
    authority: Sequence[AuthorityRow],
    faults: Sequence[FaultRow],
    history: History,
    ended_ns: int,
) -> Explained:
    """Every failure of a run with its explanation; reads the history only if there is a failure.

    `authority` are the changes that took authority from a holder.
    """
    failed = [*_violations(verdicts), *_operations(operations)]
    if not failed:
        return Explained((), {})
    causes = [c for one in failed for c in (one.broken.at, *one.broken.because) if not c.request]
    losses = {(row.process, row.node_seq): row for row in authority}
    wanted = _Wanted(frozenset({*((c.process, c.seq) for c in causes), *losses}))
    found = explain([one.broken for one in failed], wanted.passing(history.telling(wanted.refs)))
    rows = _Rows(losses, wanted.found, faults, ended_ns)
    made = tuple(rows.make(one, chain) for one, chain in zip(failed, found, strict=True))
    kept = {(c.process, c.seq) for c in causes} | {
        (step.event.process, step.event.node_seq)
        for chain in found
        if chain is not None
        for step in chain.steps
    }
    placed = (wanted.found[ref] for ref in kept if ref in wanted.found)
    return Explained(made, dict(placed))


def _violations(verdicts: Mapping[str, Verdict]) -> Iterable[_Failure]:
    for clause, verdict in verdicts.items():
        for one in verdict.violations[:VIOLATIONS]:
            yield _Failure(one, "violation", clause, "violated", "")


def _operations(groups: Sequence[Operations]) -> Iterable[_Failure]:
    largest = sorted(groups, key=lambda one: -one.count)[:OPERATIONS]
    for group in sorted(largest, key=lambda one: one.position):
        yield _Failure(
            broken=Broken(group.first.ref, Evidence.CLIENT, group.says),
            what="operation",
            clause="",
            outcome=group.outcome,
            subject=group.subject,
            count=group.count,
            span_ns=(group.began_ns, group.at_ns),
        )


@final
@dataclass(slots=True)
class _Rows:
    """Makes rows of failures. `losses` are losses of authority, and `placed` events, by name."""

    losses: Mapping[Ref, AuthorityRow]
    placed: Mapping[Ref, tuple[int, Event]]
    faults: Sequence[FaultRow]
    ended_ns: int
    ids: Counter[str] = field(default_factory=Counter)

    def make(self, failure: _Failure, chain: Explanation | None) -> FailureRow:
        """The row of one failure; `chain` holds the events that led to it, if its event is in the
        history."""
        at = failure.broken.at
        position, event = self.placed.get((at.process, at.seq), (-1, None))
        moment = self.ended_ns if event is None else event.at_ns
        began_ns, at_ns = failure.span_ns or (moment, moment)
        loss, how = self._loss(failure.broken, chain)
        since_ns = began_ns if loss is None else min(loss.at_ns, began_ns)
        return FailureRow(
            id=self._id(failure),
            what=failure.what,
            clause=failure.clause,
            evidence=str(failure.broken.evidence),
            outcome=failure.outcome,
            says=failure.broken.message,
            subject=failure.subject or _subject(event),
            process=at.process,
            position=position,
            node_seq=at.seq,
            began_ns=began_ns,
            at_ns=at_ns,
            count=failure.count,
            faults=tuple(
                f.fault_id for f in self.faults if f.from_ns <= at_ns and f.to_ns >= since_ns
            ),
            explained_by=-1 if loss is None else loss.position,
            explained_type="" if loss is None else loss.type,
            explained_at_ns=-1 if loss is None else loss.at_ns,
            how=how,
            lines=() if chain is None else chain.lines(_REMARKS[failure.what]),
        )

    def _id(self, failure: _Failure) -> str:
        name = "@".join(filter(None, (failure.clause, str(failure.broken.at))))
        self.ids[name] += 1
        return name if self.ids[name] == 1 else f"{name}/{self.ids[name]}"

    def _loss(self, broken: Broken, chain: Explanation | None) -> tuple[AuthorityRow | None, str]:
        """The loss of authority that explains a failure, and why this loss was chosen."""
        named = [self.losses.get((c.process, c.seq)) for c in broken.because if not c.request]
        steps = () if chain is None else chain.steps
        met = [self.losses.get((s.event.process, s.event.node_seq)) for s in steps]
        wide = [one for one in met if one is not None and one.wide]
        close = [one for one in met if one is not None and not one.wide]
        for losses, how in ((named, NAMED), (close, SAME), (wide, WIDE)):
            found = [one for one in losses if one is not None]
            if found:
                return max(found, key=lambda one: one.position), how
        return None, ""


def _subject(event: Event | None) -> str:
    """The scopes that an event concerns."""
    if event is not None and has_concerns(event.body):
        return ", ".join(event.body.concerns())
    return ""
