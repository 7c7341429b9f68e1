"""Makes simulated runs with one planted defect each, and hides which defect that is.

A defect is planted in the suites' tests of the clauses that it breaks, and in random schedules with
up to two and three faults at a time. Of a run that ends, the name of its defect is taken out of
`run.json`, and kept in a file beside the runs, which only the comparison reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded by the number of a round

import msgspec
from msgspec import Struct

from fencepost import Shape
from fencepost.campaigns.jobs import done
from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.model.system.capabilities import Defect, HasDefects
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder
from fencepost.testing import test_run as testrun

SYSTEMS = ("reference/quorum", "reference/legacy", "reference/classic")
"""The systems that can be simulated: one of each plane of the reference cluster."""
SPAN_MS = 20_000
AT_ONCE = (2, 3)
ANSWERS = "planted.json"
_TESTS = 2
"""How many tests of the suites a defect is planted in, at most."""


class Planted(Struct, frozen=True):
    """A run with a planted defect, as the comparison knows it; `source` says how it was made."""

    run: str
    system: str
    defect: str
    breaks: tuple[str, ...]
    source: str


class Answers(Struct, frozen=True):
    """The answers to a folder of runs: of each, which defect it has; and the plans that were
    carried out, by name."""

    carried_out: tuple[str, ...] = ()
    planted: tuple[Planted, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One piece of work: a defect in the suites, or in a random schedule with at most so many
    faults at once (0: in the suites)."""

    system: str
    defect: Defect
    seed: int
    at_once: int

    @property
    def name(self) -> str:
        where = "schedule" if self.at_once else "suites"
        return f"{self.system} {self.defect.name} {where} {self.seed}"


def plans(plugins: Plugins, runs: int, seed: int) -> Sequence[Plan]:
    """The pieces of work that give at least so many runs: the first round in the suites, others in
    random schedules, each defect once a round, in an order that the round chooses. The first round
    of schedules has the same seed as the suites, and each later one the next seed."""
    planted = [(name, defect) for name in SYSTEMS for defect in _defects(plugins, name)]
    Random(seed - 1).shuffle(planted)
    found = [Plan(name, defect, seed, 0) for name, defect in planted]
    for of_round in range(seed, seed + -(-runs // len(planted))):
        Random(of_round).shuffle(planted)
        found += [
            Plan(name, defect, of_round, AT_ONCE[(number + of_round) % len(AT_ONCE)])
            for number, (name, defect) in enumerate(planted)
        ]
    return found


def _defects(plugins: Plugins, name: str) -> Sequence[Defect]:
    system = plugins.system(name)
    assert isinstance(system, HasDefects)
    return [defect for defect in system.defects() if "simulated" not in defect.unseen]


def known(out: Path) -> Answers:
    """The answers to the runs that were made below `out` before."""
    if not (out / ANSWERS).exists():
        return Answers()
    return msgspec.json.decode((out / ANSWERS).read_bytes(), type=Answers)


def make(
    chosen: Sequence[Plan],
    plugins: Plugins,
    runs: int,
    out: Path,
    *,
    jobs: int,
    say: Callable[[str], None],
) -> Sequence[Planted]:
    """Makes at least so many of the runs below `out`, and all of the suites. The answers are in a
    file beside the runs. Runs that are there already are kept: it goes on where it was
    interrupted."""
    answers = known(out)
    enough = len(answers.planted) >= runs
    chosen = [
        one
        for one in chosen
        if one.name not in answers.carried_out and not (one.at_once and enough)
    ]

    def carry_out(plan: Plan) -> Sequence[Planted]:
        return list(_runs(plan, plugins, out / "runs"))

    with closing(done(carry_out, chosen, jobs)) as working:
        for place, planted in working:
            carried_out = (*answers.carried_out, chosen[place].name)
            answers = Answers(carried_out, (*answers.planted, *planted))
            write_whole(out / ANSWERS, msgspec.json.format(msgspec.json.encode(answers)))
            say(f"{len(carried_out)} plans carried out: {len(answers.planted)} runs")
            if chosen[place].at_once and len(answers.planted) >= runs:
                break
    return answers.planted


def _runs(plan: Plan, plugins: Plugins, out: Path) -> Iterator[Planted]:
    for folder, source in (
        _by_chance(plan, plugins, out) if plan.at_once else _by_suites(plan, plugins, out)
    ):
        info = folder.info()
        hidden = msgspec.structs.replace(info, defects=())
        folder.write_info(hidden)
        judge_folder(folder, plugins.promises)
        shutil.rmtree(folder.data, ignore_errors=True)
        yield Planted(folder.run, plan.system, plan.defect.name, plan.defect.breaks, source)


def _by_chance(plan: Plan, plugins: Plugins, out: Path) -> Iterator[tuple[RunFolder, str]]:
    shape = Shape(defects=(plan.defect.name,))
    spec = RunSpec(plugins.system(plan.system), shape, "simulated", plan.seed, lossy=True)
    folder = new_folder(out, f"{plan.system}-{plan.seed}")
    conducted = run_one(spec, plugins, folder, SPAN_MS, plugins.faults, at_once=plan.at_once)
    if conducted.result is not None:
        yield folder, f"random, {plan.at_once} faults at once"


def _by_suites(plan: Plan, plugins: Plugins, out: Path) -> Iterator[tuple[RunFolder, str]]:
    clauses = frozenset(plan.defect.breaks)
    collector = testrun.ResultCollector(clauses, lambda ran: len(collector.runs) >= _TESTS)
    wanted = testrun.Wanted(
        plan.system,
        "simulated",
        out,
        seed=plan.seed,
        shape=Shape(defects=(plan.defect.name,)),
        clauses=clauses,
        suite=testrun.suite_of(plugins.system(plan.system)),
    )
    testrun.listen_quietly(wanted, collector)
    for ran in collector.runs:
        yield ran.folder, f"suite: {ran.nodeid}"
