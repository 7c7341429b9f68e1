"""Changes of authority, and the states that processes were in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from msgspec.structs import replace

from fencepost.events import Event, NodeStarted, ProcessExited
from fencepost.events.traits import Authority, Change, shared_record
from fencepost.judging.tables.rows import AuthorityRow, Move, SpanRow


class _Holder(NamedTuple):
    """A holder as an event names it: its process, its node in the words of a scope, or neither."""

    process: str = ""
    node: str = ""

    def same(self, other: _Holder) -> bool | None:
        """Whether both are the same; None if that is not known."""
        if self.process and other.process:
            return self.process == other.process
        if self.node and other.node:
            return self.node == other.node
        return None

    def merged(self, other: _Holder) -> _Holder:
        """The holder with everything that is known from both."""
        return _Holder(self.process or other.process, self.node or other.node)


_UNKNOWN = _Holder()


@final
@dataclass(slots=True)
class _Scope:
    """The state of the authority over one scope so far."""

    epoch: int = -1
    holder: _Holder = _UNKNOWN
    held: bool = False
    ever: bool = False
    """Whether it had a holder before."""
    types: dict[tuple[str, str], str] = field(default_factory=dict)
    """(change, kind) -> the type of such a change."""


@final
@dataclass(slots=True)
class _Open:
    """A state that a process is in."""

    state: str
    epoch: int
    held: bool
    reported: bool
    """Whether others say so, and not the process itself."""
    from_ns: int
    noted: str = ""
    """The same state, if the process had noted it of itself before others gave it the authority:
    once another holds that by their word, this process is in it still, without authority."""


@final
class AuthorityFold:
    """A fold over events in order. `rows` are the changes so far; `spans` ends the states that are
    still open.

    Most changes repeat what is known. If several processes write one change, such as a record that
    each node replays, only the first event is a row. If one process writes consecutive changes with
    one `matter`, such as renewals of a lease, only the first is a row.
    """

    def __init__(self) -> None:
        self.rows: list[AuthorityRow] = []
        self._scopes: dict[str, _Scope] = {}
        self._records: set[tuple[Hashable, str]] = set()
        self._matters: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self._wide: set[str] = set()
        """The scopes on which the whole cluster depends. A process that only notes a state in such
        a scope does not say so, the one that holds it does."""
        self._open: dict[tuple[str, str], _Open] = {}
        self._spans: list[SpanRow] = []

    def process(self, event: Event) -> None:
        """Applies the event by which a process began or ended; others change nothing."""
        body = event.body
        if isinstance(body, NodeStarted):
            self._nodes.setdefault(event.process, []).append(f"{body.role} {body.node_id}")
        elif isinstance(body, ProcessExited):
            self._ended.add(body.ended)
            for process, scope in [key for key in self._open if key[0] == body.ended]:
                self._close(process, scope, event.at_ns)

    def apply(self, position: int, event: Event, changes: Sequence[Authority]) -> bool:
        """Applies an event that records these changes; whether it refuses an authority."""
        if not changes:
            return False
        record = shared_record(event)
        refuses = False
        for one in changes:
            holder = event.process if one.holder == "" else one.holder or ""
            if one.wide:
                self._wide.add(one.scope)
            if one.change == Change.REFUSED:
                refuses = True
            elif one.state or one.change == Change.LOST:
                self._span(one, holder, event.at_ns)
            if not self._repeated(one, event.process, record):
                self.rows.append(self._row(one, holder, position, event))
        return refuses

    @property
    def nodes(self) -> Mapping[str, Sequence[str]]:
        """process -> its nodes, in the words of a scope."""
        return self._nodes

    def spans(self, ended_ns: int) -> Sequence[SpanRow]:
        """Every state of every process, in order; a state that did not end lasts until the run's
        end."""
        for process, scope in list(self._open):
            self._close(process, scope, ended_ns)
        spans = (replace(s, own=True) if s.scope in self._wide else s for s in self._spans)
        return sorted(spans, key=_begun)

    # ------------------------------------------------------------------------------------ changes

    def _repeated(self, one: Authority, process: str, record: Hashable) -> bool:
        if record is not None:
            key = (record, one.scope)
            if key in self._records:
                return True
            self._records.add(key)
        place = (process, one.scope)
        repeated = bool(one.matter) and self._matters.get(place) == one.matter
        self._matters[place] = one.matter
        return repeated

    def _row(self, one: Authority, process: str, position: int, event: Event) -> AuthorityRow:
        scope = self._scopes.get(one.scope)
        if scope is None:
            scope = self._scopes[one.scope] = _Scope()
        was, former = scope.epoch, scope.holder
        holder = _Holder(process, one.node or next(iter(self._nodes.get(process, ())), ""))
        effect = self._effect(scope, one, holder)
        return AuthorityRow(
            position=position,
            at_ns=event.at_ns,
            process=event.process,
            node_seq=event.node_seq,
            kind=event.kind,
            type=_type(scope.types, one, event.kind),
            scope=one.scope,
            change=str(one.change),
            effect=effect,
            epoch=one.epoch,
            was=was,
            holder=holder.process,
            node=holder.node,
            former=former.process,
            former_node=former.node,
            wide=one.wide,
        )

    def _effect(self, scope: _Scope, one: Authority, holder: _Holder) -> Move:
        if one.change == Change.REFUSED:
            return Move.REFUSES
        if one.change == Change.NOTED or (one.epoch >= 0 and one.epoch < scope.epoch):
            return Move.NOTES
        same = scope.holder.same(holder)
        if one.change == Change.LOST:
            if not scope.ever or (scope.held and same is False):
                return Move.NOTES
            scope.held = False
            scope.epoch = max(scope.epoch, one.epoch)
            return Move.TAKES
        newer = one.epoch > scope.epoch
        effect = Move.GIVES
        if scope.ever and (same is False or (newer and same is None)):
            effect = Move.TAKES
        elif scope.held and newer:
            effect = Move.RENEWS
        scope.holder = holder if same is False else holder.merged(scope.holder)
        scope.epoch = max(scope.epoch, one.epoch)
        scope.held = scope.ever = True
        return effect

    # -------------------------------------------------------------------------------------- spans

    def _span(self, one: Authority, holder: str, at_ns: int) -> None:
        """Applies a change that begins a state or ends one. Others leave the process in the state
        that it is in."""
        process = holder or self._reported(one)
        known = self._scopes.get(one.scope)
        # A third party that began anew tells what it knew before: an epoch that is over.
        stale = not holder and known is not None and 0 <= one.epoch < known.epoch
        if not process or stale:
            return
        found = self._open.get((process, one.scope))
        if found is not None and found.state == one.state:
            noted_only = one.change == Change.NOTED and one.epoch < 0
            if found.epoch == one.epoch or noted_only:
                return
        noted = found.state if found is not None and not (found.reported or found.held) else ""
        self._close(process, one.scope, at_ns)
        if not holder and one.change == Change.GAINED:
            self._deposed(one, at_ns)
        if one.state:
            self._open[process, one.scope] = _Open(
                state=one.state,
                epoch=one.epoch,
                held=one.change == Change.GAINED,
                reported=not holder,
                from_ns=at_ns,
                noted="" if holder else noted,
            )

    def _reported(self, one: Authority) -> str:
        """The process that a third party reports by its node, if it is the word of others that
        counts; else empty. Of its own id, and of what it has said itself, a process knows best. But
        if it has only noted a state, the word of others for the same state gives it authority."""
        process = "" if one.scope == one.node else self._process_of(one.node)
        found = self._open.get((process, one.scope))
        if found is None or found.reported:
            return process
        gives = one.change == Change.GAINED and not found.held and found.state == one.state
        return process if gives else ""

    def _process_of(self, node: str) -> str:
        """The process that runs and has given itself the name of a node; empty if that is not
        one."""
        named = [
            process
            for process, nodes in self._nodes.items()
            if node and node in nodes and process not in self._ended
        ]
        return named[0] if len(named) == 1 else ""

    def _deposed(self, one: Authority, at_ns: int) -> None:
        """By the word of a third party another node holds the scope: so those do no more that held
        it by such a word. One that says so itself may not know yet."""
        for process, scope in list(self._open):
            found = self._open[process, scope]
            if scope == one.scope and found.reported:
                self._close(process, scope, at_ns)
                if found.noted:
                    self._open[process, scope] = _Open(
                        state=found.noted,
                        epoch=-1,
                        held=False,
                        reported=False,
                        from_ns=at_ns,
                    )

    def _close(self, process: str, scope: str, at_ns: int) -> None:
        found = self._open.pop((process, scope), None)
        if found is not None and at_ns > found.from_ns:
            self._spans.append(
                SpanRow(
                    process=process,
                    scope=scope,
                    state=found.state,
                    epoch=found.epoch,
                    held=found.held,
                    own=scope in self._nodes.get(process, ()),
                    from_ns=found.from_ns,
                    to_ns=at_ns,
                )
            )


def _type(known: dict[tuple[str, str], str], one: Authority, kind: str) -> str:
    """The type of a change, in the words of its scope and of its event's kind."""
    found = known.get((one.change, kind))
    if found is None:
        found = f"{one.scope.partition(' ')[0]} {one.change}: {kind}"
        known[one.change, kind] = found
    return found


def _begun(span: SpanRow) -> tuple[int, int, str, str]:
    """The order of states."""
    return span.from_ns, span.to_ns, span.process, span.scope
