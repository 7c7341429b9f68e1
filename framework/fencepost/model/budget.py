"""The time that several runs may take, so that a job of CI ends by itself.

A run that is cut short by the limit of its job decides nothing, and its cluster is left to whoever
finds it. So nothing begins that may not end in time: it is taken to last as long as the longest one
so far, and a tenth more. The first one always begins. Once there was no time for one, no other
begins: a shorter one would take the place of the longer ones, budget after budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

_MORE = 1.1


@final
class Budget:
    """A limit in nanoseconds, None: no limit; `now_ns` is the clock. It begins at `began_ns`, or
    now."""

    def __init__(
        self, limit_ns: int | None, now_ns: Callable[[], int], began_ns: int | None = None
    ) -> None:
        self._now_ns = now_ns
        self.began_ns = now_ns() if began_ns is None else began_ns
        self._limit_ns = limit_ns
        self._longest_ns = 0
        self._last_ns: int | None = None
        """When the last one began; None: none has."""
        self.spent = False
        """Whether it had no time for another one."""

    def may_begin(self) -> bool:
        """Whether another one may begin, after the last one has ended; if so, it begins now."""
        now_ns, last_ns = self._now_ns(), self._last_ns
        if last_ns is not None and not self.spent:
            self._longest_ns = max(self._longest_ns, now_ns - last_ns)
            needed_ns = now_ns - self.began_ns + _MORE * self._longest_ns
            self.spent = self._limit_ns is not None and needed_ns > self._limit_ns
        if not self.spent:
            self._last_ns = now_ns
        return not self.spent

    def rounds(self, rounds: Sequence[range]) -> Iterator[range]:
        """The rounds that may begin, one after the other ended."""
        for one in rounds:
            if not self.may_begin():
                return
            yield one


def in_rounds(runs: int, jobs: int) -> Sequence[range]:
    """The numbers of the runs, as many in a round as there are jobs."""
    return [range(first, min(first + jobs, runs)) for first in range(0, runs, jobs)]
