"""Which loss of authority explains a failure, if any does.

The problem. A run with faults has losses of authority all the time, so some loss precedes every
failure. A list of what came before would blame the nearest one. And a failure may have no such
cause at all: a defect is in code, and nothing was lost.

The unit is an incident: one loss over one scope, however many events report it (the expired lease,
the fenced broker's own event, the committed record), with the gain by which another holder
completed it.

Each incident gets the best reason that fits (`_how`), and a reason is worth a number: the share of
cases in which such a loss was the cause, by `./dev bench correlation` over runs with planted
defects. "No loss explains this" is a candidate like any other, with 0.5 (0.35 for the failure of a
client's operation). So a reason below that explains less than nothing does, and is listed only to
be seen. In this order:

* What the rule names: the events that prove a violation.
* A loss of what the failure concerns, by a process that took part and had not got it back.
* Where a rule names no event by which the run tells of authority, as one that judges any log by
  what clients say: the first time that the authority went to another after what proves the failure,
  and then the later ones. Such a rule can neither name a loss nor read of one.
* A loss that is only near in time. It is worth its share against the chance that such a loss lies
  as near without being the cause, by how often the run has losses of that family; and never more
  than a loss that somebody names.

What made the reasons below 0.5:

* A rule proves a violation by events that report nothing of the scope. The proof says what the
  violation depends on, so a loss of another scope is a coincidence (`UNPROVEN`).
* A process that starts anew loses its authority to nobody but its next process (`RESTARTED`).
* A controller takes a leadership from a broker that had been well since before it led. This
  election is the failure itself, and not its cause (`DECIDED`). A leader that gives its leadership
  up, well as it is, lost nothing either (`GAVE_UP`); but a client finds no leader then, so it
  counts for clients. Nor did a member that is only listed, if a decision took it.
* The event that broke the promise happens to report a loss of processes that took no part
  (`ASIDE`).
* A failure is about what stands alone in it. What a member that is only listed had lost and got
  back is as near as any other loss; and so is what the one had lost to which the event that broke
  the promise gives something.

A later change of the ISR in the same epoch repeats the leadership. It was taken for the election
that broke the promise, until `_reports` asked for a kind that had not reported it yet.

What is not done. A loss over a scope of which the rules of the clause read nothing is no candidate,
unless the failure states the scope, or they read of no authority at all: a consumer's rule reads
nothing of leases. Or a process went on after another process of its node had taken the node's
authority (`SUPERSEDED`): where one id runs twice, promises break by that of whatever family. No
sentence is read, and nearness in time alone proves nothing.

See docs/decisions/35-causes.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp
from typing import final

from fencepost import OWN, Change, Event, Facts, ProcessExited, Scope, slot_of
from fencepost.reporting import (
    AuthorityRow,
    Move,
    changes_authority,
    has_concerns,
    scopes_of,
)
from fencepost_reports.one_run.history import Placed
from fencepost_reports.one_run.tables import CandidateRow

NAMED = "the rule names it"
ITSELF = "the rule names it, and the event that broke the promise reports it, too"
BROKE = "it is the event that broke the promise, and took the authority from another"
LOST = "a process that took part had lost this, and had not got it back"
REGAINED = "a process that took part had lost this before"
TOOK = "a process that took part had taken this from another"
CONCERNED = "the latest loss of what the failure concerns"
WIDE = "the latest loss that the cluster depends on"
SUPERSEDED = "another process of its node had taken this, and a process went on all the same"
ASIDE = "the event that broke the promise also reports this, of processes that took no part"
DECIDED = "it is the event that broke the promise: its former holder had lost nothing before"
GAVE_UP = "it was given up, or taken by a decision: its holder had lost nothing before"
BETWEEN = "what the proof shows came before this, and its rule reads of no authority"
BEFORE = "it came shortly before what the proof shows: the former holder may have acted on"
LATER = "it came after what the proof shows, too: of several losses, any may be the cause"
UNPROVEN = "the rule proves the failure by other events, which report nothing of this"
RESTARTED = "a process started anew and had it again, and the new one failed"
NOTHING = "no loss of authority explains this"
UNSEEN = "no event of this run gives authority to a process or takes it, so none can explain this"
"""Where the events of a system only note changes (`Change.NOTED`), or have no authority at all."""

CANDIDATES = 5
"""How many candidates of a failure are kept. `NOTHING` is always among them."""
_SURE: Mapping[str, float] = {
    SUPERSEDED: 0.96,
    NAMED: 0.95,
    ITSELF: 0.9,
    BROKE: 0.8,
    LOST: 0.75,
    BETWEEN: 0.6,
    LATER: 0.55,
    BEFORE: 0.52,
    DECIDED: 0.3,
    GAVE_UP: 0.3,
    UNPROVEN: 0.25,
    RESTARTED: 0.2,
    ASIDE: 0.1,
}
"""How sure a reason is that does not depend on time. `BETWEEN`, `LATER` and `BEFORE` are estimates
from runs of Redis: the rules that find planted defects read of authority. Below
`_NOTHING_SURE` a reason explains less than nothing does."""
_CAUSES: Mapping[str, float] = {REGAINED: 0.2, TOOK: 0.2, CONCERNED: 0.05, WIDE: 0.02}
"""How often a loss with this reason is the cause. It is weighed against the chance that such a loss
lies as near to the failure without being its cause."""
_NEAR_SURE = 0.7
"""The most that a loss counts that is only near in time."""
_NOTHING_SURE = 0.5
"""How sure it is that no loss explains a failure: what is less sure comes after that."""
_NO_OPERATION_SURE = 0.35
"""Of a client's operation: it fails by a loss of authority more often than a promise does."""
_UNAWARE_NS = 15_000_000_000
"""How long a holder may act on that does not know that it is deposed."""
_EFFECTIVE = (Move.TAKES, Move.GIVES, Move.RENEWS)


