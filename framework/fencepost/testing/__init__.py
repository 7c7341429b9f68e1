"""For authors of tests, rules and event kinds: the types of fixtures, and histories written by
hand."""

from __future__ import annotations

from typing import Self, final

from msgspec import Struct

from fencepost.events import Cause, Event, LinkFailed
from fencepost.history.run_end import NEVER_NS, RunEnd
from fencepost.history.stalls import Stalls
from fencepost.judging.judge import judge
from fencepost.judging.verdicts import AsKnown, Broken, Forfeited, Judgement, Outcome, Verdict
from fencepost.model.clock import MS
from fencepost.model.cluster import Cluster, Node
from fencepost.runs.apps import Apps
from fencepost.runs.demonstration import Demonstrable, Demonstration, Scene
from fencepost.runs.faults import Active, Faults
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.runs.schedule import Asked, Injection, Schedule, Skipped
from fencepost.testing.event_log import EventLog

__all__ = [
    "Active",
    "Apps",
    "AsKnown",
    "Asked",
    "Broken",
    "Cluster",
    "Demonstrable",
    "Demonstration",
    "EventLog",
    "Faults",
    "Forfeited",
    "HistoryBuilder",
    "Injection",
    "Judgement",
    "Node",
    "Outcome",
    "Run",
    "RunResult",
    "RunSpec",
    "Scene",
    "Schedule",
    "Skipped",
    "Verdict",
    "judge",
]


@final
class HistoryBuilder:
    """A history written by hand: each event comes 1 ms after the one before unless a time is given.

    `node_seq` counts for each process separately. The history holds exactly the events that were
    added, in that order.
    """

    def __init__(self, run: str = "run", start_ms: int = 1_000) -> None:
        self._run = run
        self._now_ns = start_ms * MS
        self._next: dict[str, int] = {}
        self._events: list[Event] = []

    @property
    def now_ns(self) -> int:
        """The time of the next event."""
        return self._now_ns

    def add(self, process: str, body: Struct, cause: Cause | None = None) -> Event:
        """Adds one event, now; time moves on by 1 ms."""
        seq = self._next.get(process, 0)
        self._next[process] = seq + 1
        event = Event(
            run=self._run, process=process, node_seq=seq, at_ns=self._now_ns, body=body, cause=cause
        )
        self._events.append(event)
        self._now_ns += MS
        return event

    def after(self, ms: int) -> Self:
        """Lets that many milliseconds pass."""
        self._now_ns += ms * MS
        return self

    def events(self) -> tuple[Event, ...]:
        """The history so far."""
        return tuple(self._events)

    def end(self, complete: bool = True) -> RunEnd:
        """The end of the run, now; its stalls are those of `process.stalled` events, and links that
        failed make it incomplete."""
        stalls = Stalls()
        for event in self._events:
            stalls.take(event)
        failed = [event.body for event in self._events if isinstance(event.body, LinkFailed)]
        damage = tuple(one.sentence() for one in failed)
        damage += () if complete else ("the run's end is not recorded",)
        doubtful_ns = min((one.since_ns for one in failed), default=NEVER_NS)
        return RunEnd(
            not damage,
            self._now_ns,
            damage,
            tuple(stalls.found),
            doubtful_from_ns=doubtful_ns,
            lost_from_ns=min(doubtful_ns, self._now_ns),
        )
