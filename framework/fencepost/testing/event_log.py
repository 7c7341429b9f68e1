"""The events of a run so far, for a test to read; rules judge them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from msgspec import Struct

from fencepost.events import Event, PromiseObserved, kind_name
from fencepost.judging.findings import Evidence
from fencepost.model.runtime import Condition, Runtime
from fencepost.model.view import View

Body = TypeVar("Body", bound=Struct)


@final
class EventLog:
    """The events of a run so far, in happens-before order."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def events(self) -> Sequence[Event]:
        """All of them."""
        return self._runtime.events()

    def of(self, kind: type[Body], process: str = "") -> Sequence[Body]:
        """The bodies of one kind, those of one process only if it is named."""
        return [
            event.body
            for event in self._runtime.events()
            if isinstance(event.body, kind) and process in ("", event.process)
        ]

    def event_where(self, kind: type[Body], such: Callable[[Body], bool], what: str) -> Condition:
        """A condition: an event of this kind has come for whose body `such` is true. `what`
        describes it.

        A client may know a node's answer before the node's own event about it arrives here, so a
        test that needs the event waits for it.
        """
        come, found = -1, False

        def holds(view: View) -> bool:
            nonlocal come, found
            if not found and view.kinds[kind_name(kind)] != come:
                come = view.kinds[kind_name(kind)]
                found = any(such(body) for body in self.of(kind))
            return found

        return Condition(what, holds)

    def record_evidence(
        self, clause: str, held: bool, evidence: str, seen_by: Evidence = Evidence.CLIENT
    ) -> None:
        """Records what the test itself saw of a promise that no event shows.

        For formats, defaults and surfaces. `seen_by` is the kind of evidence: from a client, from a
        peer, or from the node itself. The clause's rule judges it: a test that saw the promise
        broken fails.
        """
        self._runtime.record(
            PromiseObserved(clause=clause, held=held, evidence=evidence, seen_by=seen_by.value)
        )
