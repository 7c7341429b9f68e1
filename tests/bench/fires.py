"""Asks of each rule whether it fires in a recorded run with one thing left out, added or altered.

    ./dev bench fires [--json] [--minutes M] [--seed S] [--clause C] [--runs FOLDER] [--tries N]

The runs are those of the simulator on the three reference planes, healthy or with a planted defect
that breaks a clause which has not fired yet; the recorded ones of Apache Kafka and etcd that are
kept in the tree; and others, such as those of the suites (`pytest suites --fencepost-out FOLDER`).
Each rule is judged by itself. `docs/explanation/firing.md` says why the others do not fire.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from typing import Any, NamedTuple

from report import show

sys.path.insert(0, str(Path(__file__).parent.parent))

from second_readings.families import REFERENCE
from second_readings.firing import Fired, Witness, fired, witnesses
from second_readings.reading import History
from second_readings.sources import KEPT_RUNS, recorded, runs_below, simulated

from fencepost.campaigns.jobs import done, jobs_for
from fencepost.events import kind_name
from fencepost.plugins.manager import Plugins, load

RECORDED = 0.3
"""How often a run is one of those that are kept, once all of them have had their turn."""
SPARE_S = 60.0
"""No rule begins with a run that has taken so long."""


class Source(NamedTuple):
    """Which run: a kept one, or the stream by which the simulator draws one."""

    seed: str
    kept: Path | None


class Asked(NamedTuple):
    """What the rules said of one run, by the number of each."""

    run: str
    plane: str
    said: dict[int, Fired]


class Known:
    """What is known of one rule."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.planes: set[str] = set()
        self.tried = 0
        self.lacks = {kind_name(kind) for kind in witness.rule.applied}
        """The kinds that it applies, and that no run had."""
        self.recorded: dict[str, str] = {}
        """The runs, at most three, in which it fires as they were recorded, and their planes."""
        self.by: dict[str, Any] | None = None
        """The change by which it fired, and in which run."""

    @property
    def clause(self) -> str:
        return self.witness.rule.clause

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.witness.name,
            "planes": sorted(self.planes),
            "tried": self.tried,
            "lacks": sorted(self.lacks),
            "recorded": self.recorded,
            "changed": self.by,
        }


@dataclass
class Asker:
    """Asks all rules that have not fired yet about one run after the other."""

    plugins: Plugins
    known: Sequence[Known]
    tries: int
    clauses: Collection[str]
    """Only their rules; none: all."""

    def ask(self, source: Source) -> Asked:
        random = Random(source.seed)
        if source.kept is not None:
            name, history = source.kept.name, recorded(source.kept, self.plugins)
        else:
            left = [one.clause for one in self.known if one.by is None]
            made = simulated(REFERENCE, left, self.plugins, random)
            if made is None:
                return Asked("", "", {})
            name, history = made
        return Asked(name, history.plane, dict(self._said(history, random)))

    def _said(self, history: History, random: Random) -> Iterator[tuple[int, Fired]]:
        until = time.monotonic() + SPARE_S
        # Those that were tried least first.
        for number in sorted(range(len(self.known)), key=lambda number: self.known[number].tried):
            one = self.known[number]
            left = one.by is None and (not self.clauses or one.clause in self.clauses)
            if not left or not one.witness.judges(self.plugins.promises, history.plane):
                continue
            if time.monotonic() > until:
                return
            promises = self.plugins.promises
            yield number, fired(one.witness, history, promises, random, tries=self.tries)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--minutes", type=float, default=60.0, help="for how long (60)")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (1)")
    parser.add_argument("--clause", action="append", default=[], help="only these clauses")
    parser.add_argument("--runs", type=Path, action="append", help="recorded runs below a folder")
    parser.add_argument("--tries", type=int, default=40, help="changes a rule and run (40)")
    parser.add_argument("--jobs", type=int, default=jobs_for("simulated"))
    options = parser.parse_args()
    plugins = load()
    known = [Known(one) for one in witnesses(plugins.promises)]
    kept = [one for root in (*(options.runs or ()), *KEPT_RUNS[::-1]) for one in runs_below(root)]
    until = time.monotonic() + options.minutes * 60
    # As many as nobody reaches in a night: each is made when its turn comes.
    sources = [_source(options.seed, number, kept) for number in range(10_000)]
    runs: Counter[str] = Counter()
    asker = Asker(plugins, known, options.tries, options.clause)
    for _, asked in done(asker.ask, sources, options.jobs):
        runs[asked.plane] += 1
        for number, said in asked.said.items():
            _take(known[number], asked, said)
        if time.monotonic() >= until or all(one.by for one in known):
            break
    show(options, report(known, plugins, runs))
    return 0


def _source(seed: int, number: int, kept: Sequence[Path]) -> Source:
    random = Random(f"{seed}/fires/{number}")
    # Every other one, so that a short search sees both.
    if number % 2 == 0 and number // 2 < len(kept):
        return Source(f"{seed}/{number}", kept[number // 2])
    again = kept and number // 2 >= len(kept) and random.random() < RECORDED
    return Source(f"{seed}/{number}", random.choice(kept) if again else None)


def _take(one: Known, asked: Asked, said: Fired) -> None:
    one.planes.add(asked.plane)
    one.tried += said.tried
    one.lacks -= said.kinds
    if said.as_recorded and len(one.recorded) < 3:
        one.recorded[asked.run] = asked.plane
    if said.by is not None:
        thing = said.by
        one.by = {
            "run": asked.run,
            "plane": asked.plane,
            "how": thing.how.value,
            "slot": thing.slot,
            "kind": thing.kind,
            "field": thing.field,
        }


def report(known: Sequence[Known], plugins: Plugins, runs: Counter[str]) -> dict[str, object]:
    """By clause: its rules. A clause fires if one of its rules does."""
    clauses: dict[str, list[Known]] = {clause: [] for clause in plugins.promises.clauses}
    for one in known:
        clauses.setdefault(one.clause, []).append(one)
    changed = {clause for clause, own in clauses.items() if any(one.by for one in own)}
    recorded_only = {
        clause
        for clause, own in clauses.items()
        if clause not in changed and any(one.recorded for one in own)
    }
    return {
        "bench": "fires",
        "runs": dict(runs),
        "clauses": len(clauses),
        "fired_by_a_change": len(changed),
        "fired_as_recorded_only": sorted(recorded_only),
        "without_rules": sorted(clause for clause, own in clauses.items() if not own),
        "never": {
            clause: sum(one.tried for one in own)
            for clause, own in clauses.items()
            if own and clause not in changed and clause not in recorded_only
        },
        "rules_that_never_fired": {
            one.witness.name: {"tried": one.tried, "lacks": sorted(one.lacks)}
            for one in known
            if one.by is None and not one.recorded
        },
        "rules": [one.as_json() for one in known],
    }


if __name__ == "__main__":
    sys.exit(main())
