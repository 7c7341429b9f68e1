"""Reads a hundred thousand run folders that were changed at random; any error but ours is a bug.

    ./dev bench folders [--json] [--folders N] [--seed N] [--jobs N]

The folders are those of `tests/reports/foreign_folders.py`; every tenth is also made into a page.
None may take longer than GOAL_S, and the memory of each process may not grow by more than
GOAL_GROWTH_MB beyond that after its first hundred.
"""

from __future__ import annotations

import argparse
import os
import random  # noqa: TID251 - seeded: always the same folders
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))

from foreign_folders import Foreign

from fencepost.campaigns.jobs import done

GOAL_S = 10.0
GOAL_GROWTH_MB = 300
WARM = 100
KB_OF_MB = 1 << 10


@dataclass(frozen=True, slots=True)
class Read:
    """What one process found in its part of the folders."""

    refused: int
    slowest_s: float
    slowest: int
    growth_mb: float


def read(foreign: Foreign, root: Path, seed: int, numbers: range) -> Read:
    """Makes and reads the folders with these numbers; raises any error but ours."""
    refused, slowest_s, slowest, warm_kb = 0, 0.0, 0, 0
    for place, number in enumerate(numbers):
        with tempfile.TemporaryDirectory(dir=root) as made:
            folder, out = Path(made, "run"), Path(made, "out")
            folder.mkdir()
            foreign.write(folder, random.Random(f"{seed}/{number}"))
            from_s = time.perf_counter()
            try:
                refused += bool(foreign.read(folder, None if number % 10 else out))
            except BaseException:
                print(f"the folder {number} of seed {seed}:", file=sys.stderr)
                raise
            slowest_s, slowest = max((slowest_s, slowest), (time.perf_counter() - from_s, number))
        if place == WARM:
            warm_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm_kb
    return Read(refused, slowest_s, slowest, grown_kb / KB_OF_MB)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folders", type=int, default=100_000, help="how many (100,000)")
    parser.add_argument("--seed", type=int, default=1, help="which folders (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (cores)")
    options = parser.parse_args()
    began = time.perf_counter()
    parts = [range(n, options.folders, options.jobs) for n in range(options.jobs)]
    with tempfile.TemporaryDirectory() as root:
        foreign = Foreign.recorded(Path(root, "recorded"))
        # Children of a process that has read one have all modules already.
        read(foreign, Path(root), options.seed, range(1))
        found = [
            one
            for _, one in done(
                lambda part: read(foreign, Path(root), options.seed, part), parts, options.jobs
            )
        ]
    slowest_s, slowest = max((one.slowest_s, one.slowest) for one in found)
    growth_mb = max(one.growth_mb for one in found)
    show(
        options,
        {
            "bench": "folders",
            "folders": options.folders,
            "seed": options.seed,
            "refused": sum(one.refused for one in found),
            "jobs": options.jobs,
            "folders_per_s": round(options.folders / (time.perf_counter() - began)),
            "slowest_s": round(slowest_s, 2),
            "slowest_folder": slowest,
            "goal_s": GOAL_S,
            "growth_mb": round(growth_mb, 1),
            "goal_growth_mb": GOAL_GROWTH_MB,
            "met": slowest_s <= GOAL_S and growth_mb <= GOAL_GROWTH_MB,
        },
    )


if __name__ == "__main__":
    main()
