"""The few events of a run that everything else refers to: faults, phases, lives of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost import (
    ClientFailed,
    ClusterRecovered,
    ConnectionClosed,
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
from fencepost_reports.one_run.faults import FaultFold
from fencepost_reports.one_run.history import History, Placed
from fencepost_reports.one_run.tables import PhaseRow

END = "end"
"""The phase in which the harness ends the nodes."""
SHOWN: tuple[type[Struct], ...] = (
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
"""Kinds of which every event is shown by itself, beside changes of authority and failures."""


@final
@dataclass(frozen=True, slots=True)
class Story:
    """What these events say; `lives` are those by which processes begin and end, in order.
    `failed_tests` are those by which a test failed.

    `nodes` maps a process to its nodes in the words of a scope, `exited` one to when it ended.
    """

    faults: FaultFold
    phases: Sequence[PhaseRow]
    test: str
    failed_tests: Sequence[Placed]
    lives: Sequence[Placed]
    nodes: Mapping[str, Sequence[str]]
    exited: Mapping[str, int]
    shown: frozenset[int]
    """The positions of the events that are shown by themselves."""

    def nodes_end_ns(self, ended_ns: int) -> int:
        """When the harness begins to end the nodes; otherwise the run's end."""
        ends = (row.from_ns for row in self.phases if row.phase == END)
        return next(ends, ended_ns + 1)


def story_of(history: History) -> Story:
    """The story of a run; reads the history once."""
    faults, test = FaultFold(), ""
    phases: list[PhaseRow] = []
    failed_tests: list[Placed] = []
    lives: list[Placed] = []
    nodes: dict[str, list[str]] = {}
    exited: dict[str, int] = {}
    shown: set[int] = set()
    for position, event in history.events((*SHOWN, PhaseStarted)):
        faults.apply(position, event)
        match event.body:
            case PhaseStarted(phase=phase):
                phases.append(PhaseRow(phase=phase, from_ns=event.at_ns))
            case TestStarted(nodeid=nodeid):
                test = nodeid
            case TestEnded(outcome="failed" | "error"):
                failed_tests.append((position, event))
            case NodeStarted(role=role, node_id=node_id):
                nodes.setdefault(event.process, []).append(f"{role} {node_id}")
                lives.append((position, event))
            case ProcessExited(ended=ended):
                exited[ended] = event.at_ns
                lives.append((position, event))
        if isinstance(event.body, SHOWN):
            shown.add(position)
    return Story(
        faults=faults,
        phases=phases,
        test=test,
        failed_tests=failed_tests,
        lives=lives,
        nodes=nodes,
        exited=exited,
        shown=frozenset(shown),
    )
