"""Feeds every fold with the events of a run, each event once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final

from msgspec import Struct

from fencepost.events import (
    ClientFailed,
    ClusterRecovered,
    ConnectionClosed,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    NodeStarted,
    NodeStopped,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    RunEnded,
    RunStarted,
    Stalled,
    TestEnded,
    TestStarted,
)
from fencepost.events.names import is_client
from fencepost.events.traits import changes_authority, tells_operations
from fencepost.history.run_end import RunEnd
from fencepost.judging.event_formatter import sentence_of
from fencepost.judging.tables.activity import ActivityFold
from fencepost.judging.tables.authority import AuthorityFold
from fencepost.judging.tables.faults import FaultFold
from fencepost.judging.tables.operations import FailedFold, OperationsFold
from fencepost.judging.tables.rows import OperationRow, PhaseRow, Sort, Tables, TestRow
from fencepost.judging.tables.service import ServiceFold

SHOWN: frozenset[type[Struct]] = frozenset(
    (
        RunStarted,
        RunEnded,
        TestStarted,
        TestEnded,
        ClusterRecovered,
        FaultInjected,
        FaultTookEffect,
        FaultHealed,
        ProcessSpawned,
        ProcessExited,
        Stalled,
        NodeStarted,
        NodeStopped,
        ConnectionClosed,
        ClientFailed,
    )
)
"""Kinds of which every event is shown by itself, beside changes of authority and failures."""
_TOLD = SHOWN | {PhaseStarted}
_SORTS: dict[str, Sort] = {"ok": "ok", "failed": "failed", "unknown": "unknown"}
"""The sort of an event by the outcome of the operation that it ends."""


@final
class TablesFold:
    """A fold over all events of a run in order; `end` gives the tables.

    `operation` is called with each operation once it has ended, or is left open at the run's end.
    """

    def __init__(self, operation: Callable[[OperationRow], None] | None = None) -> None:
        self._operation = operation
        self._position = -1
        self._authority = AuthorityFold()
        self._operations = OperationsFold()
        self._failed = FailedFold()
        self._service = ServiceFold()
        self._activity = ActivityFold()
        self._faults = FaultFold()
        self._phases: list[PhaseRow] = []
        self._tests: list[TestRow] = []
        self._test = ""
        self._exited: dict[str, int] = {}
        self._shown: list[int] = []

    def passing(self, events: Iterable[Event]) -> Iterator[Event]:
        """Passes the events of a history on, which it takes, too."""
        for event in events:
            self.take(event)
            yield event

    def take(self, event: Event) -> None:
        """Applies the next event."""
        self._position += 1
        body = event.body
        if type(body) in _TOLD:
            self._tell(event)
        sort: Sort | None = None if is_client(event.process) else "other"
        if changes_authority(body):
            refuses = self._authority.apply(self._position, event, body.authority())
            if refuses and sort is not None:
                sort = "refused"
        if tells_operations(body):
            ended = self._operations.apply(self._position, event, body)
            # An event that ends several operations is counted by the first of them.
            sort = _SORTS[ended[0].outcome] if ended else None
            for row in ended:
                self._end(row)
        self._activity.apply(event, sort)

    def _end(self, row: OperationRow) -> None:
        self._service.apply(row)
        if row.outcome in ("failed", "unknown"):
            self._failed.apply(row, self._faults.active)
        if self._operation is not None:
            self._operation(row)

    def _tell(self, event: Event) -> None:
        """Applies one of the few events that everything else refers to: faults, phases, lives of
        processes, tests."""
        body = event.body
        if type(body) in SHOWN:
            self._shown.append(self._position)
        match body:
            case FaultInjected() | FaultTookEffect() | FaultHealed():
                changed_ns = self._faults.apply(event)
                if changed_ns is not None:
                    self._service.stretches.cut(changed_ns)
            case PhaseStarted(phase=phase):
                self._phases.append(PhaseRow(phase=phase, from_ns=event.at_ns))
            case TestStarted(nodeid=nodeid):
                self._test = nodeid
            case TestEnded(nodeid=nodeid, outcome="failed" | "error", error=error):
                self._tests.append(
                    TestRow(
                        process=event.process,
                        seq=event.node_seq,
                        nodeid=nodeid,
                        outcome=body.outcome,
                        says=error or sentence_of(body),
                    )
                )
            case NodeStarted():
                self._authority.process(event)
            case ProcessExited(ended=ended):
                self._exited[ended] = event.at_ns
                self._authority.process(event)

    def end(self, end: RunEnd) -> Tables:
        """The tables, once no event is left."""
        ended_ns = end.ended_at_ns
        for row in self._operations.unended(ended_ns):
            self._end(row)
        faults = self._faults.rows(ended_ns)
        return Tables(
            authority=tuple(
                sorted(self._authority.rows, key=lambda row: (row.position, row.scope))
            ),
            spans=tuple(self._authority.spans(ended_ns)),
            failed=tuple(self._failed.rows),
            silences=tuple(self._service.silences),
            latencies=tuple(self._service.stretches.latencies(faults)),
            seen=tuple(self._activity.seen()),
            density=tuple(self._activity.density(end.began_at_ns, ended_ns)),
            faults=tuple(faults),
            phases=tuple(self._phases),
            tests=tuple(self._tests),
            test=self._test,
            nodes={process: tuple(nodes) for process, nodes in self._authority.nodes.items()},
            exited=self._exited,
            shown=tuple(self._shown),
        )
