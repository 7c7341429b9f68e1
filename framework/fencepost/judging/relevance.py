"""Which events an explanation shows: those that bear on what a violation is about.

What a violation is about is a set of scopes of authority and slots (`Subjects`): those that it
states as facts, those that its events concern, and the nodes that hold authority over them.

A fault bears on it if it acts still, if it struck a process of its slots, or if it has to do with
a turn of the authority: between the first event that proves the violation and the violation,
something that it is about went to another holder, perhaps several times. A loss takes two things:
the holder was deposed, and a later one lacks what the first one had. So a fault bears on it if it
acted upon the holder before a turn as that came (it *moved* the authority), or if it kept a later
holder from the first one while what is lost was written (it made that one *lack* it). A message
that is missed only when all is read at the end is explained by the cut that deposed its leader, by
the pause of the one that led later, and not by what struck last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import final

from msgspec.structs import replace

from fencepost.events import (
    Effect,
    Event,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessResumed,
    began_ns,
)
from fencepost.events.names import is_client, slot_of
from fencepost.events.traits import (
    OWN,
    Authority,
    Change,
    changes_authority,
    has_concerns,
    shared_record,
)
from fencepost.judging.about import Facts, Scope
from fencepost.judging.excuses import Excuse, Excuses

Ref = tuple[str, int]
LINES = 12
"""The most lines of an explanation: a clause, its sentence, the violation and what led to it."""
STEPS = LINES - 3
_PROCESS = "process "
_SLOT = "slot "
_FIRST = "#1"
"""How the first process of a slot ends: that it began explains nothing."""


@final
@dataclass(frozen=True, slots=True)
class Subjects:
    """Scopes of authority, and `slot NAME`, that bear on a violation.

    `own`: the scopes that the violation is about. `holders`: the nodes that hold authority over
    these scopes. Of a holder only a loss matters: a node that loses its own authority also loses
    its authority over what it leads.
    """

    own: frozenset[str]
    holders: frozenset[str]

    @property
    def has_slots(self) -> bool:
        """Whether it is known of which slots it is, or who holds authority over it."""
        return any(one.startswith(_SLOT) for one in self.own | self.holders)

    def of_slot(self, process: str) -> bool:
        """Whether it is about the slot of a process."""
        return _SLOT + slot_of(process) in self.own

    def affected(self, process: str) -> bool:
        """Whether an event that ends or hinders a process bears on the violation."""
        return self.of_slot(process) or _SLOT + slot_of(process) in self.holders


def subjects_of(
    offending: Event,
    because: Sequence[Event],
    before: Sequence[Event],
    nodes: Mapping[str, str],
    facts: Facts,
) -> Subjects:
    """What a violation with these facts is about. `before` are the events that may be shown;
    `nodes` maps the process of a node to the scope of its own id, empty if it has given none. A
    fact that lists several scopes is the background: of all members that lack something, say,
    the violation is about the one that stands by itself."""
    # A process is no scope of authority. It is a way to a slot and to a node's own scope, below.
    stated = [one.words for one in facts.values() if isinstance(one, Scope)]
    own = {scope for scope in stated if not scope.startswith(_PROCESS)}
    processes = {*_named_processes(stated)}
    # The proof's events as well: a client that observed a failure is not the node that failed, and
    # the node's own event may be among them.
    for event in (offending, *because):
        concerned = list(_scopes(event))
        processes.update((event.process, *_named_processes(concerned)))
        own.update(scope for scope in concerned if not scope.startswith(_PROCESS))
    # A node of which only a client reports wrote no event of the proof.
    processes |= {process for process in nodes if _is_stated(process, nodes[process], facts)}
    # Clients have no slot of their own to be about.
    for process in processes & nodes.keys():
        own.update({_SLOT + slot_of(process), nodes[process]} - {""})
    holders: set[str] = set()
    for process, node in _holders(own, before):
        holders.add(node or nodes.get(process, ""))
        holders.add(_SLOT + slot_of(process) if process else "")
    # What it is about itself is no mere holder: of its own scopes every change matters, and of a
    # holder's only a loss.
    return Subjects(frozenset(own), frozenset(holders - own - {""}))


def _is_stated(process: str, node: str, facts: Facts) -> bool:
    """Whether a fact names a process of a node: by the node's own scope (`redis 3`), or by its
    slot, whatever kind that is given (`server redis-3`)."""
    return any(
        isinstance(one, Scope) and (one.words == node or one.name == slot_of(process))
        for one in facts.values()
    )


def _holders(scopes: Iterable[str], before: Sequence[Event]) -> Iterable[tuple[str, str]]:
    """The newest holder of each scope, as a process, a node or both, where an event names one."""
    wanted = set(scopes)
    # From the newest back, until every scope has its holder.
    for event in reversed(before):
        if wanted and changes_authority(event.body):
            for one in event.body.authority():
                named = bool(one.node) or one.holder is not None
                if one.scope in wanted and one.change is Change.GAINED and named:
                    wanted.discard(one.scope)
                    yield (event.process if one.holder == "" else one.holder or ""), one.node


def _scopes(event: Event) -> Iterable[str]:
    body = event.body
    if changes_authority(body):
        yield from (one.scope for one in body.authority())
    if has_concerns(body):
        yield from body.concerns()


def _named_processes(scopes: Iterable[str]) -> Sequence[str]:
    return [scope.removeprefix(_PROCESS) for scope in scopes if scope.startswith(_PROCESS)]


def _concerns(event: Event, subjects: Subjects) -> bool:
    """Whether an event of authority is about the subject of the violation."""
    body = event.body
    if isinstance(body, FaultInjected):
        # A fault names processes or slots; `affected` asks for the slot of either.
        near = any(subjects.affected(target) for target in body.targets)
        return near or not subjects.has_slots
    if isinstance(body, ProcessExited):
        return subjects.affected(body.ended)
    if isinstance(body, ProcessResumed):
        return subjects.affected(body.resumed)
    if isinstance(body, NodeStarted):
        # A restart of its own slot: what the process before it had not stored is gone.
        return subjects.of_slot(event.process) and not event.process.endswith(_FIRST)
    if not changes_authority(body):
        return False
    return any(
        # Three ways to bear on it: what the whole cluster depends on; its own scopes; and of those
        # that held authority over these, what they lost. A node's own state (`OWN`) counts for its
        # own slot only.
        one.wide
        or one.scope in subjects.own
        or (one.change is Change.LOST and one.scope in subjects.holders)
        or (one.scope == OWN and subjects.of_slot(event.process))
        for one in body.authority()
    )


def _wide(event: Event) -> bool:
    body = event.body
    return changes_authority(body) and any(one.wide for one in body.authority())


# ----------------------------------------------------------------------------------------- choice


def choose(
    offending: Event,
    because: Sequence[Event],
    before: Sequence[Event],
    past: Mapping[str, int],
    *,
    subjects: Subjects,
    nodes: Mapping[str, str],
) -> list[Event]:
    """The most relevant events before the offending one, in order: at most `STEPS`.

    Chosen first are the events that prove the violation; then the faults that moved the authority
    or made a later holder lack something, beside its turns; the newest fault still active, the
    newest ones that struck a process of its slots, heals of these, and when a process ran that they
    had stopped; then the newest other events: those about its own scopes before those about the
    cluster.
    """
    # Events are taken in the order of how much they explain, until all lines are used: so each
    # `take` below has a bound, and what comes first pushes out what comes later.
    healed = {e.body.fault_id: e for e in before if isinstance(e.body, FaultHealed)}
    chosen: dict[Ref, Event] = {}

    def take(events: Iterable[Event], most: int) -> None:
        for event in events:
            if len(chosen) >= STEPS or most <= 0:
                return
            ref = (event.process, event.node_seq)
            if ref not in chosen and event is not offending:
                chosen[ref] = event
                most -= 1

    relevant = _newest_first(before, offending, past, subjects)
    faults = [event for event in relevant if isinstance(event.body, FaultInjected)]
    on = [f for f in faults if isinstance(f.body, FaultInjected) and f.body.fault_id not in healed]
    others = [event for event in relevant if not isinstance(event.body, FaultInjected)]
    close = [event for event in others if not _wide(event)]
    distant = [event for event in others if _wide(event)]
    # The proof itself, whatever room it takes.
    take(because, STEPS)
    # Where nobody has authority over what the violation is about, such as a list that the one
    # master holds, what the whole cluster depends on went to others.
    own = [e for e in others if any(one.scope in subjects.own for one in _gains(e))]
    turns = own or [e for e in others if any(one.wide for one in _gains(e))]
    turning = _Turning.of(because, turns, before, nodes=nodes, subjects=subjects)
    # Then what moved the authority the first time, what a later holder lacks, the first turn and
    # the last, and what moved the last.
    moved = turning.moved()
    take(moved[:1], 1)
    # A holder that was stopped, and ran for a moment while the proof was written, acted then.
    take(turning.ran(before), _STRUCK)
    take(turning.lacking(), 2)
    take((*turning.turns[:1], *turning.turns[:0:-1]), 2)
    take(moved[:0:-1], 1)
    # Of several turns any may have lost it: so the others are shown as far as there is room.
    take(turning.turns[:0:-1], _MORE_TURNS)
    # Whoever stood still as the last turn came could not be the next holder.
    take(turning.stopped(), 2)
    if turning.turns:
        # What came after the loss was decided explains nothing of it.
        until_ns = turning.decided_ns
        on, faults, close, distant = (
            [event for event in some if began_ns(event) <= until_ns]
            for some in (on, faults, close, distant)
        )
    # Then faults that only strike near: the newest that acts still, or else the newest of all. What
    # clients report of no slot may be of any.
    take(on or faults, 1 if subjects.has_slots else _STRUCK)
    struck = [event for event in faults if _struck(event, subjects)][:_STRUCK]
    take(struck, _STRUCK)
    # Heals of what was chosen: a process that was stopped acts again from there on.
    take(_heals(chosen.values(), healed), STEPS)
    take(_resumed(chosen.values(), before), _STRUCK)
    # What is left goes to changes of authority: two of those that the whole cluster depends on are
    # sure of a place, then come its own, then the rest.
    take(distant, 2)
    take(close, STEPS)
    take(distant, STEPS)
    return sorted(chosen.values(), key=lambda event: (began_ns(event), event.node_seq))


_MORE_TURNS = 2
"""How many turns are shown between the first and the last."""
SHORTLY_NS = 15_000_000_000
"""How long before a turn a fault counts that may have moved it: a failure detector needs time."""
_UNAWARE_NS = 5_000_000_000
"""How long before the proof a turn is shown by which its holder may have been deposed. Reports,
which have room for several candidates, look back further."""
ANEW_NS = 1_000_000_000
"""How long a process that was struck needs at least to be heard of again."""
_FROM_ALL = 10
"""From how many a process is parted that is struck itself: more than most clusters have."""
_HEARD = 0.1
"""How much of a cut it is if data passes late."""
_STRUCK = 2
"""How many faults are shown that struck a process of the violation's own slots, and how often a
process is shown to have run that a fault had stopped."""


def _gains(event: Event) -> Sequence[Authority]:
    """What went to a holder by this event."""
    body = event.body
    changes = body.authority() if changes_authority(body) else ()
    return [one for one in changes if one.change is Change.GAINED]


@final
@dataclass(frozen=True, slots=True)
class _Turning:
    """How authority over what a violation is about went from one holder to the next, after the
    first event of its proof."""

    turns: Sequence[Event]
    """The events by which it did, the oldest first."""
    holders: Sequence[frozenset[str]]
    """The slots of the holders: before the first turn, and after each."""
    gained_ns: Sequence[int]
    """Since when each holder was the holder, as far as the events tell."""
    wrote_ns: tuple[int, int]
    """When the first and the last event of the proof before the first turn were written."""
    faults: Sequence[tuple[Event, Excuse]]
    """All faults, the oldest first; and the ends of processes by themselves, as faults."""
    decided_ns: int = 0
    """When the last turn had come, and the proof was written."""

    @classmethod
    def of(
        cls,
        because: Sequence[Event],
        turns: Sequence[Event],
        before: Sequence[Event],
        *,
        nodes: Mapping[str, str],
        subjects: Subjects,
    ) -> _Turning:
        """`turns` are those that concern the violation, the newest first."""
        # Without a proof there is no beginning, and no turn can be told from an earlier one.
        first_ns = min((event.at_ns for event in because), default=0)
        after = [event for event in reversed(turns) if because and event.at_ns > first_ns]
        if because and all(is_client(event.process) for event in because):
            # What clients are told may come of a holder that does not know yet that it is deposed.
            shortly = [event for event in turns if 0 <= first_ns - event.at_ns <= _UNAWARE_NS]
            after = [*shortly[:1], *after]
        # A proof that names a turn says which one it was: later ones have nothing to do with it.
        named = [event for event in after if event in because]
        after = [event for event in after if not named or event.at_ns <= named[-1].at_ns]
        # A third party tells late that the node which the violation states has it: by that turn it
        # lost nothing.
        while after and not named and _gives(after[0], nodes, subjects):
            after.pop(0)
        if not after:
            return cls((), (), (), (0, 0), ())
        former = _former(after[0], before)
        # One more holder than turns: the one before the first turn, then the one after each.
        holders = [
            frozenset(_parties(one, nodes)) - {""} if one else frozenset()
            for one in (former, *after)
        ]
        # The proof before the first turn is what the first holder wrote: only that can be lacking
        # later.
        told = [event.at_ns for event in because if event.at_ns <= after[0].at_ns]
        last_ns = max(told, default=first_ns)
        gained_ns = [0 if former is None else former.at_ns, *(event.at_ns for event in after)]
        decided_ns = max(event.at_ns for event in (after[-1], *because))
        faults = list(_faults(before))
        return cls(
            after, holders, gained_ns, (first_ns, last_ns), faults=faults, decided_ns=decided_ns
        )

    def ran(self, before: Sequence[Event]) -> list[Event]:
        """When a holder ran that a fault had stopped, until the loss was decided."""
        held = frozenset().union(*self.holders)
        return [
            event
            for event in before
            if isinstance(event.body, ProcessResumed)
            and slot_of(event.body.resumed) in held
            and self.wrote_ns[0] <= event.at_ns <= self.decided_ns
        ]

    def stopped(self) -> list[Event]:
        """The faults that kept nodes from running as the last turn came, the newest first."""
        if not self.turns:
            return []
        turn_ns, holder = self.turns[-1].at_ns, self.holders[-1]
        return [
            event
            for event, fault in reversed(self.faults)
            if not fault.directions
            and not fault.doubles
            and fault.began_ns <= turn_ns <= _ended_ns(fault)
            and holder.isdisjoint(fault.slots)
        ]

    def moved(self) -> list[Event]:
        """For each turn, the fault that moved it, if one did: of those that acted upon the holder
        before it, the one that took most from it shortly before the turn; if none did, the newest
        that had struck that holder since it was one: a server that was killed may be deposed
        though it is back."""
        found = []
        # Each turn with the holder before it, so the last holder is in no pair.
        for turn, held, gained_ns in zip(self.turns, self.holders, self.gained_ns, strict=False):
            before = [
                (_took(fault, held, turn.at_ns), fault.began_ns, event)
                for event, fault in self.faults
                if fault.began_ns <= turn.at_ns
                and any(_takes(fault, held))
                and (
                    turn.at_ns - _ended_ns(fault) <= SHORTLY_NS
                    # A fault that was over long ago counts only if it acted upon the holder itself,
                    # since that was one.
                    or (gained_ns <= fault.began_ns and not fault.directions)
                )
            ]
            if before:
                found.append(max(before, key=lambda one: one[:-1])[-1])
        return found

    def lacking(self) -> list[Event]:
        """The faults that kept later holders from the first one while the proof was written."""
        first, later = self.holders[:1], self.holders[1:]
        since_ns, until_ns = self.wrote_ns
        return [
            event
            for event, fault in self.faults
            if fault.began_ns <= until_ns
            and since_ns <= _ended_ns(fault)
            and any(
                # The later holder itself was stopped or down, or its way from the first holder was
                # affected.
                fault.hits(slot) or any(fault.between(slot, one) for one in first[0])
                for slots in later
                # The first holder lacks nothing that it wrote itself.
                for slot in slots - first[0]
            )
        ]


def _faults(before: Iterable[Event]) -> Iterator[tuple[Event, Excuse]]:
    """The faults, and what they acted upon until when. A process that ended by itself is as if a
    fault had ended it."""
    acted = Excuses()
    events: dict[str, Event] = {}
    for event in before:
        body = event.body
        if isinstance(body, FaultInjected):
            events[body.fault_id] = event
        elif isinstance(body, ProcessExited) and not body.expected:
            events[body.ended] = event
            slots = frozenset({slot_of(body.ended)})
            acted.now[body.ended] = Excuse(body.ended, event.at_ns, slots, frozenset())
        elif isinstance(body, NodeStarted):
            # The slot has its next process, so the end of the one before is over.
            for ended in list(acted.now):
                if "#" in ended and slot_of(ended) == slot_of(event.process):
                    acted.healed.append(replace(acted.now.pop(ended), ended_ns=event.at_ns))
        acted.take(event)
    yield from ((events[one.fault_id], one) for one in (*acted.healed, *acted.now.values()))


def _takes(fault: Excuse, slots: frozenset[str]) -> tuple[bool, int]:
    """What a fault takes from these slots: whether it acts upon one of them itself, and from how
    many others it parts them."""
    if not fault.directions:
        upon = not slots.isdisjoint(fault.slots)
        return (False, int(upon)) if fault.doubles else (upon, 0)
    return False, len({frozenset(p) for p in fault.directions if not slots.isdisjoint(p)})


def _took(fault: Excuse, held: frozenset[str], turn_ns: int) -> float:
    """How much a fault took from a holder shortly before a turn: of how many it parted it, times
    for how long. What is reported of a turn may come a second late, when a fault of another node
    has just begun; and whoever decides decides by what it did not hear before."""
    since_ns, until_ns = max(fault.began_ns, turn_ns - SHORTLY_NS), min(_ended_ns(fault), turn_ns)
    upon, parted = _takes(fault, held)
    long_ns = max(0, until_ns - since_ns)
    # A holder that is struck itself hears from nobody, and has to find its peers again.
    if upon and until_ns > since_ns:
        return _FROM_ALL * max(long_ns, ANEW_NS)
    # Over a link that is slow, or one that holds single messages, it is heard still.
    return parted * long_ns * (1 if fault.severs else _HEARD)


def _ended_ns(fault: Excuse) -> float:
    return inf if fault.ended_ns is None else fault.ended_ns


def _gives(turn: Event, nodes: Mapping[str, str], subjects: Subjects) -> bool:
    """Whether a third party reports that a node of the violation's own slots has it."""
    body = turn.body
    return (
        changes_authority(body)
        and all(one.holder is None for one in body.authority())
        and any(subjects.of_slot(slot) for slot in _parties(turn, nodes) if slot)
    )


