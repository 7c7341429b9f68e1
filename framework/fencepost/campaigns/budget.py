"""The time that a campaign of several runs may take, so that a job of CI ends by itself.

A run that is cut short by the limit of its job decides nothing, and its cluster is left to whoever
finds it. So no round of runs begins that may not end in time: it is taken to last as long as the
longest one so far, and a tenth more. The first one always begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

_MORE = 1.1


@final
class Budget:
    """A limit in nanoseconds, None: no limit; `now_ns` is the clock."""

    def __init__(self, limit_ns: int | None, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._began_ns = self._last_ns = now_ns()
        self._limit_ns = limit_ns
        self._longest_ns = 0
        self.spent = False
        """Whether it had no time for another round."""

    def rounds(self, rounds: Sequence[range]) -> Iterator[range]:
        """The rounds that may begin, one after the other ended."""
        for number, one in enumerate(rounds):
            now_ns = self._now_ns()
            self._longest_ns = max(self._longest_ns, now_ns - self._last_ns) if number else 0
            self._last_ns = now_ns
            needed_ns = now_ns - self._began_ns + _MORE * self._longest_ns
            if number and self._limit_ns is not None and needed_ns > self._limit_ns:
                self.spent = True
                return
            yield one


def in_rounds(runs: int, jobs: int) -> Sequence[range]:
    """The numbers of the runs, as many in a round as there are jobs."""
    return [range(first, min(first + jobs, runs)) for first in range(0, runs, jobs)]
