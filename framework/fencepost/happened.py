"""What has happened so far in a run, for a test to look at; the judging of it is for rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, final

from msgspec import Struct

from fencepost.events import Event
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
