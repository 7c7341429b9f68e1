"""How fast all rules judge a history, and whether a long one costs more an event than a short one.

    ./dev bench rules [--json] [--runs N]

One core, histories of 10^4, 10^5 and 10^6 made events (`steady.py`). Only the judging is timed, and
apart from it (`folded_us_per_event`) what a report needs, which is folded in the same pass; the
events are made, a few thousand at a time, beside it.
"""

from __future__ import annotations

import time
from itertools import islice

from report import parse, show, summary
from steady import steady

from fencepost import RunEnd
from fencepost.judging.judge import Judge
from fencepost.judging.tables.fold import TablesFold
from fencepost.judging.verdicts import Judgement, Outcome
from fencepost.plugins.manager import Plugins, load

SIZES = (10_000, 100_000, 1_000_000)
GOAL_EVENTS_PER_S = 300_000
GOAL_GROWTH = 1.3
CHUNK = 10_000


def judge(plugins: Plugins, size: int) -> tuple[float, float, Judgement]:
    """Microseconds an event of judging and of folding, and the verdicts."""
    judging = Judge(plugins.rules, plugins.clauses, "quorum")
    fold = TablesFold()
    events = steady(size)
    took, folded, count, last_ns = 0.0, 0.0, 0, 0
    while chunk := list(islice(events, CHUNK)):
        began = time.perf_counter()
        judging.take(chunk)
        took += time.perf_counter() - began
        began = time.perf_counter()
        for event in chunk:
            fold.take(event)
        folded += time.perf_counter() - began
        count += len(chunk)
        last_ns = chunk[-1].at_ns
    began = time.perf_counter()
    judgement = judging.end(RunEnd(True, last_ns))
    took += time.perf_counter() - began
    began = time.perf_counter()
    fold.end(RunEnd(True, last_ns))
    folded += time.perf_counter() - began
    return took / count * 1e6, folded / count * 1e6, judgement


def main() -> None:
    options = parse(__doc__, runs=3)
    plugins = load()
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    folds: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(options.runs):
        for size, figures in found.items():
            figure, fold, judgement = judge(plugins, size)
            figures.append(figure)
            folds[size].append(fold)
            broken = judgement.of(Outcome.VIOLATED)
            assert not broken, f"the made history breaks {broken}: it measures the wrong thing"
    fastest = {size: min(figures) for size, figures in found.items()}
    growth = fastest[SIZES[-1]] / fastest[SIZES[0]]
    events_per_s = 1e6 / fastest[SIZES[-1]]
    show(
        options,
        {
            "bench": "rules",
            "runs": options.runs,
            "rules": len(plugins.rules),
            "us_per_event": {str(size): summary(figures) for size, figures in found.items()},
            "folded_us_per_event": {str(size): summary(one) for size, one in folds.items()},
            "events_per_s": round(events_per_s),
            "goal_events_per_s": GOAL_EVENTS_PER_S,
            "growth": round(growth, 2),
            "goal_growth": GOAL_GROWTH,
            "met": events_per_s >= GOAL_EVENTS_PER_S and growth <= GOAL_GROWTH,
        },
    )


if __name__ == "__main__":
    main()
