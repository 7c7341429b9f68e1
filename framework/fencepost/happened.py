"""What has happened so far in a run, for a test to look at; the judging of it is for rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, final

from msgspec import Struct

from fencepost.events import Event, PromiseWitnessed
from fencepost.rules import Witness
from fencepost.runtime import Runtime

Body = TypeVar("Body", bound=Struct)


@final
class Happened:
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

    def saw(
        self, clause: str, held: bool, evidence: str, witness: Witness = Witness.CLIENT
    ) -> None:
        """Tells the history what the test itself saw of a promise that no event shows.

        For formats, defaults and surfaces; `witness` is by whose word it was seen. The clause's
        rule judges it: a test that saw it broken fails.
        """
        self._runtime.record(PromiseWitnessed(clause, held, evidence, witness.value))
