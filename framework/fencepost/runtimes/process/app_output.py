"""What a program of the user's prints: its ready line, and lines that are events.

A line that is a JSON object with the key `fencepost` says what the program did, in the form that
its workload publishes; any other line is the program's own business. `at` in it is when it
happened, in seconds since 1970, as a program's clock gives it. The line itself is read later, so
its own time cannot be taken for that of an invocation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from msgspec import Struct

from fencepost.events import AppReady, EvidenceMissed
from fencepost.model.clock import SECOND
from fencepost.model.errors import UsageError
from fencepost.model.system.apps import Parse
from fencepost.model.system.capabilities import ParsedEvent

MARK = "fencepost"
_QUOTED = 200


@final
class AppOutput:
    """The log parser of one process of an app; see `LogParser`. It never raises: a program may
    print anything. The first line with the mark that is not understood is an event: what the
    program did is not wholly known then."""

    def __init__(
        self,
        process: str,
        line: str,
        parse: Parse,
        *,
        now_ns: Callable[[], int],
        mask: Callable[[str], str] = str,
    ) -> None:
        """`line` is what its ready line has in it (empty: it has none); `now_ns` is the run's
        clock; `mask` takes its secrets out of what is quoted."""
        self._now_ns = now_ns
        self._process = process
        self._ready_by = line
        self._parse = parse
        self._mask = mask
        self._missed = False

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        found: list[ParsedEvent] = []
        if self._ready_by and self._ready_by in line:
            self._ready_by = ""
            found.append(ParsedEvent(self._now_ns(), AppReady(ready=self._process)))
        if line.startswith("{") and f'"{MARK}"' in line:
            try:
                found += self._events(json.loads(line))
            except (ValueError, RecursionError, UsageError) as wrong:
                if not self._missed:
                    self._missed = True
                    what = self._mask(f"{self._process} printed {line[:_QUOTED]!r}: {wrong}")
                    found.append(ParsedEvent(self._now_ns(), EvidenceMissed(what=what)))
        return found

    def _events(self, said: Any) -> Sequence[ParsedEvent]:
        if not isinstance(said, dict) or MARK not in said:
            return ()
        at_ns = _time(said)
        return [ParsedEvent(at_ns, body, wall=True) for body in self._bodies(said)]

    def _bodies(self, said: Mapping[str, object]) -> Sequence[Struct]:
        return self._parse({name: value for name, value in said.items() if name != "at"})


def _time(said: Mapping[str, object]) -> int:
    at = said.get("at")
    if isinstance(at, bool) or not isinstance(at, int | float) or not 1e9 <= at < 1e10:
        raise UsageError("`at` is not a time in seconds since 1970")
    # To the microsecond: a float has no more.
    return round(at * 1_000_000) * (SECOND // 1_000_000)
