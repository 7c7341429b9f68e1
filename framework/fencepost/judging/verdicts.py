"""Verdicts: the outcome of each clause, from the findings of its rules.

A clause holds only if it was exercised and no finding or fault speaks against it. In order of
weight: one violation makes it violated, unless all were found while a link may have been broken
without a fault; then it is unknown. A crashed rule, an undecided finding or an incomplete
history makes it unknown; so does a fault without a receipt if nothing else exercised the clause. A
run that was cut short lacks nothing but its rest: what was exercised until then, and waits for
nothing, holds until then. So a rule must report, at the end, what it waits for (`Undecided`). A
clause that binds another plane is not applicable, and a clause without a rule has no verdict.

`verdicts.json` in a run's folder is one object, clause id -> `Verdict`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fencepost.events import Cause
from fencepost.events.words import span
from fencepost.history.files import content, decoded, write_whole
from fencepost.history.run_end import NEVER_NS, RunEnd
from fencepost.judging.about import Facts
from fencepost.judging.findings import (
    Evidence,
    Excused,
    Exercised,
    Finding,
    Undecided,
    Violated,
)
from fencepost.judging.rules import Clause
from fencepost.model.errors import UsageError

AT_END = 1 << 62
"""The position of findings that were made after the last event."""
VIOLATIONS_KEPT = 1_000
"""How many violations of a clause are kept. What is not kept may be new, so a known finding that is
told more often turns a run red. Of a hundred clauses these still fit `MOST_VERDICTS_BYTES`."""
MOST_VERDICTS_BYTES = 64 << 20
"""The largest verdicts.json that is read."""
MESSAGES_KEPT = 5
_STRENGTH = (Evidence.CLIENT, Evidence.PEER, Evidence.SELF)


class Outcome(StrEnum):
    """The outcome of a clause; only `holds` is a pass."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_EXERCISED = "not-exercised"
    NOT_APPLICABLE = "not-applicable"


class AsKnown(Struct, frozen=True):
    """What a violation is, or would be, in other versions of the system: a known finding, and the
    versions in which that was seen."""

    finding: str
    versions: tuple[str, ...]


class Broken(Struct, frozen=True):
    """One violation: the event, the kind of evidence, what happened, the events that prove it, and
    the facts that say what it is about (`fencepost.judging.about`).

    `explanation` holds the lines that lead from changes of epochs and fencing to the violation. It
    is empty until the explainer has filled it in. `known` is the id of the known finding that the
    violation is, or follows from; empty: it is new.
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()
    explanation: tuple[str, ...] = ()
    known: str = ""
    as_known: AsKnown | None = None
    """It has the facts and the cause of a finding that was not seen in this version. It stays new;
    only in a build of somebody's own the findings of the nearest release count as known."""
    facts: Facts = {}

    @property
    def says(self) -> str:
        """What happened, for people; also what it is, or would be, elsewhere."""
        if self.as_known is None:
            return self.message
        *others, last = self.as_known.versions
        versions = f"{', '.join(others)} and {last}" if others else last
        return f"{self.message} (as {self.as_known.finding}, known in {versions})"


class Verdict(Struct, frozen=True):
    """The verdict on one clause in one run.

    `exercised` is how often the clause was exercised. `evidence` is the strongest kind of evidence
    for a violation, or else for an exercise: client before peer before self; None if there is none.
    `sentence` is the clause's own. `reason` says why the verdict is unknown or not applicable, and
    of other verdicts what was excused. `excused` counts what faults excused; `excuses` and
    `undecided` keep the first `MESSAGES_KEPT` of such findings that say different things, with
    their facts, in the order of their sentences.
    `violated` counts all violations; `violations` keeps the first `VIOLATIONS_KEPT`. `known` are
    the ids of known findings (`fencepost.judging.known_findings`); it is empty if any violation is
    new. `follows`: the verdict is unknown only because of another clause, which is violated.
    """

    verdict: Outcome
    exercised: int
    evidence: Evidence | None
    sentence: str
    reason: str = ""
    violated: int = 0
    violations: tuple[Broken, ...] = ()
    known: tuple[str, ...] = ()
    excused: int = 0
    follows: str = ""
    excuses: tuple[Excused, ...] = ()
    undecided: tuple[Undecided, ...] = ()

    @property
    def first_new(self) -> Broken | None:
        """The first violation that is not known, or else the first one that was kept: those that
        were counted only may be new. None if there is no violation, or all are known."""
        if self.known or not self.violations:
            return None
        return next((one for one in self.violations if not one.known), self.violations[0])

    @property
    def new(self) -> int:
        """How many violations are not known."""
        return self.violated - sum(1 for one in self.violations if one.known)


