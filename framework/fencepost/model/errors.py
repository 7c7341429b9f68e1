"""Exceptions by where the fault lies: with the user, the environment, or the system under test.

Each class carries the exit code of the command line. A violation is an `AssertionError`, so that
pytest and Allure report the test as failed; they report any other error as broken.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar


class FencepostError(Exception):
    """An error that Fencepost raises deliberately; its message is one sentence for a terminal."""

    exit_code: ClassVar[int] = 4


class UsageError(FencepostError):
    """The caller asked for something that does not exist or does not fit (exit code 2)."""

    exit_code: ClassVar[int] = 2


class EnvironmentFailed(FencepostError):
    """The machine, a tool or a node failed, not a promise of the system (exit code 4).

    The message is one sentence, on one line: the rest of a longer one, as the error of a library
    may be, is taken for detail. `detail` holds the last lines that a program printed, or nothing,
    and `log` is the file that has all of them. What is in no file is a note of the error, so that
    it is printed below the sentence.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, sentence: str, detail: str = "", log: Path | None = None) -> None:
        first, _, rest = sentence.partition("\n")
        super().__init__(first)
        self.detail = detail or rest.strip("\n")
        self.log = log
        if self.detail and log is None:
            self.add_note(self.detail)


class Inconclusive(FencepostError):
    """The evidence allows no verdict: a damaged history, a fault that missed (exit code 3)."""

    exit_code: ClassVar[int] = 3


class PluginFailed(FencepostError):
    """Code that a plugin gave for a system's runs raised: a log parser, a probe (exit code 2).

    The plugin's author has to act, so the sentence names the code and what it was given. It is no
    `UsageError`: a schedule skips a fault that does not fit, and goes on; it must not skip this.
    """

    exit_code: ClassVar[int] = 2


class NotApplicable(FencepostError):
    """The system does not have the requested part, by its nature (exit code 2): a test that needs
    it is skipped."""

    exit_code: ClassVar[int] = 2


class InternalError(FencepostError):
    """Fencepost, a plugin or a test failed in a way that nothing foresaw (exit code 70).

    `error` is the sentence of the exception; the message says what to do.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, error: str) -> None:
        super().__init__(
            f"internal error: {error}. This is no verdict, but a bug of Fencepost, of a plugin or "
            "of a test: report it with the lines above"
        )


class Violation(AssertionError):
    """A promise was broken (exit code 1); the message is the explanation."""

    exit_code: ClassVar[int] = 1


EXIT_CLEAN = 0
"""The command did what was asked; no clause was violated but as known, or as a test expects, and no
run was undecided."""
EXIT_VIOLATED = 1
"""A clause was violated, and neither a known finding nor an expected failure of a test says so; or
a test failed."""
EXIT_USAGE = 2
"""The command line, a setting or a test asked for something that does not exist or does not fit; or
code of a plugin, such as a log parser or a probe, raised."""
EXIT_INCONCLUSIVE = 3
"""The evidence allows no verdict."""
EXIT_ENVIRONMENT = 4
"""The machine, a tool or a node failed."""
EXIT_INTERNAL = 70
"""An error that nothing foresaw: a bug of Fencepost, of a plugin or of a test. A traceback and the
line to report it are printed."""
EXIT_INTERRUPTED = 130
"""The user interrupted the command; the processes that it started have ended."""


_NAMED = 40
"""How many names an error lists."""


def no_such(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name: `no fault named 'partiton'; did you mean 'partition'?`."""
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean '{near[0]}'?"
    elif names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        hint = f"known: {', '.join(names[:_NAMED])}{more}"
    else:
        hint = "none is known"
    return UsageError(f"no {what} named '{name}'; {hint}")
