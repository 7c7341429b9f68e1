"""Kinds of events about programs of the user's own, and about their checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from fencepost.events.words import because


class AppStarted(Struct, frozen=True, gc=False, tag="app.started", kw_only=True):
    """The harness started an instance of a program of the user's; its end is `process.exited`.

    `argv` has no secrets. `may_end`: it may end by itself with code 0. `works_again_ms` is how long
    after the last heal it may take until it is ready once more (0: nobody asks).
    """

    by_harness: ClassVar[bool] = True

    app: str
    started: str
    argv: tuple[str, ...]
    may_end: bool
    works_again_ms: int

    def sentence(self) -> str:
        return f"began {self.started} of the app {self.app}: {' '.join(self.argv)}"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.started}",)


class AppReady(Struct, frozen=True, gc=False, tag="app.ready", kw_only=True):
    """A program of the user's is ready: its line was printed, or its port or URL has answered."""

    ready: str

    def sentence(self) -> str:
        return f"{self.ready} is ready"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.ready}",)


class AppWorksAgain(Struct, frozen=True, gc=False, tag="app.works_again", kw_only=True):
    """Whether an instance was ready once more within its bound after the last heal; `why` says what
    it answered instead."""

    by_harness: ClassVar[bool] = True

    app: str
    slot: str
    works: bool
    took_ms: int
    bound_ms: int
    why: str = ""

    def sentence(self) -> str:
        if self.works:
            return f"{self.slot} works again, {self.took_ms} ms after the last heal"
        return (
            f"{self.slot} did not work again within {self.bound_ms} ms of the last heal"
            f"{because(self.why)}"
        )

    def concerns(self) -> Sequence[str]:
        return (f"slot {self.slot}",)


class CheckJudged(Struct, frozen=True, gc=False, tag="check.judged", kw_only=True):
    """A check of the user's was asked at the end of the run, until it held or its bound was over.

    `error` is what it said last, as free text. `unknown`: it did not answer, or raised something
    else than an AssertionError.
    """

    by_harness: ClassVar[bool] = True

    check: str
    outcome: Literal["held", "violated", "unknown"]
    took_ms: int
    error: str = ""

    def sentence(self) -> str:
        how = {"held": "holds", "violated": "does not hold", "unknown": "cannot be judged"}
        return f"the check {self.check} {how[self.outcome]}{because(self.error)}"
