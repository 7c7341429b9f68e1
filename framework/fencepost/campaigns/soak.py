"""`fencepost soak`: a system under load for a long time, in many runs, with random schedules or
without faults; the findings of all runs are joined.

A run whose cluster did not get ready, or that did not reach its planned end, counts as undecided.
If no cluster ever got ready, the environment failed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from msgspec import Struct, to_builtins

from fencepost.campaigns.jobs import done
from fencepost.judging.verdicts import Outcome, Verdict
from fencepost.plugins.manager import Plugins
from fencepost.runs.coverage import Counts, Met, counted, counts, states_named
from fencepost.runs.random_schedule import Conducted, Preference, run_one
from fencepost.runs.run import RunSpec, new_folder

NO_FAULT = "no fault was injected in any run, so nothing was tried"


@final
@dataclass(frozen=True, slots=True)
class Soak:
    """How many runs, how long each is, which faults are drawn in a run of `spec` (none: neither
    faults nor administration), and how many runs take place at a time. `weights` are those of
    `Preference`.

    Run n, counted from 0, has the seed of the spec plus n. The runs take place in rounds of `jobs`:
    each prefers what the runs of earlier rounds did not reach. So the same soak with the same
    number of jobs draws the same. The folder of a clean run is deleted unless `keep`.
    """

    spec: RunSpec
    runs: int
    span_ms: int
    offered: Collection[str]
    jobs: int = 1
    keep: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)


class SoakRun(Struct, frozen=True, kw_only=True):
    """The result of one run. `run` is its folder, which is always kept if anything was found."""

    seed: int
    run: str
    violated: Mapping[str, str]
    """Clause -> the first violation, unless it is known."""
    known: Mapping[str, Sequence[str]]
    """Known finding -> the clauses that it violated."""
    unknown: Mapping[str, str]
    """Clause -> why it is undecided."""
    faults: int
    without_receipt: int
    trouble: str
    lost: Sequence[str] = ()
    """Clients that failed, a sentence each; the events of the others were judged."""
    stalled: str = ""
    """Which processes did not run for a while, in words; empty if none is worth a word."""
    started: bool = True
    """Whether the cluster got ready at all; if not, `trouble` says why."""
    met: Counts = {}
    """Which operations met their victims in which states: operation -> state -> how often."""
    forfeited: str = ""
    """Why the run was not judged to its end; empty if it was."""

    @property
    def clean(self) -> bool:
        """Whether every exercised clause holds and the run reached its end."""
        return not self.violated and not self.unknown and not self.trouble

    def why_not_clean(self) -> Sequence[str]:
        """What keeps the run from being clean, a sentence each, and its folder; empty if the run
        is clean. The clauses that are undecided for one reason share a sentence."""
        if self.clean:
            return ()
        reasons: dict[str, list[str]] = {}
        for clause, reason in self.unknown.items():
            reasons.setdefault(reason, []).append(clause)
        found = [f"{clause} violated: {message}" for clause, message in self.violated.items()]
        found += [f"{_few(clauses)} undecided: {why}" for why, clauses in reasons.items()]
        found += [self.trouble] if self.trouble else []
        return [f"seed {self.seed}: {one}" for one in (*found, f"its run is {self.run}")]


@final
@dataclass(slots=True)
class Soaked:
    """All runs of a soak."""

    with_faults: bool
    """Whether faults were to be injected."""
    states: Sequence[str] = ()
    """The states in which an operation may meet a victim, in the order in which they are shown."""
    runs: list[SoakRun] = field(default_factory=list)

    def violated(self) -> Sequence[str]:
        """The clauses that any run violated."""
        return sorted({clause for run in self.runs for clause in run.violated})

    def known(self) -> Mapping[str, int]:
        """Known finding -> in how many runs it appeared."""
        return Counter(one for run in self.runs for one in run.known)

    def undecided(self) -> Sequence[str]:
        """The clauses that were unknown in any run, the runs that had trouble, and `NO_FAULT` if
        that is so."""
        clauses = {clause for run in self.runs for clause in run.unknown}
        troubled = [f"seed {run.seed}" for run in self.runs if run.trouble]
        unbroken = self.with_faults and not any(run.faults for run in self.runs)
        return [*sorted(clauses), *troubled, *([NO_FAULT] if unbroken else [])]

    def never_started(self) -> str:
        """Why no cluster ever got ready; empty if one did."""
        return "" if any(run.started for run in self.runs) else self.runs[0].trouble

    def met(self) -> Counts:
        """Which operations met their victims in which states, in all runs."""
        found: Counter[Met] = Counter()
        for run in self.runs:
            found += counted(run.met)
        return counts(found)

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost soak --json` prints."""
        return {
            "runs": [to_builtins(run) for run in self.runs],
            "clean": sum(run.clean for run in self.runs),
            "violated": self.violated(),
            "known": self.known(),
            "unknown": self.undecided(),
            "coverage": {"states": self.states, "met": self.met()},
        }


