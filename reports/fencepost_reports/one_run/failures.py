"""The failures of a run, and the losses of authority that may explain each.

The lines of an explanation are the framework's own (`fencepost.reporting.explain`): the chain of
events that led to the failure. Which loss of authority explains it is decided in `causes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from fencepost import Cause, Event, Evidence, FaultInjected
from fencepost.reporting import (
    BROKE,
    Broken,
    Explanation,
    FailedRow,
    FaultRow,
    SilenceRow,
    Tables,
    TestRow,
    Verdict,
    changes_authority,
    explain,
    has_concerns,
)
from fencepost_reports.one_run.causes import NOTHING, Causes, Failed
from fencepost_reports.one_run.history import Placed, Ref
from fencepost_reports.one_run.tables import CandidateRow, FailureRow

VIOLATIONS = 20
"""How many violations of one clause are rows, each with its explanation."""
UNEXPLAINED = CandidateRow(
    position=-1, type="", scope="", at_ns=-1, how=NOTHING, sure=1.0, chance=0.0
)
SILENCES = 20
"""How many of the longest times without a success are explained."""
_REMARKS = {"violation": BROKE, "operation": "this failed", "test": "the test failed"}


@final
@dataclass(frozen=True, slots=True)
class Reads:
    """The kinds of event that the rules of a clause read; and `told`, those by which the run tells
    of authority."""

    kinds: frozenset[str]
    told: frozenset[str]

    def unread(
        self, event: Event, because: Sequence[Event], nodes: Container[str]
    ) -> frozenset[str]:
        """The kinds that tell of authority, if the rule cannot have named any: it reads none of
        them, or judged by what no node says, but clients, disks and the harness. It may read of
        authority for another matter, such as whose records are to be believed."""
        outside = bool(because) and all(
            one.process not in nodes and not changes_authority(one.body)
            for one in (event, *because)
        )
        return self.told if outside or self.told.isdisjoint(self.kinds) else frozenset()


@final
@dataclass(frozen=True, slots=True)
class _Failure:
    """A failure that is still to be explained, in the explainer's terms and in the table's."""

    broken: Broken
    what: Literal["violation", "operation", "test"]
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
    """The failures of a run, and the positions of the events that they name."""

    rows: tuple[FailureRow, ...]
    named: frozenset[int]


def explained(
    verdicts: Mapping[str, Verdict],
    tables: Tables,
    *,
    causes: Causes,
    reads: Mapping[str, Reads],
    events: Callable[[Collection[Ref]], Iterable[Placed]],
    ended_ns: int,
) -> Explained:
    """Every failure of a run with its explanation; reads the history only if there is a failure.

    `reads` says which kinds of event the rules of a clause read; `events` gives the events that
    explanations are made of, and those with some names.
    """
    faults = tables.faults
    silent = [one for one in tables.silences if one.missed][:SILENCES]
    quiet = [_silence(one, causes, faults) for one in silent]
    failed = [*_violations(verdicts), *_operations(tables.failed), *_tests(tables.tests)]
    if not failed:
        return Explained(tuple(quiet), frozenset())
    named = [c for one in failed for c in (one.broken.at, *one.broken.because) if not c.request]
    wanted = _Wanted(frozenset((c.process, c.seq) for c in named))
    found = explain([one.broken for one in failed], wanted.passing(events(wanted.refs)))
    rows = _Rows(causes, reads, wanted.found, faults, ended_ns)
    made = tuple(rows.make(one, chain) for one, chain in zip(failed, found, strict=True))
    return Explained((*made, *quiet), frozenset(position for position, _ in wanted.found.values()))


def _violations(verdicts: Mapping[str, Verdict]) -> Iterable[_Failure]:
    for clause, verdict in verdicts.items():
        for one in verdict.violations[:VIOLATIONS]:
            yield _Failure(one, "violation", clause, "violated", "")


def _operations(groups: Iterable[FailedRow]) -> Iterable[_Failure]:
    for group in groups:
        yield _Failure(
            broken=Broken(Cause(group.process, group.seq), Evidence.CLIENT, group.says),
            what="operation",
            clause="",
            outcome=group.outcome,
            subject=group.subject,
            count=group.count,
            span_ns=(group.began_ns, group.at_ns),
        )


def _tests(failed: Iterable[TestRow]) -> Iterable[_Failure]:
    for test in failed:
        yield _Failure(
            broken=Broken(Cause(test.process, test.seq), Evidence.CLIENT, test.says),
            what="test",
            clause="",
            outcome=test.outcome,
            subject=test.nodeid,
        )


def _silence(row: SilenceRow, causes: Causes, faults: Iterable[FaultRow]) -> FailureRow:
    """A time in which operations were tried and none succeeded, as a failure."""
    subject = row.subject and f" of {row.subject}"
    says = f"no {row.what}{subject} succeeded"
    facts = {"subject": row.subject}
    failed = Failed(position=causes.position(row.to_ns), at_ns=row.from_ns, facts=facts)
    candidates = causes.candidates(failed)
    loss = candidates[0]
    since_ns = row.from_ns if loss.position < 0 else min(loss.at_ns, row.from_ns)
    return FailureRow(
        id="@".join((row.what, row.process, row.subject)),
        what="silence",
        clause="",
        evidence=str(Evidence.CLIENT),
        outcome="",
        says=says,
        subject=row.subject,
        process=row.process,
        position=-1,
        node_seq=-1,
        began_ns=row.from_ns,
        at_ns=row.to_ns,
        count=row.missed,
        faults=_active(faults, since_ns, row.to_ns),
        explained_by=loss.position,
        explained_type=loss.type,
        explained_at_ns=loss.at_ns,
        how=loss.how,
        candidates=candidates,
        lines=(),
    )


def _active(faults: Iterable[FaultRow], since_ns: int, until_ns: int) -> tuple[str, ...]:
    return tuple(f.fault_id for f in faults if f.from_ns <= until_ns and f.to_ns >= since_ns)


@final
@dataclass(slots=True)
class _Rows:
    """Makes rows of failures; `placed` are events by name."""

    causes: Causes
    reads: Mapping[str, Reads]
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
        candidates = self._candidates(failure, event, position)
        loss = candidates[0]
        since_ns = began_ns if loss.position < 0 else min(loss.at_ns, began_ns)
        return FailureRow(
            id=self._id(failure),
            what=failure.what,
            clause=failure.clause,
            evidence=str(failure.broken.evidence),
            outcome=failure.outcome,
            says=failure.broken.says,
            subject=failure.subject or _subject(event),
            process=at.process,
            position=position,
            node_seq=at.seq,
            began_ns=began_ns,
            at_ns=at_ns,
            count=failure.count,
            faults=self._faults(chain, since_ns, at_ns),
            explained_by=loss.position,
            explained_type=loss.type,
            explained_at_ns=loss.at_ns,
            how=loss.how,
            candidates=candidates,
            lines=() if chain is None else chain.lines(_REMARKS[failure.what]),
        )

    def _faults(self, chain: Explanation | None, since_ns: int, until_ns: int) -> tuple[str, ...]:
        """The faults that acted in that time, and before it those that led to the failure: as a
        watcher reports a loss, the fault that brought it about may be healed."""
        steps = () if chain is None else chain.steps
        led = {s.event.body.fault_id for s in steps if isinstance(s.event.body, FaultInjected)}
        acted = {*_active(self.faults, since_ns, until_ns), *led}
        return tuple(fault.fault_id for fault in self.faults if fault.fault_id in acted)

    def _candidates(
        self, failure: _Failure, event: Event | None, position: int
    ) -> tuple[CandidateRow, ...]:
        if event is None:
            return (UNEXPLAINED,)
        named = (self.placed.get((c.process, c.seq)) for c in failure.broken.because)
        because = tuple(one for one in named if one is not None)
        reads = self.reads.get(failure.clause) if failure.clause else None
        return self.causes.candidates(
            Failed(
                position=position,
                at_ns=event.at_ns,
                facts=failure.broken.facts,
                event=event,
                because=because,
                reads=None if reads is None else reads.kinds,
                unread=(
                    frozenset()
                    if reads is None
                    else reads.unread(event, [one for _, one in because], self.causes.nodes)
                ),
            )
        )

    def _id(self, failure: _Failure) -> str:
        name = "@".join(filter(None, (failure.clause, str(failure.broken.at))))
        self.ids[name] += 1
        return name if self.ids[name] == 1 else f"{name}/{self.ids[name]}"


def _subject(event: Event | None) -> str:
    """The scopes that an event concerns."""
    if event is not None and has_concerns(event.body):
        return ", ".join(event.body.concerns())
    return ""
