"""The state of a run by its events: folds, updated with each event.

Conditions and faults read it. It contains only what nodes, clients and the harness wrote, and never
asks a node. `View` itself knows the processes of any system. A system's `Fold`s (`System.folds`)
interpret its own events; `view.of(TheFold)` is the state of one fold.

See docs/decisions/03-waiting.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar, final

from msgspec import Struct

from fencepost.events import Event, NodeStarted, ProcessExited, ProcessSpawned, kind_name
from fencepost.events.traits import Change, changes_authority
from fencepost.model.errors import UsageError
from fencepost.model.system.topology import CLIENT


class Fold(Protocol):
    """State that events change: constructed without arguments, then given every event in order."""

    def apply(self, view: View, event: Event) -> None:
        """Applies one event; `view` includes the event already, other folds may not."""
        ...


F = TypeVar("F", bound=Fold)


@final
class Holders:
    """Which process holds which authority, by the trait of events (`AuthorityChange`).

    A third party may report a holder by its node only (`Authority.node`). The holder is then the
    process that has given itself this name, if just one of those that run has: of two with one id,
    nobody can tell which is meant. Such a report may be late: one of an epoch that is known already
    says nothing new. A holder that does not know its epoch (-1) is the newest by its own word.
    """

    def __init__(self) -> None:
        self.of: dict[str, tuple[int, str]] = {}
        """scope -> (epoch, process) of the newest gain that was not lost since."""
        self._newest: dict[str, int] = {}
        """scope -> its newest epoch, also if its holder has lost it since."""
        self._silent: set[type[Struct]] = set()
        """The kinds met so far that change no authority: most events are of these."""

    def apply(self, view: View, event: Event) -> None:
        """Applies one event."""
        body = event.body
        if type(body) in self._silent:
            return
        if not changes_authority(body):
            self._silent.add(type(body))
            return
        for one in body.authority():
            reported = one.holder is None
            # A late report of a former epoch. Applied, it would take the authority from its present
            # holder.
            if reported and 0 <= one.epoch <= self._newest.get(one.scope, -1):
                continue
            # Three ways to name the holder: a third party names its node, an event names another
            # process, or the writer is the holder itself.
            holder = view.process_of(one.node) if reported else one.holder or event.process
            # No process has this name, or two have: it is not known who is meant, and nothing
            # changes.
            if not holder:
                continue
            epoch, current = self.of.get(one.scope, (-1, ""))
            # Equal epochs count: a holder that renews has the same. Without an epoch, the newest
            # word counts.
            if one.change is Change.GAINED and (one.epoch >= epoch or one.epoch < 0):
                self.of[one.scope] = max(one.epoch, epoch), holder
                # Kept after a loss, so that a late report of the lost epoch gives nothing back.
                self._newest[one.scope] = max(one.epoch, self._newest.get(one.scope, -1))
            # Only the present holder can lose it: a former one may hear late that it was deposed.
            elif one.change is Change.LOST and holder == current:
                del self.of[one.scope]

    def holds_any(self, process: str) -> bool:
        """Whether a process is the newest holder of anything."""
        return any(holder == process for _, holder in self.of.values())


@final
class View:
    """The state of the run so far. All dictionaries are keyed by the names that the events use.

    `alive` are the processes that run. `newest` maps slots to their newest processes, and `slot_of`
    processes to their slots. `node_of` maps processes to the role and the id that they gave
    themselves (`node.started`). `kinds` counts the events of each kind, and `latest` has the newest
    event of a process and a kind.
    """

    def __init__(
        self, folds: Iterable[type[Fold]] = (), roles: Collection[str] | None = None
    ) -> None:
        """`roles` are those that the slots of the cluster have; None: any."""
        self._roles = roles
        self.count = 0
        self.last: Event | None = None
        self.node_of: dict[str, tuple[str, int]] = {}
        """process -> (role, node id), from its newest node.started."""
        self.ids: dict[tuple[str, str], int] = {}
        """(process, role) -> node id: nodes of several roles may share a process."""
        self.slot_of: dict[str, str] = {}
        """process -> slot, from process.spawned."""
        self.undeclared: dict[str, str] = {}
        """process -> role, for each process that started in a role that no slot has."""
        self.alive: set[str] = set()
        self.newest: dict[str, str] = {}
        """slot -> newest process."""
        self.kinds: defaultdict[str, int] = defaultdict(int)
        """event kind -> how often."""
        self.latest: dict[tuple[str, str], Event] = {}
        """(process, event kind) -> newest such event."""
        # In this order for each event: a system's fold may ask `Holders`, which has the event
        # already.
        kinds: tuple[type[Fold], ...] = (Holders, *folds)
        self._folds: dict[type[Fold], Fold] = {kind: kind() for kind in kinds}

    def apply(self, event: Event) -> None:
        """Applies one event."""
        self.count += 1
        self.last = event
        kind = kind_name(type(event.body))
        self.kinds[kind] += 1
        self.latest[event.process, kind] = event
        # The view's own state first, so that every fold sees the event in it.
        handler = _HANDLERS.get(type(event.body))
        if handler is not None:
            handler(self, event, event.body)
        for fold in self._folds.values():
            fold.apply(self, event)

    def process_of(self, node: str) -> str:
        """The process that runs and has given itself this name, in the words of a scope (`redis
        3`); empty if none has, or more than one."""
        role, _, node_id = node.rpartition(" ")
        named = [
            process
            for process in self.alive
            # A process of several roles has an id for each, and any of them names it.
            if str(self.ids.get((process, role), "")) == node_id and node_id
        ]
        return named[0] if len(named) == 1 else ""

    def of(self, kind: type[F]) -> F:
        """The state of a fold; raises UsageError for a fold that the system does not declare."""
        fold = self._folds.get(kind)
        if not isinstance(fold, kind):
            raise UsageError(
                f"the system under test declares no fold {kind.__name__}: add it to its `folds`"
            )
        return fold

    def has(self, kind: type[Fold]) -> bool:
        """Whether the system declares this fold."""
        return kind in self._folds

    def declares(self, role: str) -> bool:
        """Whether a slot of the cluster has this role."""
        return self._roles is None or role == CLIENT or role in self._roles

    def check_roles(self, system: str) -> None:
        """Raises UsageError, with the remedy, if a process of this system started in a role that no
        slot has."""
        for process, role in self.undeclared.items():
            raise UsageError(
                f"{process} of the system {system} wrote node.started with the role '{role}', "
                f"which no slot has (the slots have: {', '.join(self._roles or ())}): declare a "
                "slot with this role, or correct the role in node.started"
            )


def _spawned(view: View, event: Event, body: ProcessSpawned) -> None:
    view.slot_of[body.started] = body.slot
    view.newest[body.slot] = body.started
    view.alive.add(body.started)


def _exited(view: View, event: Event, body: ProcessExited) -> None:
    view.alive.discard(body.ended)


def _started(view: View, event: Event, body: NodeStarted) -> None:
    view.node_of[event.process] = (body.role, body.node_id)
    view.ids[event.process, body.role] = body.node_id
    if not view.declares(body.role):
        view.undeclared.setdefault(event.process, body.role)


_HANDLERS: dict[type[Struct], Callable[[View, Event, Any], None]] = {
    ProcessSpawned: _spawned,
    ProcessExited: _exited,
    NodeStarted: _started,
}
