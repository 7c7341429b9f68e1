"""Judges behaviours of a formal model of replication, as it is and with a check left out.

    ./dev bench model [--json] [--minutes M] [--seed S] [--variant V] [--examples FOLDER]

TLC walks through `tests/formal_model/Replication.tla` at random. Of the model as it is, no rule
may accuse anybody; of a variant that leaves one check out, some rule must notice each behaviour in
which something committed or acknowledged is lost, or may be by the next election. The smallest
behaviour of each variant of which the rules say too much or too little is written into `--out`.
Exit code 1 if there is one, and 4 where TLC cannot run. Variants "without harm" lost nothing: then
the walks were too few, or too short. The behaviours that the tests keep are `--examples`: the
shortest of each variant that does harm, and the first of the model as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent))

from formal_model.behaviours import Behaviour, written
from formal_model.judged import Judged, judged, smallest
from formal_model.tlc import Tlc, Walk, installed, walked
from formal_model.variants import VARIANTS

from fencepost import EnvironmentFailed
from fencepost.campaigns.jobs import done, jobs_for
from fencepost.judging.folder import Promises
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_VIOLATED
from fencepost.plugins.manager import load

GAPS = (8, 4, 14)
"""How many steps lie between two faults, at least: in one walk after the other."""
COUNT = 100
"""Behaviours of a walk: TLC takes seconds to start."""
AS_IS = "as it is"


class Walked(NamedTuple):
    """The behaviours of one walk, judged, and those of which the rules are wrong."""

    judged: Sequence[Judged]
    wrong: Sequence[Behaviour]
    example: Behaviour | None


class Tally:
    """What is known of one variant."""

    def __init__(self, broken: str) -> None:
        self.broken = broken
        self.behaviours = 0
        self.harmful = 0
        self.harm: Counter[str] = Counter()
        self.clauses: Counter[str] = Counter()
        self.wrong = 0
        self.smallest: Behaviour | None = None
        self.example: Behaviour | None = None

    def add(self, found: Walked) -> None:
        self.behaviours += len(found.judged)
        for one in found.judged:
            self.harmful += bool(one.harm)
            self.harm.update(one.harm)
            self.clauses.update(one.violated.keys())
        self.wrong += len(found.wrong)
        self.smallest = _shortest([self.smallest, *found.wrong])
        self.example = _shortest([self.example, found.example])

    def as_json(self) -> Mapping[str, Any]:
        return {
            "behaviours": self.behaviours,
            "harmful": self.harmful,
            "harm": dict(sorted(self.harm.items())),
            "missed" if self.broken else "accused": self.wrong,
            "clauses": dict(self.clauses.most_common()),
        }


def _shortest(behaviours: Iterable[Behaviour | None]) -> Behaviour | None:
    there = (one for one in behaviours if one is not None)
    return min(there, key=lambda one: len(one.steps), default=None)


def walk(tlc: Tlc, broken: str, by: Walk, promises: Promises) -> Walked:
    """Makes behaviours, and judges them."""
    behaviours = walked(tlc, broken, by)
    found = [judged(one, promises) for one in behaviours]
    wrong = [
        smallest(one, promises)
        for one, says in zip(behaviours, found, strict=True)
        if says.wrong(broken) is not None
    ]
    # Cut where the harm is done: some rules notice a part of it once more has come of it.
    harmful = (one.until_harm() for one in behaviours if one.harm)
    noticed = (one for one in harmful if judged(one, promises).wrong(broken) is None)
    return Walked(found, wrong, _shortest(noticed) if broken else behaviours[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--minutes", type=float, default=60.0, help="for how long (60)")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (1)")
    parser.add_argument("--variant", action="append", help="only these; '' is the model as it is")
    parser.add_argument("--depth", type=int, default=120, help="states of a behaviour (120)")
    parser.add_argument("--jobs", type=int, default=jobs_for("simulated"))
    parser.add_argument("--out", type=Path, default=Path(".fencepost/model"))
    parser.add_argument("--examples", type=Path, help="where to write the behaviours of tests")
    options = parser.parse_args()
    try:
        tlc = installed()
        return _run(options, tlc)
    except EnvironmentFailed as failed:
        print(failed, file=sys.stderr)
        return EXIT_ENVIRONMENT


def _run(options: argparse.Namespace, tlc: Tlc) -> int:
    promises = load().promises
    every = ["", *VARIANTS] if options.variant is None else options.variant
    tallies = {broken: Tally(broken) for broken in every}
    until = time.monotonic() + options.minutes * 60
    turn = 0

    def work(one: tuple[str, Walk]) -> Walked:
        return walk(tlc, one[0], one[1], promises)

    while time.monotonic() < until:
        # One seed for one turn and variant, whatever the number of jobs.
        batch = [
            (
                broken,
                Walk(
                    COUNT, options.depth, options.seed * 100_000 + turn, gap=GAPS[turn % len(GAPS)]
                ),
            )
            for broken in every
        ]
        turn += 1
        for place, found in done(work, batch, options.jobs):
            tallies[batch[place][0]].add(found)
            if time.monotonic() >= until:
                break
    kept = [
        str(_keep(one.broken, one.smallest, options.out))
        for one in tallies.values()
        if one.smallest is not None
    ]
    if options.examples is not None:
        for one in tallies.values():
            if one.example is not None:
                _keep(one.broken, one.example, options.examples)
    wrong = any(one.wrong for one in tallies.values())
    show(options, {"bench": "model", **_figures(tallies), "kept": kept, "met": not wrong})
    return EXIT_VIOLATED if wrong else EXIT_CLEAN


def _figures(tallies: Mapping[str, Tally]) -> Mapping[str, Any]:
    return {
        **{name or AS_IS: one.as_json() for name, one in tallies.items()},
        "without harm": [name for name, one in tallies.items() if name and not one.harmful],
    }


def _keep(broken: str, behaviour: Behaviour, folder: Path) -> Path:
    """Writes a behaviour of a variant."""
    name = "".join(letter if letter.isalnum() else "-" for letter in broken or AS_IS)
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written(behaviour))
    return path


if __name__ == "__main__":
    sys.exit(main())
