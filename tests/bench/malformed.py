"""Sends a node a million malformed frames; any effect of them is a bug.

    ./dev bench malformed [--json] [--frames N] [--seed N]

A controller and a broker, on loopback; the frames, one third to each listener, are those of
`tests/clusters/reference/foreign_bytes.py`. Each connection must be read to its end within ten
seconds. After every 64 frames or fewer, a valid request must be answered. No process may die. After
a tenth of the frames, the memory of a node may not grow by more than GOAL_GROWTH_MB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent / "clusters" / "reference"))

from direct_nodes import PORTS, create, nodes_in
from foreign_bytes import TOPIC, Bombardment

GOAL_GROWTH_MB = 16
GOAL_ANSWER_S = 1.0
ROUNDS = 100
MB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many (1,000,000)")
    parser.add_argument("--seed", type=int, default=1, help="which frames (1)")
    options = parser.parse_args()
    each = max(1, options.frames // ROUNDS // len(PORTS))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, nodes_in(Path(folder)) as cluster:
        cluster.start_both()
        create(cluster, TOPIC)
        bombardment = Bombardment(cluster)
        memory = []
        for number in range(ROUNDS):
            bombardment.send(options.seed * ROUNDS + number, each)
            memory.append(bombardment.memory_bytes())
    took_s = time.perf_counter() - began
    warm, last = memory[ROUNDS // 10 - 1], memory[-1]
    growth = {node: round((last[node] - warm[node]) / MB, 1) for node in last}
    show(
        options,
        {
            "bench": "malformed",
            "frames": bombardment.sent,
            "seed": options.seed,
            "frames_per_s": round(bombardment.sent / took_s),
            "warm_mb": {node: round(size / MB, 1) for node, size in warm.items()},
            "growth_mb": growth,
            "goal_growth_mb": GOAL_GROWTH_MB,
            "slowest_good_answer_s": round(bombardment.slowest_s, 3),
            "goal_answer_s": GOAL_ANSWER_S,
            "met": max(growth.values()) <= GOAL_GROWTH_MB
            and bombardment.slowest_s <= GOAL_ANSWER_S,
        },
    )


if __name__ == "__main__":
    main()
