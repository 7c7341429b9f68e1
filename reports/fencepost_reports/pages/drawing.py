"""One run's timeline as an SVG that needs no script: one lane per process, time from left to right.

The page's script moves these shapes and draws none itself. Every shape with a place in time has it
in milliseconds since the run began (`data-t`, or `data-t0` and `data-t1`). Bars of density are one
path in thousandths of the run, which the script stretches. No information is in colour alone:
states are written out or hatched, and marks differ in shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import final

from fencepost import slot_of

WIDTH, GUTTER, RIGHT, MARGIN = 1280, 176, 20, 9
"""Time runs from `GUTTER` to `WIDTH` less `RIGHT`; marks at its ends need the `MARGIN` besides."""
LANE, MARKS, STATE, DENSITY = 46, 14, 12, 17
"""Heights: of a lane, and in it of its marks, its band of states and its bars of density."""
AXIS, FAULT_ROW = 26, 18
CHARACTER = 6.1
"""The width of a character of the labels within bars."""
STACKED = ("ok", "failed", "unknown", "refused", "other")
"""The sorts of density, from the bottom of a bar upwards."""
TICK_STEPS_MS = tuple(m * 10**e for e in range(14) for m in (1, 2, 5))


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A state that lasted: `css` names its look, `label` is written in it.

    With a `scope`, it is drawn once a reader chooses that scope.
    """

    t0: float
    t1: float
    css: str
    label: str
    title: str
    scope: str = ""


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: `shape` is one of `SHAPES`; `id` is how the page's links find it."""

    t: float
    shape: str
    title: str
    id: str = ""


@final
@dataclass(frozen=True, slots=True)
class Lane:
    """A process, alive from `t0` to `t1`; `bars` are counts by sort and bin."""

    name: str
    role: str
    t0: float
    t1: float
    spans: Sequence[Span] = ()
    marks: Sequence[Mark] = ()
    bars: Mapping[str, Mapping[int, int]] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault while it was on; `slots` are those of its targets."""

    t0: float
    t1: float
    label: str
    title: str
    receipt: bool
    slots: frozenset[str]


@final
@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawing of a run of `length` milliseconds, in `bins` bars."""

    name: str
    length: float
    lanes: Sequence[Lane]
    windows: Sequence[Window]
    bins: int


SHAPES: Mapping[str, str] = {
    "takes": '<path d="M-5-5h10l-5 10z"/>',
    "gives": '<path d="M-4 4h8l-4-8z"/>',
    "epoch": '<path d="M-1 7v-14h8l-2.5 3.5 2.5 3.5h-6v7z"/>',
    "violation": '<path d="M0-9 9 0 0 9-9 0z"/><path class="bang" d="M0-5v6M0 3v2"/>',
    "started": '<path d="M-3-5 4 0-3 5z"/>',
    "ended": '<path d="M-4-4 4 4M-4 4 4-4"/>',
    "note": '<circle r="2"/>',
}
"""The SVG of a mark, by its shape."""
LEGEND: Sequence[tuple[str, str]] = (
    ("takes", "authority lost"),
    ("gives", "authority gained in the same epoch"),
    ("epoch", "authority gained in a new epoch"),
    ("started", "process started"),
    ("ended", "process ended"),
    ("violation", "a promise broken"),
)