def _parties(turn: Event, nodes: Mapping[str, str]) -> Iterable[str]:
    """The slots of the holders that an event names, by their process or their node."""
    if changes_authority(turn.body):
        for one in turn.body.authority():
            yield slot_of(turn.process if one.holder == "" else one.holder or "")
            yield from (
                slot_of(process) for process, node in nodes.items() if node and node == one.node
            )


def _former(turn: Event, before: Sequence[Event]) -> Event | None:
    """The event by which the same scopes had been gained last, before a turn."""
    scopes = set(_scopes(turn))
    for event in reversed([one for one in before if one.at_ns < turn.at_ns]):
        if changes_authority(event.body) and any(
            one.scope in scopes and one.change is Change.GAINED for one in event.body.authority()
        ):
            return event
    return None


def _heals(events: Iterable[Event], healed: Mapping[str, Event]) -> list[Event]:
    """The heals of the faults among these events."""
    injected = [event.body for event in events if isinstance(event.body, FaultInjected)]
    return [healed[body.fault_id] for body in injected if body.fault_id in healed]


def _resumed(events: Iterable[Event], before: Sequence[Event]) -> list[Event]:
    """When the processes ran that faults among these events had stopped, the newest first."""
    bodies = [event.body for event in events]
    targets = {one for body in bodies if isinstance(body, FaultInjected) for one in body.targets}
    return [
        event
        for event in reversed(before)
        if isinstance(event.body, ProcessResumed) and event.body.resumed in targets
    ]


