"""Which loss of authority explains a failure, if any does.

What a rule names counts most: the events that prove a violation. Next comes a loss of what the
failure concerns, by a process that took part in it and had not got it back. Any other loss is a
coincidence until it is rarer than the time that passed. `NOTHING` is a candidate like any other,
and the first one if no loss is more likely.

A loss is one incident, however many events report it: the expired lease, the fenced broker's own
event, the committed record.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import final

from fencepost import OWN, Change, Event
from fencepost.reporting import changes_authority, has_concerns
from fencepost_reports.one_run.tables import AuthorityRow, CandidateRow, Effect

NAMED = "the rule names it"
ITSELF = "the rule names it, and the event that broke the promise reports it, too"
BROKE = "it is the event that broke the promise, and took the authority from another"
LOST = "a process that took part had lost this, and had not got it back"
REGAINED = "a process that took part had lost this before"
TOOK = "a process that took part had taken this from another"
CONCERNED = "the latest loss of what the failure concerns"
WIDE = "the latest loss that the cluster depends on"
NOTHING = "no loss of authority explains this"

CANDIDATES = 5
"""How many candidates of a failure are kept."""
_NAMED_SURE, _ITSELF_SURE, _BROKE_SURE, _LOST_SURE, _NOTHING_SURE = 0.95, 0.9, 0.8, 0.75, 0.5
_NO_OPERATION_SURE = 0.35
"""Of a client's operation: it fails by a loss of authority more often than a promise does."""
_BY_CHANCE: Mapping[str, tuple[float, float]] = {
    REGAINED: (0.25, 0.35),
    TOOK: (0.25, 0.4),
    CONCERNED: (0.1, 0.2),
    WIDE: (0.05, 0.1),
}
"""How sure a reason is at least, and what is added if such a loss is rare."""
_WORD = re.compile(r"[^\s,;:()\[\]]+")
_EFFECTIVE = (Effect.TAKES, Effect.GIVES, Effect.RENEWS)


@final
@dataclass(frozen=True, slots=True)
class Incident:
    """One loss of authority over a scope: the rows that report it, in order."""

    rows: tuple[AuthorityRow, ...]
    regained: bool
    """Whether the former holder had it again before the failure."""

    @property
    def first(self) -> AuthorityRow:
        """The row that reports it first."""
        return self.rows[0]


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """A failure: its event and position, the events that prove it, and what is said of it.

    `reads` are the kinds of event that its rules read; None for an operation of a client.
    """

    position: int
    event: Event
    because: tuple[Event, ...]
    says: str
    reads: frozenset[str] | None = None


