"""Where the logs of replicas end, by what their nodes report of them."""

from __future__ import annotations

from typing import Generic, TypeVar, final

Log = TypeVar("Log")


@final
class LogEnds(Generic[Log]):
    """The end of each log, by its key.

    Two threads of a node report on one log: one names its end when the replica begins to lead or to
    follow, and one reports each batch, perhaps a moment after the other has named the end that this
    batch made. Then the log is behind what was named, until that batch is reported.
    """

    def __init__(self) -> None:
        self.known: dict[Log, int] = {}
        self.behind: dict[Log, int] = {}
        """Logs whose named end no batch has led to yet, and how far batches have led."""

    def names(self, log: Log, end: int) -> None:
        """A replica begins to lead or to follow, and names the end of its log."""
        # The end that is named lies behind batches that are not reported yet: how far they had led
        # is kept, so that the next batch is compared with that.
        if self.known.get(log, end) < end:
            self.behind.setdefault(log, self.known[log])
        else:
            self.behind.pop(log, None)
        self.known[log] = end

    def appends(self, log: Log, base: int, end: int) -> int:
        """A replica has stored a batch from `base` to `end`; returns the end of its log before:
        `base`, unless a batch is missing or stored twice. A log of which nothing is known began at
        `base`."""
        ended = self.known.get(log, base)
        if self.behind:
            reached = self.behind.pop(log, None)
            if reached == base and end <= ended:
                self.behind[log] = end
                return base
        self.known[log] = end
        return ended

    def cuts(self, log: Log, end: int) -> None:
        """A replica has dropped all from `end` on."""
        self.known[log] = end
        self.behind.pop(log, None)

    def forgets(self, log: Log) -> None:
        """A replica has removed its log."""
        self.known.pop(log, None)
        self.behind.pop(log, None)