@dataclass(slots=True)
class Tally:
    """The findings about one clause so far, bounded; tallies of one clause can be merged.

    Violations are kept with the position, in the history, of the event at which they were found.
    """

    exercised: dict[Evidence, int] = field(default_factory=dict)
    violated: int = 0
    violations: list[tuple[int, Broken]] = field(default_factory=list)
    first_ns: int = NEVER_NS
    """When the first violation was certain."""
    undecided: int = 0
    follow: set[str] = field(default_factory=set)
    """The clauses that explain undecided findings; empty text: nothing explains one of them."""
    open: list[Undecided] = field(default_factory=list)
    """The first of those that are undecided."""
    excused: int = 0
    excuses: list[Excused] = field(default_factory=list)
    """The first of those that say different things."""
    crashed: str = ""
    lacks: str = ""
    """Which events of those that the rules read are missing, if only such events are."""

    def add(self, finding: Finding, position: int, at_ns: int = 0) -> None:
        """Adds one finding that was made at this position and time; neither ever decreases."""
        if isinstance(finding, Exercised):
            by = finding.evidence
            self.exercised[by] = self.exercised.get(by, 0) + 1
        elif isinstance(finding, Violated):
            self.violated += 1
            certain_ns = at_ns if finding.certain_ns is None else finding.certain_ns
            self.first_ns = min(self.first_ns, certain_ns)
            if len(self.violations) < VIOLATIONS_KEPT:
                broken = Broken(
                    finding.at,
                    finding.evidence,
                    finding.message,
                    finding.because,
                    facts=finding.facts,
                )
                self.violations.append((position, broken))
        elif isinstance(finding, Excused):
            self.excused += 1
            if len(self.excuses) < MESSAGES_KEPT and all(
                one.message != finding.message for one in self.excuses
            ):
                self.excuses.append(finding)
        else:
            self.undecided += 1
            self.follow.add(finding.follows)
            if len(self.open) < MESSAGES_KEPT:
                self.open.append(finding)

    def merge(self, other: Tally) -> None:
        """Adds another tally of the same clause."""
        for by, count in other.exercised.items():
            self.exercised[by] = self.exercised.get(by, 0) + count
        self.violated += other.violated
        self.first_ns = min(self.first_ns, other.first_ns)
        # By position, with a tie broken by the event and its sentence: the result is the same in
        # whichever order tallies are merged.
        both = sorted([*self.violations, *other.violations], key=_place)
        self.violations = both[:VIOLATIONS_KEPT]
        self.undecided += other.undecided
        self.follow |= other.follow
        # Sorted for the same reason.
        self.open = _different([*self.open, *other.open])[:MESSAGES_KEPT]
        self.excused += other.excused
        self.excuses = _different([*self.excuses, *other.excuses])[:MESSAGES_KEPT]
        self.crashed = min(filter(None, (self.crashed, other.crashed)), default="")
        self.lacks = min(filter(None, (self.lacks, other.lacks)), default="")


Unjudged = TypeVar("Unjudged", bound=Excused | Undecided)


def _different(findings: Sequence[Unjudged]) -> list[Unjudged]:
    """One finding for each sentence, by the sentence; of several the first by its event."""
    each: dict[str, Unjudged] = {}
    for one in sorted(findings, key=_sentence):
        each.setdefault(one.message, one)
    return [*each.values()]


def _sentence(one: Excused | Undecided) -> tuple[str, str, int]:
    return (one.message, one.at.process, one.at.seq) if one.at else (one.message, "", -1)


def _place(kept: tuple[int, Broken]) -> tuple[int, str, int, str]:
    position, broken = kept
    return position, broken.at.process, broken.at.seq, broken.message