@final
class Causes:
    """The changes of authority of one run, by scope, in order."""

    def __init__(
        self, rows: Iterable[AuthorityRow], nodes: Mapping[str, Sequence[str]], length_ns: int
    ) -> None:
        self._scopes: dict[str, list[AuthorityRow]] = {}
        self._families: dict[str, set[str]] = {}
        self._nodes = nodes
        self._wide: set[str] = set()
        losses: Counter[str] = Counter()
        for row in rows:
            if row.effect not in _EFFECTIVE or row.scope == OWN:
                continue
            changes = self._scopes.setdefault(row.scope, [])
            family = row.scope.partition(" ")[0]
            self._families.setdefault(row.kind, set()).add(family)
            if row.effect is Effect.TAKES and _begins(row, changes):
                losses[family] += 1
            changes.append(row)
            if row.wide:
                self._wide.add(row.scope)
        self._rates = {family: n / max(length_ns, 1) for family, n in losses.items()}

    def candidates(self, failed: Failed) -> tuple[CandidateRow, ...]:
        """What may explain the failure, the most likely first; `NOTHING` is among them."""
        parties = self._parties(failed)
        nothing_sure = _NOTHING_SURE if failed.reads is not None else _NO_OPERATION_SURE
        scopes = self._concerned(failed, parties)
        found: dict[tuple[str, int], CandidateRow] = {}
        for scope in sorted(scopes):
            for incident in self._incidents(scope, failed):
                made = self._candidate(incident, failed, parties)
                if made is not None:
                    found.setdefault((scope, made.position), made)
        nothing = CandidateRow(
            position=-1, type="", scope="", at_ns=-1, how=NOTHING, sure=nothing_sure, chance=0.0
        )
        ranked = sorted((*found.values(), nothing), key=lambda one: (-one.sure, -one.position))
        kept = ranked[:CANDIDATES]
        return tuple(kept if nothing in kept else [*kept[:-1], nothing])

    # ------------------------------------------------------------------- what the failure concerns

    def _parties(self, failed: Failed) -> frozenset[str]:
        """The processes that took part, and their nodes, in the words of a scope."""
        processes = {e.process for e in (failed.event, *failed.because) if e.process in self._nodes}
        for scope in _scopes(failed.event):
            kind, _, name = scope.partition(" ")
            if kind == "process" and name in self._nodes:
                processes.add(name)
        words = set(_WORD.findall(failed.says))
        processes |= words & self._nodes.keys()
        nodes = {node for process in processes for node in self._nodes[process]}
        if failed.reads is None:
            nodes |= self._holders(failed)
        nodes |= {
            node for known in self._nodes.values() for node in known if _in(node, failed.says)
        }
        return frozenset(processes | nodes)

    def _holders(self, failed: Failed) -> frozenset[str]:
        """The holders of what a client's operation asked for: no event names them."""
        held: set[str] = set()
        for scope in _scopes(failed.event):
            before = [r for r in self._scopes.get(scope, ()) if r.position < failed.position]
            gained = [r for r in before if r.change == Change.GAINED]
            held.update(name for r in gained[-1:] for name in (r.holder, r.node) if name)
        held |= {process for process, nodes in self._nodes.items() if held.intersection(nodes)}
        return frozenset(held)

    def _concerned(self, failed: Failed, parties: Collection[str]) -> frozenset[str]:
        """The scopes of which a loss may matter."""
        words = set(_WORD.findall(failed.says))
        named = {s for event in (failed.event, *failed.because) for s in _scopes(event)}
        concerned = named.union(parties, self._wide)
        families = None
        if failed.reads is not None:
            read = (self._families.get(kind, ()) for kind in failed.reads)
            families = {family for some in read for family in some}
        return frozenset(
            scope
            for scope in self._scopes
            if _in(scope, failed.says)
            or (
                (families is None or scope.partition(" ")[0] in families)
                and (scope in concerned or _name(scope) in words)
            )
        )

    # --------------------------------------------------------------------------------- incidents

    def _incidents(self, scope: str, failed: Failed) -> Iterable[Incident]:
        """The losses of a scope before the failure, the newest first, and the one that is it."""
        rows = self._scopes[scope]
        until = bisect_left(rows, failed.position, key=lambda row: row.position)
        while until < len(rows) and rows[until].position == failed.position:
            if rows[until].change == Change.LOST:
                break
            until += 1
        found: list[AuthorityRow] = []
        for number in range(until - 1, -1, -1):
            row = rows[number]
            if found and row.change == Change.GAINED:
                yield self._incident(found, rows, number + len(found), until)
                found = []
            if row.effect is Effect.TAKES:
                found.insert(0, row)
        if found:
            yield self._incident(found, rows, len(found) - 1, until)

    def _incident(
        self, found: Sequence[AuthorityRow], rows: Sequence[AuthorityRow], last: int, until: int
    ) -> Incident:
        former = found[0]
        regained = any(
            row.change == Change.GAINED and _same(row.holder, row.node, former)
            for row in rows[last + 1 : until]
        )
        return Incident(tuple(found), regained)

    def _candidate(
        self, incident: Incident, failed: Failed, parties: Collection[str]
    ) -> CandidateRow | None:
        """The incident with the best reason for it; None if there is none."""
        how = self._how(incident, failed, parties)
        row = incident.first
        passed_ns = max(failed.event.at_ns - incident.rows[-1].at_ns, 0)
        rate = self._rates.get(row.scope.partition(" ")[0], 0.0)
        chance = 1 - exp(-rate * passed_ns)
        fixed = {NAMED: _NAMED_SURE, ITSELF: _ITSELF_SURE, BROKE: _BROKE_SURE, LOST: _LOST_SURE}
        if how in fixed:
            sure = fixed[how]
        else:
            least, more = _BY_CHANCE[how]
            sure = least + more * (1 - chance)
        return CandidateRow(
            position=row.position,
            type=row.type,
            scope=row.scope,
            at_ns=row.at_ns,
            how=how,
            sure=round(sure, 3),
            chance=round(chance, 3),
        )

    def _how(self, incident: Incident, failed: Failed, parties: Collection[str]) -> str:
        refs = {(e.process, e.node_seq) for e in failed.because}
        if any((row.process, row.node_seq) in refs for row in incident.rows) or any(
            _reports(event, incident) for event in failed.because
        ):
            return ITSELF if _loses(failed.event, incident.first.scope) else NAMED
        if incident.rows[-1].position == failed.position or _reports(failed.event, incident):
            return BROKE
        former = incident.first
        if _party(former.former, former.former_node, parties, failed.says):
            return REGAINED if incident.regained else LOST
        taker = incident.rows[-1]
        if taker.change == Change.GAINED and _party(taker.holder, taker.node, parties, failed.says):
            return TOOK
        return WIDE if former.wide else CONCERNED


def _begins(row: AuthorityRow, changes: Sequence[AuthorityRow]) -> bool:
    """Whether a loss is not one that was reported already."""
    return not changes or changes[-1].change == Change.GAINED or row.change == Change.GAINED


def _reports(event: Event, incident: Incident) -> bool:
    """Whether an event tells of what the incident brought about: the same scope and epoch."""
    if not changes_authority(event.body):
        return False
    return any(
        (row.scope, row.epoch) == (one.scope, one.epoch) and one.epoch >= 0 and not one.matter
        for one in event.body.authority()
        if one.change is Change.GAINED
        for row in incident.rows
        if row.change == Change.GAINED
    )


def _same(process: str, node: str, row: AuthorityRow) -> bool:
    """Whether this is the former holder of the row."""
    if process and row.former:
        return process == row.former
    return bool(node) and node == row.former_node


def _party(process: str, node: str, parties: Collection[str], says: str) -> bool:
    """Whether a holder took part. Another process of its node did not, unless the node is named."""
    if process in parties or (node and _in(node, says)):
        return True
    return not process and node in parties


def _loses(event: Event, scope: str) -> bool:
    """Whether the event itself reports a loss of this scope."""
    if not changes_authority(event.body):
        return False
    return any(one.scope == scope and one.change is Change.LOST for one in event.body.authority())


def _scopes(event: Event) -> Sequence[str]:
    body = event.body
    found = [one.scope for one in body.authority()] if changes_authority(body) else []
    return [*found, *body.concerns()] if has_concerns(body) else found


def _name(scope: str) -> str:
    """The name of what a scope is about, if it is one by itself: `orders-0`, and not `2`."""
    name = scope.partition(" ")[2]
    return "" if name.isdigit() else name


def _in(scope: str, says: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(scope)}(?!\w)", says) is not None