def draw(timeline: Timeline) -> str:
    """The SVG of a timeline, which needs `definitions` beside it; it fits any width, and prints."""
    scale = _Scale(timeline.length)
    faults, rows = _rows(timeline.windows, scale)
    top = AXIS + rows * FAULT_ROW + 6
    height = top + LANE * len(timeline.lanes) + 4
    clip = f"clip-{timeline.name}"
    parts = [
        f'<svg class="timeline" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(_summary(timeline))}" data-length="{timeline.length:.3f}" '
        f'data-gutter="{GUTTER}" data-right="{RIGHT}" data-margin="{MARGIN}" '
        f'data-top="{AXIS}" data-height="{height}">',
        f'<clipPath id="{escape(clip)}"><rect class="plot" x="{GUTTER - MARGIN}" y="0" '
        f'width="{WIDTH - GUTTER - RIGHT + 2 * MARGIN}" height="{height}"/></clipPath>',
        *(_lane_ground(lane, top + LANE * n) for n, lane in enumerate(timeline.lanes)),
        f'<g clip-path="url(#{escape(clip)})">',
        *(_shade(window, timeline.lanes, scale, top, height) for window in timeline.windows),
        f'<g class="axis">{"".join(_ticks(timeline.length, scale, height))}</g>',
        *(_fault(w, row, scale) for w, row in zip(timeline.windows, faults, strict=True)),
        *(
            _lane(lane, top + LANE * n, scale, timeline.bins)
            for n, lane in enumerate(timeline.lanes)
        ),
        "</g>",
        *(_lane_name(lane, top + LANE * n) for n, lane in enumerate(timeline.lanes)),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


@final
@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts milliseconds to x coordinates of the unzoomed drawing."""

    length: float

    def x(self, t: float) -> float:
        return GUTTER + (WIDTH - GUTTER - RIGHT) * min(max(t / self.length, 0.0), 1.0)


def _summary(timeline: Timeline) -> str:
    broken = sum(mark.shape == "violation" for lane in timeline.lanes for mark in lane.marks)
    return (
        f"Timeline of {timeline.name}: {timeline.length / 1000:.1f} seconds, "
        f"{len(timeline.lanes)} processes, {len(timeline.windows)} faults, {broken} violations"
    )


def definitions() -> str:
    """The definitions that all timelines of one page use: shapes of marks, and hatchings."""
    shapes = "".join(f'<g id="m-{name}">{path}</g>' for name, path in SHAPES.items())
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="definitions" width="0" height="0" '
        'aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<path class="hatching" d="M0 0v6"/></pattern>'
        '<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<circle class="dotting" cx="2" cy="2" r="1"/></pattern>{shapes}</defs></svg>'
    )


def _rows(windows: Sequence[Window], scale: _Scale) -> tuple[list[int], int]:
    """The row of each fault, so that no bar or label covers another; and the number of rows."""
    free: list[float] = []
    rows: list[int] = []
    for window in windows:
        x0 = scale.x(window.t0)
        needed = max(scale.x(window.t1), x0 + len(window.label) * CHARACTER + 10)
        row = next((n for n, until in enumerate(free) if until <= x0), len(free))
        free[row:] = [needed, *free[row + 1 :]]
        rows.append(row)
    return rows, len(free)


def _between(t0: float, t1: float, scale: _Scale) -> str:
    x0, x1 = scale.x(t0), scale.x(t1)
    return f'data-t0="{t0:.3f}" data-t1="{t1:.3f}" x="{x0:.1f}" width="{max(x1 - x0, 1):.1f}"'


def _fitting(t0: float, t1: float, y: float, label: str, scale: _Scale) -> str:
    """A label that is shown only if its bar is wide enough."""
    x0, x1 = scale.x(t0), scale.x(t1)
    needed = len(label) * CHARACTER + 8
    hidden = "" if x1 - x0 >= needed else ' style="display:none"'
    return (
        f'<text class="fit" data-t0="{t0:.3f}" data-t1="{t1:.3f}" data-need="{needed:.0f}" '
        f'x="{x0 + 4:.1f}" y="{y:.1f}"{hidden}>{escape(label)}</text>'
    )


def _shade(window: Window, lanes: Sequence[Lane], scale: _Scale, top: int, height: int) -> str:
    place = _between(window.t0, window.t1, scale)
    css = "shade" if window.receipt else "shade missed"
    parts = [f'<rect class="{css}" {place} y="{AXIS}" height="{height - AXIS}"/>']
    for n, lane in enumerate(lanes):
        if slot_of(lane.name) in window.slots:
            y = top + LANE * n
            parts.append(f'<rect class="hit" {place} y="{y}" height="{LANE}"/>')
    return "".join(parts)


def _fault(window: Window, row: int, scale: _Scale) -> str:
    y = AXIS + 2 + row * FAULT_ROW
    place = _between(window.t0, window.t1, scale)
    css = "fault" if window.receipt else "fault missed"
    return (
        f'<g class="{css}"><rect {place} y="{y}" height="{FAULT_ROW - 4}" rx="2"/>'
        f'<text class="beside" data-t0="{window.t0:.3f}" data-t1="{window.t1:.3f}" '
        f'x="{scale.x(window.t0) + 4:.1f}" y="{y + 11}">{escape(window.label)}</text>'
        f"<title>{escape(window.title)}</title></g>"
    )


def _ticks(length: float, scale: _Scale, height: int) -> Iterable[str]:
    step = next((s for s in TICK_STEPS_MS if length / s <= 12), TICK_STEPS_MS[-1])
    for n in range(int(length // step) + 1):
        x = scale.x(n * step)
        yield f'<path d="M{x:.1f} {AXIS - 4}V{height}"/>'
        yield f'<text x="{x + 3:.1f}" y="{AXIS - 9}">{seconds(n * step)}</text>'


def seconds(ms: float) -> str:
    """`12.3 s`, with as many decimal places as needed."""
    return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"


def _lane_ground(lane: Lane, y: int) -> str:
    return f'<rect class="ground" x="0" y="{y}" width="{WIDTH}" height="{LANE}"/>'


def _lane_name(lane: Lane, y: int) -> str:
    return (
        f'<g class="name"><text x="8" y="{y + 20}">{escape(lane.name)}</text>'
        f'<text class="role" x="8" y="{y + 34}">{escape(lane.role)}</text></g>'
    )


def _lane(lane: Lane, y: int, scale: _Scale, bins: int) -> str:
    band = y + MARKS
    parts = [
        f'<g class="lane {escape(lane.role)}" data-lane="{escape(lane.name)}" data-y="{y}">',
        f'<rect class="alive" {_between(lane.t0, lane.t1, scale)} y="{band}" height="{STATE}"/>',
        *_bars(lane.bars or {}, y + LANE - 2, bins),
    ]
    for span in lane.spans:
        place = _between(span.t0, span.t1, scale)
        chosen = f' data-scope="{escape(span.scope)}" hidden=""' if span.scope else ""
        parts.append(
            f'<g class="span {escape(span.css)}"{chosen}>'
            f'<rect {place} y="{band}" height="{STATE}"/>'
            f"{_fitting(span.t0, span.t1, band + 9.5, span.label, scale)}"
            f"<title>{escape(span.title)}</title></g>"
        )
    for mark in sorted(lane.marks, key=lambda m: (m.shape == "violation", m.t)):
        parts.append(_mark(mark, y + MARKS / 2, scale))
    return "".join([*parts, "</g>"])


def _mark(mark: Mark, y: float, scale: _Scale) -> str:
    named = f' id="{escape(mark.id)}"' if mark.id else ""
    return (
        f'<use{named} class="mark {mark.shape}" href="#m-{mark.shape}" data-t="{mark.t:.3f}" '
        f'x="{scale.x(mark.t):.1f}" y="{y:g}"><title>{escape(mark.title)}</title></use>'
    )


def _bars(bars: Mapping[str, Mapping[int, int]], bottom: int, bins: int) -> Iterable[str]:
    """Stacked bars, one path per sort. The height is the square root of the count, so that small
    counts are visible."""
    totals: dict[int, int] = {}
    for counts in bars.values():
        for n, count in counts.items():
            totals[n] = totals.get(n, 0) + count
    if not totals:
        return
    unit = DENSITY / max(totals.values()) ** 0.5
    base = dict.fromkeys(totals, 0.0)
    width = 1000 / bins
    placed = f"translate({GUTTER} 0) scale({(WIDTH - GUTTER - RIGHT) / 1000:g} 1)"
    for sort in STACKED:
        path = []
        for n, count in sorted(bars.get(sort, {}).items()):
            whole = unit * totals[n] ** 0.5
            tall = max(whole * count / totals[n], 2.5 if sort != "ok" else 1.0)
            path.append(
                f"M{n * width:.2f} {bottom - base[n]:.1f}v{-tall:.1f}h{width:.2f}v{tall:.1f}z"
            )
            base[n] += tall
        if path:
            yield f'<path class="bar {sort}" transform="{placed}" d="{"".join(path)}"/>'