class Forfeited(Struct, frozen=True):
    """From an event on, a run was promised nothing any more: the reason, the nodes that ended
    themselves after it and said why, in the order of their ends, and when that was (0: not
    known)."""

    reason: str
    ended: tuple[str, ...] = ()
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one run, by clause, in the order of their ids; and whether it was
    forfeited."""

    verdicts: Mapping[str, Verdict]
    forfeited: Forfeited | None = None

    def in_part(self, end: RunEnd) -> str:
        """For how long the run was judged, and why no longer; empty if it was to its end."""
        if self.forfeited is None:
            return ""
        judged_ns = max(0, self.forfeited.at_ns - end.began_at_ns)
        whole = f"of {span(end.ended_at_ns - end.began_at_ns)}"
        return f"judged for {span(judged_ns)} {whole}: {self.forfeited.reason}"

    def whole(self, end: RunEnd) -> bool:
        """Whether nothing is lacking that would be judged: a run that was forfeited may be cut
        short after that."""
        lost = self.forfeited is not None and not (end.damage or end.gaps)
        return end.complete or lost

    def of(self, outcome: Outcome) -> tuple[str, ...]:
        """The clauses with that outcome."""
        return tuple(c for c, verdict in self.verdicts.items() if verdict.verdict is outcome)

    @property
    def undecided(self) -> Mapping[str, str]:
        """The clauses that are unknown for a reason of their own, and not only because of another
        clause, which is violated -> the reason."""
        unknown = {clause: self.verdicts[clause] for clause in self.of(Outcome.UNKNOWN)}
        return {clause: one.reason for clause, one in unknown.items() if not one.follows}

    @property
    def broken(self) -> tuple[str, ...]:
        """The violated clauses with at least one violation that is not known."""
        return tuple(c for c in self.of(Outcome.VIOLATED) if not self.verdicts[c].known)


def verdict_of(clause: Clause, tally: Tally, end: RunEnd, missed: Sequence[str]) -> Verdict:
    """The verdict for a tally; `missed` are the ids of faults without a receipt."""
    outcome, reason = _weigh(tally, end, missed)
    violations: tuple[Broken, ...] = ()
    if outcome is Outcome.VIOLATED:
        # Findings at the end of the run come last (`AT_END`).
        violations = tuple(broken for _, broken in sorted(tally.violations, key=_place))
        words = {broken.evidence for broken in violations}
    else:
        words = set(tally.exercised)
    return Verdict(
        verdict=outcome,
        exercised=sum(tally.exercised.values()),
        evidence=next((by for by in _STRENGTH if by in words), None),
        sentence=clause.says,
        reason=reason,
        violated=tally.violated if violations else 0,
        violations=violations,
        excused=tally.excused,
        excuses=tuple(_different(tally.excuses)),
        undecided=tuple(_different(tally.open)),
    )


def _follows(tally: Tally, verdicts: Mapping[str, Verdict]) -> str:
    """The violated clause that explains all that is undecided of another one; empty if none
    does."""
    # One clause has to explain everything that is undecided. An empty name among them is a finding
    # that nothing explains.
    explaining = {*tally.follow}
    clause = explaining.pop() if len(explaining) == 1 else ""
    known = verdicts.get(clause)
    return clause if known is not None and known.verdict is Outcome.VIOLATED else ""


def _excuses(tally: Tally) -> str:
    """What faults excused, in one sentence; empty if they excused nothing."""
    if not tally.excused:
        return ""
    return f"{tally.excused} excused: {_sentences(tally.excuses)}"


def _sentences(findings: Sequence[Excused | Undecided]) -> str:
    return "; ".join(one.message for one in _different(findings))


def _missed(missed: Sequence[str]) -> str:
    return f"without a receipt: {', '.join(missed)}"


def _until(end: RunEnd) -> str:
    """When a run that was cut short ended, in words; empty if it ended as planned."""
    if end.complete:
        return ""
    return f"until {span(end.ended_at_ns - end.began_at_ns)}, when the run was cut short"


def _weigh(tally: Tally, end: RunEnd, missed: Sequence[str]) -> tuple[Outcome, str]:
    # The order is that of the table in docs/explanation/judging.md; the first that is there
    # decides.
    #
    # A violation outweighs everything: what the events prove stays proven, whatever else is
    # missing. Found later than a link may have failed without a fault, it may be that link's doing.
    if tally.violated and tally.first_ns < end.doubtful_from_ns:
        return Outcome.VIOLATED, _excuses(tally)
    if tally.violated:
        return Outcome.UNKNOWN, (
            f"{tally.violated} violations were found since a link may have failed: {end.lacks}"
        )
    # From here on nothing was violated, and the question is whether enough was seen to say that it
    # held.
    if tally.crashed:
        return Outcome.UNKNOWN, tally.crashed
    # A run that was cut short has every event until then. A damaged history may lack any, in the
    # middle too: so only the first can show that a promise held for a time.
    cut_short = not (end.complete or end.damage)
    if tally.lacks or not (end.complete or cut_short):
        return Outcome.UNKNOWN, f"the history is not complete: {tally.lacks or end.lacks}"
    # Something waited for an event that never came, or could not be told.
    if tally.undecided:
        return Outcome.UNKNOWN, _sentences(tally.open)
    # A fault that missed may be what excused it: then nothing did. What was excused has a field of
    # its own: told here, the last lines of a soak became a page for each clause.
    if missed and tally.excused:
        return Outcome.UNKNOWN, _missed(missed)
    # Before the missed faults: a clause that was exercised has been tried, whatever some fault did
    # not do.
    if tally.exercised:
        return Outcome.HOLDS, "; ".join(filter(None, (_until(end), _excuses(tally))))
    if cut_short:
        return Outcome.UNKNOWN, f"the history is not complete: {end.lacks}"
    # Nothing exercised the clause, and a fault that was to do so may not have taken effect.
    if missed:
        return Outcome.UNKNOWN, _missed(missed)
    return Outcome.NOT_EXERCISED, _excuses(tally)


def conclude(
    judged: Iterable[str],
    clauses: Mapping[str, Clause],
    *,
    plane: str,
    tallies: Mapping[str, Tally],
    end: RunEnd,
    missed: Sequence[str],
    forfeited: Forfeited | None = None,
) -> Judgement:
    """The verdict of every judged clause; a clause without a tally had no event."""
    verdicts: dict[str, Verdict] = {}
    for clause_id in sorted(judged):
        clause = clauses[clause_id]
        if clause.binds(plane):
            verdicts[clause_id] = verdict_of(
                clause, tallies.get(clause_id, Tally()), end, missed
            )  # fmt: skip
        else:
            why = clause.unbound(plane) if clause.applies_on(plane) else ""
            verdicts[clause_id] = Verdict(Outcome.NOT_APPLICABLE, 0, None, clause.says, why)
    # A second pass, since a clause may follow from one that comes later in the alphabet.
    for clause_id, verdict in verdicts.items():
        tally = tallies.get(clause_id)
        if tally is not None and tally.undecided and verdict.verdict is Outcome.UNKNOWN:
            follows = _follows(tally, verdicts) if end.complete and not tally.crashed else ""
            verdicts[clause_id] = replace(verdict, follows=follows)
    return Judgement(verdicts, forfeited)


# ------------------------------------------------------------------------------------------ a file


def write_verdicts(path: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Writes verdicts.json, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(dict(verdicts))) + b"\n")


def _present(written: bytes) -> bytes:
    """verdicts.json with the present names of fields: `evidence` was `witness` at first."""
    if b'"witness"' not in written:
        return written
    found = decoded(written, dict[str, dict[str, Any]])
    for verdict in found.values():
        for one in (verdict, *verdict.get("violations", ())):
            if "witness" in one:
                one["evidence"] = one.pop("witness")
    return msgspec.json.encode(found)


def read_verdicts(path: Path) -> Mapping[str, Verdict]:
    """The verdicts that `write_verdicts` wrote; raises UsageError if there are none."""
    try:
        written = content(path.parent, path, MOST_VERDICTS_BYTES)
        return decoded(_present(written), dict[str, Verdict])
    except FileNotFoundError:
        raise UsageError(f"{path.parent} was not judged: it has no {path.name}") from None
    except msgspec.DecodeError as broken:
        raise UsageError(f"{path} cannot be read: {broken}") from broken
