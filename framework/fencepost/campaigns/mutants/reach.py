"""Which lines of some sources each part of a program executes, and how long it takes.

A simulated run is the same again with the same seed. So a change of a line changes nothing before
that line is executed, and a part that never executes it cannot notice the change.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, final

from msgspec import Struct

from fencepost.model.clock import SECOND, now_ns

IMPORTS = ""
"""The name of what runs before the first part: above all the imports. What they execute, every
part depends on."""


class Part(Struct, frozen=True):
    """A part of the program, how long it took, and the lines that it executed, by file."""

    name: str
    seconds: float
    lines: Mapping[str, Collection[int]]


class Reach(Struct, frozen=True):
    """What each part of a program executed."""

    parts: Sequence[Part]

    def of(self, file: str, lines: range) -> Sequence[str]:
        """The parts that execute one of these lines, the shortest first."""
        found = [one for one in self.parts if not set(lines).isdisjoint(one.lines.get(file, ()))]
        if any(one.name == IMPORTS for one in found):
            found = list(self.parts)
        found.sort(key=lambda one: one.seconds)
        return [one.name for one in found if one.name != IMPORTS]


@final
class Tracer:
    """Traces the lines of `files` from `start` to `stop`, in all threads that begin meanwhile."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = frozenset(files)
        self._parts: list[Part] = []
        self._name = IMPORTS
        self._began_ns = 0
        self._left: dict[CodeType, set[int]] = {}
        """Code that the current part has called -> its lines that the part has not executed."""

    def start(self) -> None:
        """Starts to trace."""
        self._began_ns = now_ns()
        threading.settrace(self._called)
        sys.settrace(self._called)

    def begin(self, name: str) -> None:
        """Ends the current part, and begins the next one."""
        lines: dict[str, set[int]] = {}
        for code, left in self._left.items():
            lines.setdefault(code.co_filename, set()).update(_lines(code) - left)
        seconds = (now_ns() - self._began_ns) / SECOND
        self._parts.append(Part(self._name, seconds, lines))
        self._name, self._left, self._began_ns = name, {}, now_ns()

    def stop(self) -> Reach:
        """Ends the last part, and returns all."""
        sys.settrace(None)
        threading.settrace(None)
        self.begin(IMPORTS)
        return Reach(self._parts)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            if code.co_filename not in self._files:
                return None
            left = self._left[code] = _lines(code)
        return self._executed if left else None

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Any:
        left = self._left.get(frame.f_code)
        if left is None:
            # The part that called it has ended.
            left = self._left[frame.f_code] = _lines(frame.f_code)
        left.discard(frame.f_lineno)
        return self._executed


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None}
