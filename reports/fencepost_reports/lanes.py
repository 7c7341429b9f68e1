"""Rows of one run's tables to its timeline: which lane, which shape, in what words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fencepost import Event, FaultInjected, PhaseStarted, ProcessExited, ProcessSpawned
from fencepost.reporting import sentence
from fencepost_reports.drawing import Lane, Mark, Span, Timeline, Window, seconds
from fencepost_reports.schema import EventTable

Row = Mapping[str, Any]
HARNESS = "harness"
TARGETS = 2
"""How many targets of a fault its label names."""
_ROLES = ("harness", "controller", "broker", "client")
_SHAPES: Mapping[str, str] = {
    "quorum.election_started": "election",
    "replica.leadership_started": "serving",
    "replica.leadership_ended": "serving",
    "process.spawned": "started",
    "process.exited": "ended",
}
_UNMARKED = frozenset({"fault.injected", "fault.healed", "run.phase"})
"""Kinds that have a bar of their own."""
_STATES: Mapping[str, str] = {
    "ACTIVE": "active",
    "FENCED": "fenced",
    "CONTROLLER": "controller",
    "SHUTDOWN": "shutdown",
}


@final
@dataclass(frozen=True, slots=True)
class RunTables:
    """What was collected of one run: lists of rows, by the names of the tables they come from."""

    run: Row
    number: int
    processes: Sequence[Row]
    spans: Sequence[Row]
    density: Sequence[Row]
    shown: Sequence[Row]
    windows: Sequence[Row]
    authority: Sequence[Row]
    violations: Sequence[Row]
    operations: Sequence[Row]
    verdicts: Sequence[Row]

    def ms(self, at_ns: int) -> float:
        """Milliseconds since the run began."""
        return float(at_ns - self.run["run_began_ns"]) / 1e6

    def mark_id(self, position: int) -> str:
        """How links find the event at a position."""
        return f"r{self.number}-e{position}"

    def violation_id(self, row: Row) -> str:
        """How links find a violation."""
        numbers = {v["id"]: n for n, v in enumerate(self.violations)}
        return f"r{self.number}-v{numbers[row['id']]}"


def timeline(run: RunTables, table: EventTable, bins: int) -> Timeline:
    """The timeline of one run."""
    marks: dict[str, list[Mark]] = {}
    phases: list[tuple[float, str]] = []
    authority = {row["position"]: row for row in run.authority}
    for row in run.shown:
        event = table.event(row)
        if isinstance(event.body, PhaseStarted):
            phases.append((run.ms(event.at_ns), event.body.phase))
        known = authority.get(row["position"])
        if row["kind"] not in _UNMARKED:
            marks.setdefault(_lane_of(event), []).append(_mark(run, row, event, known))
    for row in run.violations:
        marks.setdefault(row["process"], []).append(
            Mark(
                run.ms(row["at_ns"]),
                "violation",
                f"{_stamp(run, row)}: {row['clause']} is violated: {row['says']}",
                run.violation_id(row),
            )
        )
    length = max(run.ms(run.run["run_ended_ns"]), 1.0)
    spans = _spans(run)
    spans[HARNESS] = _phases(phases, length)
    bars = _bars(run.density)
    lanes = [
        Lane(
            process["process"],
            process["slot_role"],
            run.ms(process["from_ns"]),
            run.ms(process["to_ns"]),
            spans.get(process["process"], ()),
            marks.get(process["process"], ()),
            {} if process["process"] == HARNESS else bars.get(process["process"], {}),
        )
        for process in sorted(run.processes, key=_order)
    ]
    return Timeline(run.run["run"], length, lanes, _windows(run), bins)


def _order(process: Row) -> tuple[int, str, int, str]:
    role = process["slot_role"]
    slot, _, number = process["process"].partition("#")
    place = _ROLES.index(role) if role in _ROLES else len(_ROLES)
    return place, slot, int(number) if number.isdigit() else 0, process["process"]


def _lane_of(event: Event) -> str:
    """The process an event is about: what the harness does to one stands on that one's lane."""
    match event.body:
        case ProcessSpawned(started=process) | ProcessExited(ended=process):
            return process
        case _:
            return event.process


def _mark(run: RunTables, row: Row, event: Event, authority: Row | None) -> Mark:
    if authority is None:
        shape = _SHAPES.get(row["kind"], "note")
    elif authority["effect"] == "gives":
        shape = "gives"
    else:
        shape = "epoch" if authority["family"] == "epoch" else "takes"
    title = f"{_stamp(run, row)}: {sentence(event)}"
    return Mark(run.ms(row["at_ns"]), shape, title, run.mark_id(row["position"]))


def _stamp(run: RunTables, row: Row) -> str:
    return f"{seconds(run.ms(row['at_ns']))} {row['process']}"


def _spans(run: RunTables) -> dict[str, Sequence[Span]]:
    spans: dict[str, list[Span]] = {}
    for row in sorted(run.spans, key=lambda r: (r["process"], r["from_ns"])):
        t0, t1 = run.ms(row["from_ns"]), run.ms(row["until_ns"])
        epoch = f" {row['span_epoch']}" if row["span_epoch"] >= 0 else ""
        label = f"{row['state']}{epoch}"
        title = f"{row['process']} was {label} from {seconds(t0)} to {seconds(t1)}"
        css = _STATES.get(row["state"], "other")
        spans.setdefault(row["process"], []).append(Span(t0, t1, css, label, title))
    return dict(spans)


def _phases(phases: Sequence[tuple[float, str]], length: float) -> Sequence[Span]:
    ends = [*(t for t, _ in phases), length][1:]
    return [
        Span(t0, t1, "phase", name, f"phase {name} from {seconds(t0)} to {seconds(t1)}")
        for (t0, name), t1 in zip(phases, ends, strict=True)
    ]


def _bars(density: Iterable[Row]) -> dict[str, dict[str, dict[int, int]]]:
    bars: dict[str, dict[str, dict[int, int]]] = {}
    for row in density:
        bars.setdefault(row["process"], {}).setdefault(row["sort"], {})[row["bin"]] = row["count"]
    return bars


def _windows(run: RunTables) -> list[Window]:
    return [_window(run, row) for row in sorted(run.windows, key=lambda r: r["from_ns"])]


def _window(run: RunTables, row: Row) -> Window:
    t0, t1 = run.ms(row["from_ns"]), run.ms(row["to_ns"])
    few = ", ".join(row["targets"][:TARGETS])
    more = f" +{len(row['targets']) - TARGETS}" if len(row["targets"]) > TARGETS else ""
    receipt = "✓" if row["receipt"] else "✕ no receipt"
    body = FaultInjected(
        row["fault_id"], row["fault"], tuple(row["targets"]), row["receipt"], row["evidence"]
    )
    until = "healed" if row["healed"] else "never healed; the run ended"
    return Window(
        t0,
        t1,
        f"{row['fault']} {few}{more} {receipt}",
        f"{sentence(Event('', HARNESS, 0, 0, body))}; {seconds(t0)} to {seconds(t1)} ({until})",
        row["receipt"],
        frozenset(target.partition("#")[0] for target in row["targets"]),
    )