def soak(
    wanted: Soak,
    plugins: Plugins,
    out: Path,
    report: Callable[[str], None],
    into: Soaked | None = None,
) -> Soaked:
    """Conducts the runs, as many at a time as there are jobs.

    Each result is added to `into` at once, so that it outlives an error in a later run.
    """

    soaked = Soaked(with_faults=bool(wanted.offered)) if into is None else into
    soaked.states = states_named(wanted.spec.system)
    known: Counts = {}

    def conduct(number: int) -> SoakRun:
        spec = replace(wanted.spec, seed=wanted.spec.seed + number)
        folder = new_folder(out, f"soak-{spec.seed}")
        preference = Preference(known, wanted.weights)
        conducted = run_one(
            spec, plugins, folder, wanted.span_ms, wanted.offered, preference=preference
        )
        one = _result_of(conducted, spec.seed)
        if one.clean and not one.known and not one.lost and not wanted.keep:
            shutil.rmtree(folder.path)
        return one

    for first in range(0, wanted.runs, wanted.jobs):
        numbers = range(first, min(first + wanted.jobs, wanted.runs))
        known = soaked.met()
        for _, one in done(conduct, numbers, wanted.jobs):
            soaked.runs.append(one)
            report(f"{len(soaked.runs)} of {wanted.runs}: {_sentence(one)}")
    soaked.runs.sort(key=lambda run: run.seed)
    return soaked


def _result_of(conducted: Conducted, seed: int) -> SoakRun:
    result = conducted.result
    if result is None:
        path, trouble = str(conducted.folder.path), conducted.trouble
        return SoakRun(
            seed=seed,
            run=path,
            violated={},
            known={},
            unknown={},
            faults=0,
            without_receipt=0,
            trouble=trouble,
            started=False,
            met=conducted.met,
        )
    verdicts = result.judgement.verdicts
    return SoakRun(
        seed=seed,
        run=str(conducted.folder.path),
        violated={c: verdicts[c].violations[0].message for c in result.judgement.broken},
        known=_known(verdicts),
        unknown={c: verdicts[c].reason for c in result.judgement.of(Outcome.UNKNOWN)},
        faults=result.injected,
        without_receipt=len(result.missed),
        trouble=conducted.trouble,
        lost=conducted.lost,
        stalled=result.end.stalled_in_words,
        met=conducted.met,
        forfeited=result.judgement.not_to_the_end,
    )


def _few(clauses: Sequence[str]) -> str:
    """The first three, and how many more."""
    more = f" and {len(clauses) - 3} more" if len(clauses) > 3 else ""
    return f"{', '.join(clauses[:3])}{more}"


def _known(verdicts: Mapping[str, Verdict]) -> Mapping[str, Sequence[str]]:
    clauses_of: dict[str, list[str]] = {}
    for clause, verdict in verdicts.items():
        for one in verdict.known:
            clauses_of.setdefault(one, []).append(clause)
    return clauses_of


def _sentence(run: SoakRun) -> str:
    found = [f"{clause} violated" for clause in run.violated]
    found += [f"{one}, which is known" for one in run.known]
    found += [f"{clause} unknown" for clause in run.unknown]
    found += run.lost
    found += [run.trouble] if run.trouble else []
    found = found or ["clean"]
    found += [f"not judged to its end: {run.forfeited}"] if run.forfeited else []
    found += [run.stalled] if run.stalled else []
    what = f"seed {run.seed}, {run.faults} faults"
    return f"{what}: {'; '.join(found)}"
