"""Makes the timeline of a run from its tables: lanes, shapes and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from textwrap import shorten

from fencepost import slot_of
from fencepost.reporting import BINS, DensityRow, FaultRow, SpanRow
from fencepost_reports.one_run.processes import CLIENT, HARNESS
from fencepost_reports.one_run.tables import EventRow, FailureRow, ProcessRow, RunTables
from fencepost_reports.pages.drawing import Lane, Mark, Span, Timeline, Window, seconds

LABEL = 40
"""The most characters of what a fault does in its label; its tooltip has all of it."""
CLIENTS_APART = 6
"""How many clients of one kind have lanes of their own; more than these share one."""
STATES = 5_000
"""How many states a timeline draws at most: those of nodes first, then the longest."""
LOOKS = 5
"""How many states have a colour of their own; further ones share the last."""
_UNMARKED = frozenset({"fault.injected", "fault.healed"})
"""Kinds that have a bar of their own."""


def ms(run: RunTables, at_ns: int) -> float:
    """Milliseconds since the run began."""
    return (at_ns - run.about.began_ns) / 1e6


def raw(position: int) -> str:
    """The place of the recorded event at a position: a file of the run's folder, and its line."""
    return f"history.ndjson:{position + 1}"


def mark_id(position: int) -> str:
    """The id by which links find the event at a position."""
    return f"e{position}"


def violation_id(run: RunTables, failure: FailureRow) -> str:
    """The id by which links find a violation."""
    return f"v{[one.id for one in run.failures].index(failure.id)}"


def looks(run: RunTables) -> Mapping[str, str]:
    """State -> the class of its look, for states in which a process holds authority.

    States of nodes come first, in the order in which they occurred. All states without authority
    look alike.
    """
    held = sorted((s for s in run.spans if s.held), key=lambda s: (not s.own, s.from_ns))
    states = list(dict.fromkeys(span.state for span in held))
    return {state: f"held-{min(number, LOOKS - 1)}" for number, state in enumerate(states)}


def scopes(run: RunTables) -> Sequence[str]:
    """The scopes that a reader may choose to see, besides those that are always shown."""
    return sorted({span.scope for span in drawn(run) if not span.own})


def drawn(run: RunTables) -> Sequence[SpanRow]:
    """The states that the timeline draws, in order."""
    if len(run.spans) <= STATES:
        return run.spans
    chosen = nlargest(STATES, run.spans, key=lambda span: (span.own, span.to_ns - span.from_ns))
    return sorted(chosen, key=lambda span: span.from_ns)


def timeline(run: RunTables) -> Timeline:
    """The timeline of one run."""
    marks: dict[str, list[Mark]] = {}
    for event in run.shown:
        if event.kind not in _UNMARKED:
            marks.setdefault(event.lane, []).append(_mark(run, event))
    for failure in run.failures:
        if failure.what == "violation":
            marks.setdefault(failure.process, []).append(_violation(run, failure))
    length = max(ms(run, run.about.ended_ns), 1.0)
    spans = _spans(run)
    spans[HARNESS] = _phases(run, length)
    bars = _bars(run.density)
    lanes = [
        Lane(
            name=name,
            role=several[0].role,
            t0=min(ms(run, one.from_ns) for one in several),
            t1=max(ms(run, one.to_ns) for one in several),
            spans=[span for one in several for span in spans.get(one.process, ())],
            marks=[mark for one in several for mark in marks.get(one.process, ())],
            bars={} if name == HARNESS else _sum(bars.get(one.process, {}) for one in several),
        )
        for name, several in _grouped(sorted(run.processes, key=_Order(run))).items()
    ]
    windows = [_window(run, row) for row in sorted(run.faults, key=lambda row: row.from_ns)]
    return Timeline(run.about.run, length, lanes, windows, BINS)


def _grouped(processes: Sequence[ProcessRow]) -> Mapping[str, Sequence[ProcessRow]]:
    """The processes of each lane, by its name. Clients of one kind share a lane if there are many:
    a probe starts a worker for each few requests, and hides the nodes among them."""
    of_kind: dict[str, list[ProcessRow]] = {}
    for one in processes:
        kind = slot_of(one.process).rstrip("0123456789") if one.role == CLIENT else ""
        of_kind.setdefault(kind or one.process, []).append(one)
    lanes: dict[str, list[ProcessRow]] = {}
    for kind, several in of_kind.items():
        if len(several) > CLIENTS_APART:
            lanes[f"{kind}* ({len(several)})"] = several
        else:
            lanes.update((one.process, [one]) for one in several)
    return lanes