@final
@dataclass(frozen=True, slots=True)
class Incident:
    """One loss of authority over a scope: the rows that report it, in order."""

    rows: tuple[AuthorityRow, ...]
    regained: bool
    """Whether the former holder had it again before the failure: then the loss explains less."""
    ended: int = -1
    """The position of the gain by which its former holder's node had it again, if that was next."""

    @property
    def first(self) -> AuthorityRow:
        """The row that reports it first."""
        return self.rows[0]

    @property
    def by_itself(self) -> bool:
        """Whether the former holder's own node took it, in a new epoch: its process had started
        anew."""
        node = self.first.former_node
        return bool(node) and any(
            row.node == node and row.epoch > row.was >= 0 for row in self.rows
        )

    def gained_in(self, epoch: int) -> bool:
        """Whether another node gained the authority by it, in this epoch."""
        last = self.rows[-1]
        return last.change == Change.GAINED and last.epoch == epoch and not self.by_itself

    def is_new_term(self, epoch: int) -> bool:
        """Whether what the cluster depends on was gained by it in this epoch, though by a process
        of the same node: such a process knows nothing of the former term."""
        last = self.rows[-1]
        return last.wide and (last.change, last.epoch) == (Change.GAINED, epoch)

    def outlived(self, epoch: int, failed: Failed) -> bool:
        """Whether the former holder's node gained it anew by it, in this epoch, and the failure
        states the former epoch, too."""
        gained = any(row.change == Change.GAINED and row.epoch == epoch for row in self.rows)
        return self.by_itself and gained and self.first.was in failed.numbers


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """A failure: its time, the changes of authority that count, and the facts of it.

    Those before the `position` count. A time without a success has no `event`; it lies at its
    beginning, and changes until its end count. `because` are the events that prove a violation, and
    `reads` the kinds of event that its rules read; None for what no rule has judged. `unread` are
    the kinds by which the run tells of authority, if its rules read none of them.
    """

    position: int
    at_ns: int
    facts: Facts
    event: Event | None = None
    because: tuple[Placed, ...] = ()
    reads: frozenset[str] | None = None
    unread: frozenset[str] = frozenset()

    @property
    def events(self) -> Sequence[Event]:
        """Its event, and those that prove it."""
        own = () if self.event is None else (self.event,)
        return (*own, *(event for _, event in self.because))

    @property
    def scopes(self) -> Collection[str]:
        """What its own event is about."""
        return () if self.event is None else _scopes(self.event)

    @property
    def stated(self) -> frozenset[str]:
        """The scopes that it states and that only their kind tells apart, such as `broker 2`, in
        the words of events."""
        scopes = scopes_of(self.facts)
        return frozenset(one.words for one in scopes if one.name.isdigit() or not one.name)

    @property
    def alone(self) -> frozenset[str]:
        """Those of its facts that stand by themselves, and not in a list."""
        return frozenset(one.words for one in self.facts.values() if isinstance(one, Scope))

    @property
    def names(self) -> frozenset[str]:
        """The names of the others, such as `orders-0`: more than one kind of scope may be of it.
        An operation's subject is such a name."""
        subject = self.facts.get("subject")
        known = {one.name for one in scopes_of(self.facts) if not one.name.isdigit()}
        return frozenset(known | ({subject} if isinstance(subject, str) else set()))

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers that it states, such as epochs."""
        return frozenset(one for one in self.facts.values() if type(one) is int)

    def loses(self, scope: str) -> bool:
        """Whether its own event reports a loss of the scope."""
        return self.event is not None and _loses(self.event, scope)

    def proves_without(self, incident: Incident) -> bool:
        """Whether it has a proof that reports nothing of the scope. A loss that was not made good
        also counts if the failure states the scope."""
        scope = incident.first.scope
        known = {OWN, scope}
        named = (s for _, event in self.because for s in _changed(event))
        if not self.because or not known.isdisjoint(named):
            return False
        return incident.regained or scope not in self.stated

    def begins_with(self, incident: Incident) -> bool:
        """Whether its proof names the gain by which the authority was made good. Then it is about
        what began with that, and what was lost before lies before all that it is about."""
        return any(
            one.change is Change.GAINED and one.scope == row.scope and one.epoch == row.epoch >= 0
            for _, event in self.because
            if changes_authority(event.body)
            for one in event.body.authority()
            for row in incident.rows
            if row.change == Change.GAINED
        )

    def follows(self, incident: Incident) -> bool:
        """Whether its proof begins before another took the authority, where its rules read of
        none."""
        return self._turned(incident) and self._began[0] < incident.first.position

    def shortly_follows(self, incident: Incident) -> bool:
        """Whether its proof begins shortly after that."""
        position, at_ns = self._began
        last = incident.rows[-1]
        return (
            self._turned(incident)
            and incident.first.position < position
            and at_ns - last.at_ns <= _UNAWARE_NS
        )

    def begins_before(self, position: int) -> bool:
        """Whether its proof begins before that position."""
        return self._began[0] < position

    def is_about(self, scope: str) -> bool:
        """Whether it names the scope, or its own event is about it."""
        return scope in self.stated or _name(scope) in self.names or scope in self.scopes

    def ends_holder_of(self, incident: Incident) -> bool:
        """Whether a process ended by itself, and had given up by its own word what nobody took."""
        body = None if self.event is None else self.event.body
        first, last = incident.first, incident.rows[-1]
        return (
            isinstance(body, ProcessExited)
            and first.process == first.former == body.ended
            and last.change == Change.LOST
        )

    def _turned(self, incident: Incident) -> bool:
        """Whether another took the authority by it, of which the rules read nothing."""
        return {row.kind for row in incident.rows} <= self.unread and not incident.by_itself

    @property
    def _began(self) -> tuple[int, int]:
        """The position and the time of the first event of its proof."""
        proof = ((position, event.at_ns) for position, event in self.because)
        return min(proof, default=(self.position, self.at_ns))

    def reports(self, incident: Incident) -> bool:
        """Whether its own event reports what the incident brought about."""
        if self.event is None:
            return False
        # A node's own registration makes good what it lost; an election is by others.
        elected = incident.first.former_node != incident.first.scope
        return (
            incident.rows[-1].position == self.position
            or (elected and incident.ended == self.position)
            or _reports(self.event, incident)
        )


@final
class Causes:
    """The changes of authority of one run, by scope, in order."""

    def __init__(
        self, rows: Iterable[AuthorityRow], nodes: Mapping[str, Sequence[str]], length_ns: int
    ) -> None:
        self._scopes: dict[str, list[AuthorityRow]] = {}
        """scope -> its changes, in order. Refusals and notes are left out: they give and take
        nothing."""
        self._families: dict[str, set[str]] = {}
        """kind of event -> the families of scopes (`broker` of `broker 2`) that it changes: by it,
        what a rule reads becomes the scopes that may matter to it."""
        self.nodes = nodes
        """process -> its node in the words of a scope; more than one if it has several roles."""
        self._gained: dict[str, dict[str, list[int]]] = {}
        """process -> scope -> where it says itself that it gained that."""
        self._wide: set[str] = set()
        """The scopes on which the whole cluster depends. They concern each failure, if its rules
        read events of their family."""
        losses: Counter[str] = Counter()
        for row in rows:
            if row.effect not in _EFFECTIVE or row.scope == OWN:
                continue
            changes = self._scopes.setdefault(row.scope, [])
            family = row.scope.partition(" ")[0]
            self._families.setdefault(row.kind, set()).add(family)
            if row.effect is Move.TAKES and _begins(row, changes):
                losses[family] += 1
            changes.append(row)
            if row.change == Change.GAINED:
                own = self._gained.setdefault(row.process, {})
                own.setdefault(row.scope, []).append(row.position)
            if row.wide:
                self._wide.add(row.scope)
        # Incidents of a family in a nanosecond. Only the first report of each counts: what ten
        # nodes report was lost once.
        self._rates = {family: n / max(length_ns, 1) for family, n in losses.items()}

    def position(self, at_ns: int) -> int:
        """The position after all changes up to a time."""
        known = (
            row.position for rows in self._scopes.values() for row in rows if row.at_ns <= at_ns
        )
        return max(known, default=-1) + 1

    def candidates(self, failed: Failed) -> tuple[CandidateRow, ...]:
        """What may explain the failure, the most likely first; `NOTHING` is among them."""
        parties = self._parties(failed)
        nothing_sure = _NOTHING_SURE if failed.reads is not None else _NO_OPERATION_SURE
        scopes = self._concerned(failed, parties)
        found: dict[tuple[str, int], CandidateRow] = {}
        going_on: set[int] = set()
        for scope in sorted(scopes):
            incidents = list(self._incidents(scope, failed))
            named = _named(scope, incidents, failed, parties)
            after = [i for i in incidents if failed.follows(i) and self._moves(i, failed, parties)]
            # The first of them: whoever had it when the proof began lost it then. A process that
            # took part may lose it again later; what the proof shows was lost the first time.
            first = [i for i in after if _loses_it(i, failed, parties)][-1:] or after[-1:]
            before = [i for i in incidents if failed.shortly_follows(i)][:1]
            for incident in incidents:
                why = NAMED if incident in named else ""
                if incident in after and not why:
                    why = BETWEEN if incident in first else LATER
                elif incident in before and not why:
                    why = BEFORE
                made = self._candidate(incident, failed, parties, why)
                found.setdefault((scope, made.position), made)
                if self._gets(incident.first, failed, Move.RENEWS):
                    going_on.add(made.position)
        how = NOTHING if self._scopes else UNSEEN
        nothing = CandidateRow(
            position=-1, type="", scope="", at_ns=-1, how=how, sure=nothing_sure, chance=0.0
        )
        ranked = sorted((*found.values(), nothing), key=partial(_rank, going_on))
        kept = ranked[:CANDIDATES]
        return tuple(kept if nothing in kept else [*kept[:-1], nothing])

    # ------------------------------------------------------------------- what the failure concerns

    def _parties(self, failed: Failed) -> frozenset[str]:
        """The processes that took part, and their nodes, in the words of a scope."""
        processes = {e.process for e in failed.events if e.process in self.nodes}
        for scope in failed.scopes:
            kind, _, name = scope.partition(" ")
            if kind == "process" and name in self.nodes:
                processes.add(name)
        # By its own name, or by its slot: a server of which only clients report.
        processes |= {one for one in self.nodes if {one, slot_of(one)} & failed.names}
        nodes = {node for process in processes for node in self.nodes[process]}
        if failed.reads is None:
            nodes |= self._holders(failed)
        nodes |= failed.stated.intersection(node for known in self.nodes.values() for node in known)
        return frozenset(processes | nodes)

    def _holders(self, failed: Failed) -> frozenset[str]:
        """The holders of what clients asked for: no event names them."""
        held: set[str] = set()
        about = {scope for scope in self._scopes if _name(scope) in failed.names}
        for scope in about.union(failed.scopes):
            gained = [
                row
                for row in self._scopes.get(scope, ())
                if row.change == Change.GAINED
                and (row.position < failed.position if failed.event else row.at_ns <= failed.at_ns)
            ]
            held.update(name for r in gained[-1:] for name in (r.holder, r.node) if name)
        held |= {process for process, nodes in self.nodes.items() if held.intersection(nodes)}
        return frozenset(held)

    def _concerned(self, failed: Failed, parties: Collection[str]) -> frozenset[str]:
        """The scopes of which a loss may matter."""
        stated, names = failed.stated, failed.names
        named = {s for event in failed.events for s in _scopes(event)}
        superseded = self._superseded_nodes(failed, parties)
        concerned = named.union(parties, self._wide)
        families = None
        if failed.reads is not None:
            read = (self._families.get(kind, ()) for kind in failed.reads | failed.unread)
            families = {family for some in read for family in some}
        return frozenset(
            scope
            for scope in self._scopes
            if scope in stated
            or scope in superseded
            or (
                (families is None or scope.partition(" ")[0] in families)
                and (scope in concerned or _name(scope) in names)
            )
        )

    # --------------------------------------------------------------------------------- incidents

    def _incidents(self, scope: str, failed: Failed) -> Iterable[Incident]:
        """The losses of a scope before the failure, the newest first, and the one that is it.

        An incident ends with the gain of the next holder, so an earlier gain begins another one. Of
        what the failure's own event reports, the gains count, since they may have taken something;
        what it loses is its consequence, and no cause.
        """
        rows = self._scopes[scope]
        until = bisect_left(rows, failed.position, key=lambda row: row.position)
        while failed.event and until < len(rows) and rows[until].position == failed.position:
            if rows[until].change == Change.LOST:
                break
            until += 1
        found: list[AuthorityRow] = []
        last = until - 1
        for number in range(until - 1, -1, -1):
            row = rows[number]
            if found and _told_before(row, found[0]):
                continue
            if found and row.change == Change.GAINED:
                yield self._incident(found, rows, last, until)
                found = []
            if row.effect is Move.TAKES:
                last = last if found else number
                found.insert(0, row)
        if found:
            yield self._incident(found, rows, last, until)

    def _incident(
        self, found: Sequence[AuthorityRow], rows: Sequence[AuthorityRow], last: int, until: int
    ) -> Incident:
        former = found[0]
        regained = any(
            row.change == Change.GAINED and _same(row.holder, row.node, former)
            for row in rows[last + 1 : until]
        )
        after = rows[last + 1] if last + 1 < until else None
        ended = after is not None and after.change == Change.GAINED != found[-1].change
        return Incident(tuple(found), regained, after.position if after and ended else -1)

    def _candidate(
        self, incident: Incident, failed: Failed, parties: Collection[str], why: str
    ) -> CandidateRow:
        """The incident with the best reason for it; `why` is the one that the proof gives."""
        how = self._how(incident, failed, parties, why)
        row = incident.first
        passed_ns = abs(failed.at_ns - incident.rows[-1].at_ns)
        rate = self._rates.get(row.scope.partition(" ")[0], 0.0)
        chance = 1 - exp(-rate * passed_ns)
        if how in _CAUSES:
            sure = min(_NEAR_SURE, _CAUSES[how] / (_CAUSES[how] + chance))
        else:
            sure = _SURE[how]
        return CandidateRow(
            position=row.position,
            type=row.type,
            scope=row.scope,
            at_ns=row.at_ns,
            how=how,
            sure=round(sure, 3),
            chance=round(chance, 3),
        )

    def _how(self, incident: Incident, failed: Failed, parties: Collection[str], why: str) -> str:
        if self._goes_on(incident, failed):
            return SUPERSEDED
        if why == NAMED:
            return ITSELF if failed.loses(incident.first.scope) else NAMED
        former, taker = incident.first, incident.rows[-1]
        lost = _loses_it(incident, failed, parties)
        took = (
            taker.change == Change.GAINED
            and not incident.by_itself
            and _party(taker.holder, taker.node, parties, failed.stated)
        )
        broke = failed.reports(incident)
        matters = self._others(parties, former) if incident.by_itself else lost or took
        if broke and matters:
            return DECIDED if self._handed_over(incident, failed) else BROKE
        if incident.by_itself and (broke or failed.begins_with(incident)):
            return RESTARTED
        if broke and not lost:
            return ASIDE
        if why == LATER or (why and not (lost and not incident.regained)):
            return why
        # Clients, disks and the harness report no authority: where they alone prove a failure, that
        # says nothing of what it depends on. Who took it had nothing to lose, so that stays weak.
        outside = all(event.process not in self.nodes for _, event in failed.because)
        if failed.proves_without(incident) and (took or not outside):
            return UNPROVEN
        if failed.ends_holder_of(incident):
            return GAVE_UP
        listed = lost and self._is_listed(former.former, former.former_node, failed, parties)
        if (listed or self._given_up(incident, failed)) and self._handed_over(incident, failed):
            return GAVE_UP
        # A node of which no process is named has it again with its next process.
        had_again = incident.regained or (incident.by_itself and former.former not in parties)
        # What such a member had lost of its own explains what it lacks; not what it led once.
        if lost and not had_again and (not listed or former.scope == former.former_node):
            return LOST
        if lost and not listed and not self._is_taker(former, failed):
            return REGAINED
        if took and not self._is_listed(taker.holder, taker.node, failed, parties):
            return TOOK
        if incident.by_itself:
            return RESTARTED
        return WIDE if former.wide else CONCERNED

    def _goes_on(self, incident: Incident, failed: Failed) -> bool:
        """Whether another process of a node took its authority, and the former one went on: by its
        own word it has gained since what the failure is about."""
        first, last = incident.first, incident.rows[-1]
        if first.scope != first.former_node or last.change != Change.GAINED:
            return False
        if not first.former or last.holder in ("", first.former) or last.node != first.scope:
            return False
        return any(
            bisect_right(gained, last.position) < bisect_right(gained, failed.position)
            for scope, gained in self._gained.get(first.former, {}).items()
            if scope != first.scope and failed.is_about(scope)
        )

    def _superseded_nodes(self, failed: Failed, parties: Collection[str]) -> frozenset[str]:
        """The nodes that took part, and of which a former process went on."""
        processes = Counter(node for nodes in self.nodes.values() for node in nodes)
        return frozenset(
            node
            for node in parties
            if processes[node] > 1 and node in self._scopes
            if any(self._goes_on(one, failed) for one in self._incidents(node, failed))
        )

    def _moves(self, incident: Incident, failed: Failed, parties: Collection[str]) -> bool:
        """Whether the authority moved then. Of what a process that took part has gained, a third
        party tells late: if by its own word it has gained that after the proof, it did move."""
        if not _takes(incident, failed, parties):
            return True
        last = incident.rows[-1]
        own = (
            row.position
            for row in self._scopes[last.scope]
            if (row.change, row.epoch) == (Change.GAINED, last.epoch)
            and last.node in self.nodes.get(row.process, ())
        )
        return failed.begins_before(next(own, -1))

    def _is_listed(self, process: str, node: str, failed: Failed, parties: Collection[str]) -> bool:
        """Whether a holder took part by nothing but a list of members: that is the background of a
        failure, which is about what stands alone in it."""
        acting = {of for name in parties for of in self.nodes.get(name, ())}
        listed = failed.stated - failed.alone - acting
        return process not in parties and node in listed

    def _is_taker(self, former: AuthorityRow, failed: Failed) -> bool:
        """Whether the failure's own event gives the former holder something that another had: what
        matters then is how that one lost it."""
        return self._gets(former, failed, Move.TAKES)

    def _gets(self, former: AuthorityRow, failed: Failed, how: Move) -> bool:
        """Whether the former holder gains something else by the failure's own event, so."""
        own = () if failed.event is None else _changed(failed.event)
        return any(
            row.position == failed.position
            and (row.change, row.effect) == (Change.GAINED, how)
            and _same(row.holder, row.node, former)
            for scope in own
            if scope != former.scope
            for row in self._scopes.get(scope, ())
        )

    def _given_up(self, incident: Incident, failed: Failed) -> bool:
        """Whether a promise was broken, and the former holder itself reports the loss first: no
        other had taken it by then. A scope that the whole cluster depends on is not given up. A
        client's operation may fail because a leadership is given up."""
        first = incident.first
        if failed.reads is None or first.wide or first.change != Change.LOST:
            return False
        if first.former:
            return first.process == first.former
        return first.former_node in self.nodes.get(first.process, ())

    def _handed_over(self, incident: Incident, failed: Failed) -> bool:
        """Whether the former holder's node had held its own authority from before it got this, and
        still held it: then it was taken by a decision alone, and no loss led to that."""
        first = incident.first
        if not first.former_node or first.former_node == first.scope:
            return False
        gains = [
            row.position
            for row in self._scopes[first.scope]
            if row.change == Change.GAINED
            and row.position < first.position
            and _same(row.holder, row.node, first)
        ]
        own = [
            row for row in self._scopes.get(first.former_node, ()) if row.position < failed.position
        ]
        if not gains:
            return False
        before = [row for row in own if row.position < gains[-1]]
        held = bool(before) and before[-1].change == Change.GAINED
        # A gain of its node's next process takes it, too.
        return held and all(row.effect is not Move.TAKES for row in own[len(before) :])

    def _others(self, parties: Collection[str], former: AuthorityRow) -> bool:
        """Whether processes of other nodes took part, which should have noticed the loss."""
        return any(
            former.former_node not in self.nodes[name] for name in parties if name in self.nodes
        )