def _struck(event: Event, subjects: Subjects) -> bool:
    """Whether a fault acted upon a process of one of the violation's own slots. A second process
    with its id did not."""
    body = event.body
    return (
        isinstance(body, FaultInjected)
        and not body.acts(Effect.DOUBLES)
        and any("#" in target and subjects.of_slot(target) for target in body.targets)
    )


def _newest_first(
    before: Sequence[Event], offending: Event, past: Mapping[str, int], subjects: Subjects
) -> list[Event]:
    """The events that concern the violation, newest first, each matter once.

    If several processes report one source (a replayed record), the first report is shown. Of
    consecutive changes with one matter, the newest is shown.
    """
    repeated = _repeated(before)
    found: list[Event] = []
    shown: set[tuple[object, ...]] = set()
    records: dict[Hashable, int] = {}
    for event in reversed(before):
        if (event.process, event.node_seq) in repeated or not _concerns(event, subjects):
            continue
        record = shared_record(event) or _reported(event)
        if record is not None:
            # Going backwards, the first report comes last: it replaces the others.
            if record in records:
                found[records[record]] = event
            else:
                records[record] = len(found)
                found.append(event)
            continue
        matter = _matter(event)
        if matter not in shown:
            shown.add(matter)
            found.append(event)
    return found


def _reported(event: Event) -> Hashable | None:
    """What third parties report alike: the same node has gained the same in the same epoch."""
    body = event.body
    changes = tuple(body.authority()) if changes_authority(body) else ()
    # A holder's own word is never taken for another one's. Without an epoch, two reports may be of
    # two changes.
    if not changes or any(one.holder is not None or one.epoch < 0 for one in changes):
        return None
    return tuple((one.scope, one.change, one.epoch, one.node) for one in changes)


def _repeated(before: Sequence[Event]) -> set[Ref]:
    """Where third parties report a gain without an epoch of which the newest report of the same
    scope says that this node has it: that is no second gain."""
    found: set[Ref] = set()
    holder: dict[str, str] = {}
    for event in before:
        if not changes_authority(event.body):
            continue
        changes = tuple(event.body.authority())
        if changes and all(
            one.change is Change.GAINED
            and one.holder is None
            and one.epoch < 0
            and one.node
            and holder.get(one.scope) == one.node
            for one in changes
        ):
            found.add((event.process, event.node_seq))
        for one in changes:
            # A holder's own word may be of a gain that no third party reports.
            if one.change is Change.GAINED:
                holder[one.scope] = one.node if one.holder is None else ""
            elif one.change is Change.LOST:
                holder[one.scope] = ""
    return found


def _matter(event: Event) -> tuple[object, ...]:
    body = event.body
    if changes_authority(body):
        for one in body.authority():
            # With the process: two processes may renew each its own.
            if one.matter:
                return one.matter, event.process
    return event.process, event.node_seq
