"""The effects of a step, as the parts of a node collect them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import TracebackType

from msgspec import Struct

from fencepost import Cause, NodeStopped
from fencepost_clusters.reference.core.node.effects import Address, Call, Effect, Exit, Note
from fencepost_clusters.reference.wire import messages as m


class Outbox:
    """Collects the effects of one step in order, and numbers the calls of one process.

    `calls` yields the numbers; nodes of one process share it.
    """

    def __init__(self, calls: Iterator[int] | None = None) -> None:
        self._effects: list[Effect] = []
        self._calls = itertools.count(1) if calls is None else calls
        self._ended = False
        self.cause: Cause | None = None
        """The input that is being handled: the cause of every event noted meanwhile."""

    def note(self, body: Struct, cause: Cause | None = None) -> None:
        """Adds the record of an event, with its own cause or that of the step."""
        if not self._ended:
            self._effects.append(Note(body, self.cause if cause is None else cause))

    def caused_by(self, cause: Cause | None) -> _CausedBy:
        """Within this block, events have another cause: the request of a delayed answer."""
        return _CausedBy(self, cause)

    def call(self, address: Address, channel: str, message: m.Request, timeout_ms: int) -> int:
        """Adds a call; its id, which is its correlation id."""
        call_id = self.next_call()
        self.add(Call(call_id, address, channel, message, timeout_ms))
        return call_id

    def next_call(self) -> int:
        """The id of the next call, so that an event can name it before it leaves."""
        return next(self._calls)

    def add(self, effect: Effect) -> None:
        """Adds an effect; nothing once the process has ended."""
        if not self._ended:
            self._effects.append(effect)

    def end(self, reason: str, code: int) -> None:
        """Ends the process, which cannot continue: later effects are not carried out."""
        # The event comes before the exit, since nothing is taken in after it.
        self.note(NodeStopped(reason=reason))
        self.add(Exit(reason, code))
        self._ended = True

    def drain(self) -> tuple[Effect, ...]:
        """Removes and returns all collected effects, in order."""
        effects = tuple(self._effects)
        self._effects.clear()
        return effects


class _CausedBy:
    """A block within which the events of an outbox have another cause."""

    def __init__(self, out: Outbox, cause: Cause | None) -> None:
        self._out = out
        self._cause = cause

    def __enter__(self) -> None:
        out = self._out
        self._cause, out.cause = out.cause, self._cause

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._out.cause = self._cause