def _rank(going_on: Collection[int], one: CandidateRow) -> tuple[float, bool, int]:
    """The surest first. Of these, what a holder had lost that goes on by the failure's own event
    comes last. Then the newest first; but of what was lost after the proof the first."""
    newest = one.position if one.how == BETWEEN else -one.position
    return -one.sure, one.position in going_on, newest


def _loses_it(incident: Incident, failed: Failed, parties: Collection[str]) -> bool:
    """Whether a process that took part lost it by that."""
    first = incident.first
    return _party(first.former, first.former_node, parties, failed.stated)


def _takes(incident: Incident, failed: Failed, parties: Collection[str]) -> bool:
    """Whether a process that took part has gained by it: a third party tells of that late."""
    last = incident.rows[-1]
    return last.change == Change.GAINED and _party(last.holder, last.node, parties, failed.stated)


def _named(
    scope: str, incidents: Sequence[Incident], failed: Failed, parties: Collection[str]
) -> Collection[Incident]:
    """The losses of a scope that the proof of a failure names, given the newest first.

    An event that reports a loss names it. One that reports a gain names the loss by which another
    holder gained it. If that holder took part, and lost it again before the failure, it names this
    loss instead: then the gain says until when the holder had a right.
    """
    found: list[Incident] = []
    for position, event in failed.because:
        if not changes_authority(event.body):
            continue
        for one in event.body.authority():
            if one.scope != scope:
                continue
            before = [i for i in incidents if i.first.position <= position][:1]
            after = [i for i in incidents if i.first.position > position][-1:]
            holder = event.process if one.holder == "" else one.holder or ""
            if one.change is Change.LOST:
                found += [i for i in before if not (i.by_itself and one.epoch > i.first.was)]
            elif one.change is Change.GAINED:
                party = _party(holder, one.node, parties, failed.stated)
                if after and party and not failed.loses(scope):
                    found += after
                else:
                    found += [
                        i
                        for i in before
                        if i.gained_in(one.epoch)
                        or i.outlived(one.epoch, failed)
                        or (i.is_new_term(one.epoch) and failed.begins_before(i.first.position))
                    ]
    return found


