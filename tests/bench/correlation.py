"""How often the report names the true cause of a failure: runs with one planted defect each.

    ./dev bench correlation [--json] [--runs N] [--seed N] [--jobs N] [--keep FOLDER]
    ./dev bench correlation --kept [--recorded FOLDER] [--json]

Of each broken promise of a planted defect, the first violation is a failure. Its cause is written
down in `planted/causes.py`, from the defect alone; runs are handed to the report without the names
of their defects. `failures` are those whose cause is a loss of authority: `first` and `first_three`
say how often an event of that loss is the report's first candidate, or among its first three.
`nothing` are the failures that no loss explains: how many there are, and of how many the report
says so. The baselines name the fault that was injected last, and the latest loss of authority.

`--kept`: the same of the runs of Apache Kafka that are kept with known findings, whose causes are
in `planted/kept.py`; and of the runs of a soak or a suite that lie below the folder and show some.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planted.causes import CAUSES, UNDECIDED, truth
from planted.corpus import Plan, Planted, make, plans
from planted.kept import kept_runs, recorded_runs, wanted_of
from report import show

from fencepost import Codec
from fencepost.campaigns.jobs import done
from fencepost.reporting import Plugins, Promises, RunFolder, judge_folder, load, read
from fencepost_reports.one_run.run import run_tables, sources

RUNS = 300
GOALS = {"first": 0.95, "first_three": 0.99, "nothing": 0.95}
_TOGETHER = 10
"""How many runs one process explains."""


@dataclass(frozen=True)
class Answer:
    """What was found of one failure. `rank`: the place of the true cause, from 0 (-1: not there).

    `caused`: a loss of authority is the true cause.
    """

    planted: Planted
    clause: str
    message: str
    caused: bool
    rank: int
    nearest_fault: bool
    latest_authority: bool


def answers(planted: Planted, runs: Path, promises: Promises) -> Sequence[Answer]:
    """The answers for the failures of one run."""
    path = runs / planted.run
    judgement, _ = judge_folder(RunFolder(path), promises)  # other rules may have judged it
    verdicts = judgement.verdicts
    broken = [c for c in planted.breaks if c in verdicts and verdicts[c].violations]
    if not broken:
        return []
    tables = run_tables(sources([path])[0], promises)
    events = list(read(RunFolder(path), Codec(promises.kinds)))
    finding = next((f for f in promises.known_findings if f.id == planted.defect), None)
    found = []
    for clause in broken:
        violation = verdicts[clause].violations[0]
        if finding is None:
            true = truth(CAUSES[planted.defect], violation, events)
        else:
            true = truth(*wanted_of(finding, clause, verdicts), events)
        if true is None:
            continue
        row = next(one for one in tables.failures if one.clause == clause)
        right = [
            one.position in true.losses if true.losses else one.position < 0
            for one in row.candidates
        ]
        found.append(
            Answer(
                planted=planted,
                clause=clause,
                message=violation.message,
                caused=bool(true.losses),
                rank=right.index(True) if True in right else -1,
                nearest_fault=bool(true.fault) and true.fault == true.nearest_fault,
                latest_authority=true.latest_authority in true.losses,
            )
        )
    return found


def all_answers(
    made: Sequence[Planted], runs: Path, promises: Promises, jobs: int
) -> Sequence[Answer]:
    """The answers for all runs whose defect has one answer."""
    promises.fingerprint()  # once, for all processes
    decided = [one for one in made if one.defect not in UNDECIDED]
    parts = [decided[n : n + _TOGETHER] for n in range(0, len(decided), _TOGETHER)]

    def explain(part: Sequence[Planted]) -> Sequence[Answer]:
        return [answer for one in part for answer in answers(one, runs, promises)]

    return [answer for _, some in done(explain, parts, jobs) for answer in some]


def figures(made: Sequence[Planted], found: Sequence[Answer]) -> dict[str, object]:
    """The object that `--json` prints."""
    caused = [one for one in found if one.caused]
    nothing = [one for one in found if not one.caused]
    return {
        "failures": len(caused),
        "first": sum(one.rank == 0 for one in caused),
        "first_three": sum(0 <= one.rank < 3 for one in caused),
        "nothing": {"true": len(nothing), "said": sum(one.rank == 0 for one in nothing)},
        "baselines": {
            "nearest_fault": sum(one.nearest_fault for one in caused),
            "latest_authority": sum(one.latest_authority for one in caused),
        },
        "runs": len({one.run for one in made}),
        "defects": len({(one.system, one.defect) for one in made}),
    }


def made_runs(
    chosen: Sequence[Plan], plugins: Plugins, out: Path, runs: int, jobs: int
) -> Sequence[Planted]:
    """Makes the runs below the folder."""

    def say(line: str) -> None:
        print(f"\r{line}", end="", file=sys.stderr, flush=True)

    made = make(chosen, plugins, runs, out, jobs=jobs, say=say)
    print(file=sys.stderr)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many, at least ({RUNS})")
    parser.add_argument("--seed", type=int, default=1, help="of the suites and schedules (1)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument(
        "--keep",
        type=Path,
        help="keep the runs in this folder; those that are there are not made again",
    )
    parser.add_argument(
        "--kept",
        action="store_true",
        help="ask the runs that are kept with known findings of Apache Kafka instead",
    )
    parser.add_argument("--recorded", type=Path, help="with --kept: runs below this folder, too")
    options = parser.parse_args()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        plugins = load()
        out = options.keep or Path(scratch)
        if options.kept:
            promises = plugins.promises
            findings, runs = promises.known_findings, out / "runs"
            made = list(kept_runs(findings, promises, runs))
            if options.recorded:
                made += recorded_runs(findings, promises, options.recorded, runs)
        else:
            chosen = plans(plugins, options.runs, options.seed)
            made = made_runs(chosen, plugins, out, options.runs, options.jobs)
        found = all_answers(made, out / "runs", plugins.promises, options.jobs)
    wrong = sorted({(a.planted.system, a.planted.defect, a.clause) for a in found if a.rank != 0})
    if not options.json:
        print(*(" ".join(one) for one in wrong), sep="\n", file=sys.stderr)
    goals = {} if options.json else {"goals": GOALS}
    show(options, {**figures(made, found), **goals})


if __name__ == "__main__":
    main()
