"""Compares second readings of clauses with their rules, on histories that are changed at random.

    ./dev bench readings [--json] [--minutes M] [--seed S] [--family F] [--clause C] [--runs FOLDER]

Each history is that of a run in the simulator, healthy or with a planted defect, or of a recorded
run; it is cut to one key, changed a few times, and judged by the rules of every clause of its
family and by their readings (`tests/second_readings`). Where one says violated and the other sees
nothing, the smallest history on which they disagree is written into `--out`: one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from typing import Any

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent))

from second_readings.comparison import (
    DISAGREEMENTS,
    Agreement,
    Kept,
    compared,
    shrunk,
    words_of,
    write,
)
from second_readings.families import FAMILIES, Family
from second_readings.reading import History, Says
from second_readings.sources import KEPT_RUNS, histories, recorded_below, run_of

from fencepost import Codec
from fencepost.campaigns.jobs import done, jobs_for
from fencepost.plugins.manager import Plugins, load

CHANGED = 100
"""How many changed histories are made of one run."""
KEPT = 2
"""How many disagreements of a kind about one clause are shrunk and written."""
GOAL = 20_000
"""Histories of each of the first families in a night."""


class Tally:
    """What one family's comparisons have found so far."""

    def __init__(self) -> None:
        self.histories = 0
        self.found: Counter[tuple[str, Agreement]] = Counter()
        self.kept: list[dict[str, Any]] = []

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.found += other.found
        self.kept += other.kept


def of_one_run(
    family: Family,
    clauses: Sequence[str],
    source: tuple[str, History],
    seed: str,
    *,
    plugins: Plugins,
    out: Path,
) -> Tally:
    tally, random = Tally(), Random(seed)
    name, run = source
    for history in histories(family, plugins.promises, run, random, CHANGED):
        tally.histories += 1
        for clause in clauses:
            agreement = compared(clause, history, plugins.promises)
            tally.found[clause, agreement] += 1
            if agreement in DISAGREEMENTS and tally.found[clause, agreement] <= KEPT:
                small = shrunk(clause, history, plugins.promises)
                says = words_of(small, clause, plugins.promises)
                kept = Kept.of(
                    clause,
                    small,
                    f"{agreement}: {says}",
                    Says.UNDECIDED,
                    Codec(plugins.promises.kinds),
                )
                path = out / f"{clause}-{agreement}-{seed.replace('/', '-')}-{tally.histories}.json"
                write(path, kept)
                tally.kept.append(
                    {
                        "clause": clause,
                        "how": agreement.value,
                        "run": name,
                        "events": len(small.events),
                        "file": str(path),
                        **says,
                    }
                )
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--minutes", type=float, default=120.0, help="for how long (120)")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (1)")
    parser.add_argument("--family", action="append", help="only these families")
    parser.add_argument("--clause", action="append", help="only these clauses")
    parser.add_argument("--runs", type=Path, action="append", help="recorded runs below a folder")
    parser.add_argument("--jobs", type=int, default=jobs_for("simulated"))
    parser.add_argument("--out", type=Path, default=Path(".fencepost/readings"))
    options = parser.parse_args()
    plugins = load()
    folders = [
        one for root in (*KEPT_RUNS, *(options.runs or ())) for one in recorded_below(root, plugins)
    ]
    chosen = [
        (family, clauses)
        for family in FAMILIES
        if not options.family or family.name in options.family
        if (clauses := [c for c in family.clauses if not options.clause or c in options.clause])
    ]
    tallies = {family.name: Tally() for family, _ in chosen}
    until = time.monotonic() + options.minutes * 60
    turn = 0

    def work(one: tuple[Family, Sequence[str], int]) -> Tally:
        family, clauses, number = one
        seed = f"{options.seed}/{family.name}/{number}"
        source = run_of(family, plugins, Random(seed), folders)
        if source is None:
            return Tally()
        return of_one_run(family, clauses, source, seed, plugins=plugins, out=options.out)

    while time.monotonic() < until:
        batch = [
            (family, clauses, turn + number)
            for number in range(2 * options.jobs)
            for family, clauses in chosen
        ]
        turn += 2 * options.jobs
        for place, tally in done(work, batch, options.jobs):
            tallies[batch[place][0].name].add(tally)
            if time.monotonic() >= until:
                break
    show(options, report(tallies))
    if not options.json:
        for tally in tallies.values():
            for one in tally.kept:
                print(json.dumps(one))
    return 1 if any(tally.kept for tally in tallies.values()) else 0


def report(tallies: dict[str, Tally]) -> dict[str, object]:
    families = {}
    for name, tally in tallies.items():
        clauses: dict[str, dict[str, int]] = {}
        for (clause, agreement), count in sorted(tally.found.items()):
            clauses.setdefault(clause, {})[agreement.value] = count
        disagreements = sum(
            count for (_, agreement), count in tally.found.items() if agreement in DISAGREEMENTS
        )
        families[name] = {
            "histories": tally.histories,
            "disagreements": disagreements,
            "clauses": clauses,
        }
    return {
        "bench": "readings",
        **families,
        "kept": [one["file"] for tally in tallies.values() for one in tally.kept],
        "met": not any(tally.kept for tally in tallies.values()),
    }


if __name__ == "__main__":
    sys.exit(main())
