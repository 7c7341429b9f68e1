"""Which events an explanation shows: those that bear on what a violation is about.

What a violation is about is a set of scopes of authority and slots (`Subjects`): those that its
events concern, and the nodes that hold authority over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost.events import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost.events.traits import OWN, Change, changes_authority, has_concerns, shared_record

Ref = tuple[str, int]
LINES = 12
"""The most lines of an explanation: a clause, its sentence, the violation and what led to it."""
STEPS = LINES - 3
_PROCESS = "process "
_SLOT = "slot "


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

    def of_slot(self, process: str) -> bool:
        """Whether it is about the slot of a process."""
        return _SLOT + _slot(process) in self.own

    def affected(self, process: str) -> bool:
        """Whether an event that ends or hinders a process bears on the violation."""
        return self.of_slot(process) or _SLOT + _slot(process) in self.holders


def subjects_of(
    offending: Event,
    because: Sequence[Event],
    before: Sequence[Event],
    nodes: Mapping[str, str],
) -> Subjects:
    """What a violation is about. `before` are the events that may be shown; `nodes` maps the
    process of a node to the scope of its own id, empty if it has given none."""
    own: set[str] = set()
    processes: set[str] = set()
    for event in (offending, *because):
        concerned = list(_scopes(event))
        processes.update((event.process, *_named_processes(concerned)))
        own.update(scope for scope in concerned if not scope.startswith(_PROCESS))
    for process in processes & nodes.keys():
        own.update({_SLOT + _slot(process), nodes[process]} - {""})
    holders: set[str] = set()
    for process, node in _holders(own, before):
        holders.add(node or nodes.get(process, ""))
        holders.add(_SLOT + _slot(process) if process else "")
    return Subjects(frozenset(own), frozenset(holders - own - {""}))


def _holders(scopes: Iterable[str], before: Sequence[Event]) -> Iterable[tuple[str, str]]:
    """The newest holder of each scope, as a process, a node or both, where an event names one."""
    wanted = set(scopes)
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


def _slot(process: str) -> str:
    return process.partition("#")[0]


def _concerns(event: Event, subjects: Subjects) -> bool:
    """Whether an event of authority is about the subject of the violation."""
    body = event.body
    if isinstance(body, FaultInjected):
        return any(subjects.affected(target) for target in body.targets)
    if isinstance(body, ProcessExited):
        return subjects.affected(body.ended)
    if isinstance(body, NodeStarted):
        return subjects.of_slot(event.process)
    if not changes_authority(body):
        return False
    return any(
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
    subjects: Subjects,
) -> list[Event]:
    """The most relevant events before the offending one, in order: at most `STEPS`.

    Chosen first are the events that prove the violation, then the newest fault still active, the
    newest ones that struck a process of its slots, and their heals; then the newest other events:
    those about its own scopes before those about the cluster.
    """
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
    take(because, STEPS)
    take(on or faults, 1)
    struck = [event for event in faults if _struck(event, subjects)][:_STRUCK]
    take(struck, _STRUCK)
    take(_heals(struck, healed), STEPS)
    take(distant, 2)
    take(close, STEPS)
    take(distant, STEPS)
    take(_heals(chosen.values(), healed), STEPS)
    return sorted(chosen.values(), key=lambda event: (event.at_ns, event.node_seq))


_STRUCK = 2
"""How many faults are shown that struck a process of the violation's own slots."""


def _heals(events: Iterable[Event], healed: Mapping[str, Event]) -> list[Event]:
    """The heals of the faults among these events."""
    injected = [event.body for event in events if isinstance(event.body, FaultInjected)]
    return [healed[body.fault_id] for body in injected if body.fault_id in healed]


def _struck(event: Event, subjects: Subjects) -> bool:
    """Whether a fault acted upon a process of one of the violation's own slots."""
    body = event.body
    return isinstance(body, FaultInjected) and any(
        "#" in target and subjects.of_slot(target) for target in body.targets
    )


def _newest_first(
    before: Sequence[Event], offending: Event, past: Mapping[str, int], subjects: Subjects
) -> list[Event]:
    """The events that concern the violation, newest first, each matter once.

    If several processes report one source (a replayed record), the first report is shown. Of
    consecutive changes with one matter, the newest is shown.
    """
    found: list[Event] = []
    shown: set[tuple[object, ...]] = set()
    records: dict[Hashable, int] = {}
    for event in reversed(before):
        if not _concerns(event, subjects):
            continue
        record = shared_record(event)
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


def _matter(event: Event) -> tuple[object, ...]:
    body = event.body
    if changes_authority(body):
        for one in body.authority():
            if one.matter:
                return one.matter, event.process
    return event.process, event.node_seq