def _sum(bars: Iterable[dict[str, dict[int, int]]]) -> dict[str, dict[int, int]]:
    """The bars of several processes as those of one."""
    found: dict[str, dict[int, int]] = {}
    for of_one in bars:
        for sort, counts in of_one.items():
            known = found.setdefault(sort, {})
            for place, count in counts.items():
                known[place] = known.get(place, 0) + count
    return found


class _Order:
    """The order of lanes: the harness, nodes by role as they were laid out, then clients."""

    def __init__(self, run: RunTables) -> None:
        roles = dict.fromkeys(slot.role for slot in run.about.slots)
        self._place = {name: n for n, name in enumerate((HARNESS, *roles, CLIENT))}

    def __call__(self, process: ProcessRow) -> tuple[int, str, int, str]:
        slot, _, number = process.process.partition("#")
        nth = int(number) if number.isdigit() else 0
        return self._place.get(process.role, len(self._place)), slot, nth, process.process


def _mark(run: RunTables, event: EventRow) -> Mark:
    at = seconds(ms(run, event.at_ns))
    title = f"{at} {event.process}: {event.sentence} ({raw(event.position)})"
    return Mark(ms(run, event.at_ns), event.shape, title, mark_id(event.position))


def _violation(run: RunTables, failure: FailureRow) -> Mark:
    at = ms(run, failure.at_ns)
    title = f"{seconds(at)} {failure.process}: {failure.clause} is violated: {failure.says}"
    return Mark(at, "violation", title, violation_id(run, failure))


def _spans(run: RunTables) -> dict[str, Sequence[Span]]:
    """The states of each process. Without a state of its own, a process shows those it has."""
    look = looks(run)
    own = {span.process for span in run.spans if span.own}
    spans: dict[str, list[Span]] = {}
    for row in sorted(drawn(run), key=lambda row: (row.process, row.from_ns)):
        shown = row.own or row.process not in own
        spans.setdefault(row.process, []).append(_span(run, row, look, "" if shown else row.scope))
    return dict(spans)


def _span(run: RunTables, row: SpanRow, look: Mapping[str, str], scope: str) -> Span:
    t0, t1 = ms(run, row.from_ns), ms(run, row.to_ns)
    epoch = f" {row.epoch}" if row.epoch >= 0 else ""
    over = row.scope + (f", epoch {row.epoch}" if row.epoch >= 0 else "")
    title = f"{row.process} was {row.state} ({over}) from {seconds(t0)} to {seconds(t1)}"
    css = look[row.state] if row.held else "without"
    return Span(t0=t0, t1=t1, css=css, label=f"{row.state}{epoch}", title=title, scope=scope)


def _phases(run: RunTables, length: float) -> Sequence[Span]:
    begun = [(ms(run, row.from_ns), row.phase) for row in run.phases]
    ends = [*(t for t, _ in begun), length][1:]
    return [
        Span(t0, t1, "phase", name, f"phase {name} from {seconds(t0)} to {seconds(t1)}")
        for (t0, name), t1 in zip(begun, ends, strict=True)
    ]


def _bars(density: Iterable[DensityRow]) -> dict[str, dict[str, dict[int, int]]]:
    bars: dict[str, dict[str, dict[int, int]]] = {}
    for row in density:
        bars.setdefault(row.process, {}).setdefault(row.sort, {})[row.bin] = row.count
    return bars


def _window(run: RunTables, row: FaultRow) -> Window:
    t0, t1 = ms(run, row.from_ns), ms(run, row.to_ns)
    receipt = "✓" if row.receipt else "✕ no receipt"
    until = "healed" if row.healed else "never healed; the run ended"
    return Window(
        t0=t0,
        t1=t1,
        label=f"{shorten(row.words, LABEL, placeholder=' ...')} {receipt}",
        title=f"{row.sentence}; {seconds(t0)} to {seconds(t1)} ({until})",
        receipt=row.receipt,
        slots=frozenset(slot_of(target) for target in row.targets),
    )