def _told_before(row: AuthorityRow, gain: AuthorityRow) -> bool:
    """Whether a row is a third party's word of a gain of which the holder's process tells later,
    perhaps without an epoch. It knows the node alone, which had the authority by the process
    before: so it took nothing."""
    both = row.change == gain.change == Change.GAINED and row.effect is not Move.TAKES
    return both and not row.holder and row.node == gain.node and gain.epoch in (-1, row.epoch)


def _begins(row: AuthorityRow, changes: Sequence[AuthorityRow]) -> bool:
    """Whether a loss is not one that was reported already."""
    return not changes or changes[-1].change == Change.GAINED or row.change == Change.GAINED


def _reports(event: Event, incident: Incident) -> bool:
    """Whether an event reports what the incident brought about: the same scope, epoch and holder.
    An event of the kind that has reported it already repeats it, for another matter; one that
    names another node contradicts it."""
    if not changes_authority(event.body) or event.kind in {row.kind for row in incident.rows}:
        return False
    return any(
        (row.scope, row.epoch) == (one.scope, one.epoch) and one.epoch >= 0 and not one.matter
        for one in event.body.authority()
        if one.change is Change.GAINED
        for row in incident.rows
        if row.change == Change.GAINED and not (one.node and row.node and one.node != row.node)
    )


def _same(process: str, node: str, row: AuthorityRow) -> bool:
    """Whether this is the former holder of the row."""
    if process and row.former:
        return process == row.former
    return bool(node) and node == row.former_node


def _party(process: str, node: str, parties: Collection[str], stated: Collection[str]) -> bool:
    """Whether a holder took part. Another process of its node did not, unless the node is
    stated."""
    if process in parties or node in stated:
        return True
    return not process and node in parties


def _loses(event: Event, scope: str) -> bool:
    """Whether the event itself reports a loss of this scope."""
    if not changes_authority(event.body):
        return False
    return any(one.scope == scope and one.change is Change.LOST for one in event.body.authority())


def _changed(event: Event) -> Sequence[str]:
    """The scopes of which an event reports a change of authority."""
    body = event.body
    return [one.scope for one in body.authority()] if changes_authority(body) else []


def _scopes(event: Event) -> Sequence[str]:
    found = _changed(event)
    return [*found, *event.body.concerns()] if has_concerns(event.body) else found


def _name(scope: str) -> str:
    """The name of what a scope is about, if it is one by itself: `orders-0`, and not `2`."""
    name = scope.partition(" ")[2]
    return "" if name.isdigit() else name
