"""Reads a hundred thousand run folders that were changed at random; any error but ours is a bug.

    ./dev bench folders [--json] [--folders N] [--seed N]

The folders are those of `tests/reports/foreign_folders.py`; every tenth is also made into a page.
None may take longer than GOAL_S, and the memory of the reader may not grow by more than
GOAL_GROWTH_MB beyond that after the first hundred.
"""

from __future__ import annotations

import argparse
import random  # noqa: TID251 - seeded: always the same folders
import resource
import sys
import tempfile
import time
from pathlib import Path

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))

from foreign_folders import Foreign

GOAL_S = 10.0
GOAL_GROWTH_MB = 300
WARM = 100
KB_OF_MB = 1 << 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folders", type=int, default=100_000, help="how many (100,000)")
    parser.add_argument("--seed", type=int, default=1, help="which folders (1)")
    options = parser.parse_args()
    refused, slowest_s, warm_kb = 0, 0.0, 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        foreign = Foreign.recorded(Path(root, "recorded"))
        for number in range(options.folders):
            with tempfile.TemporaryDirectory(dir=root) as made:
                folder, out = Path(made, "run"), Path(made, "out")
                folder.mkdir()
                foreign.write(folder, random.Random(f"{options.seed}/{number}"))
                from_s = time.perf_counter()
                try:
                    refused += bool(foreign.read(folder, None if number % 10 else out))
                except BaseException:
                    print(f"the folder {number} of seed {options.seed}:", file=sys.stderr)
                    raise
                slowest_s = max(slowest_s, time.perf_counter() - from_s)
            if number == WARM:
                warm_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm_kb) / KB_OF_MB
    show(
        options,
        {
            "bench": "folders",
            "folders": options.folders,
            "seed": options.seed,
            "refused": refused,
            "folders_per_s": round(options.folders / (time.perf_counter() - began)),
            "slowest_s": round(slowest_s, 2),
            "goal_s": GOAL_S,
            "growth_mb": round(growth_mb, 1),
            "goal_growth_mb": GOAL_GROWTH_MB,
            "met": slowest_s <= GOAL_S and growth_mb <= GOAL_GROWTH_MB,
        },
    )


if __name__ == "__main__":
    main()
