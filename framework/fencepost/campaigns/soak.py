"""`fencepost soak`: a system under load for a long time, in many runs, with random schedules or
without faults; the findings of all runs are joined.

A run whose cluster did not get ready, or that did not reach its planned end, counts as undecided.
If no cluster ever got ready, the environment failed.
"""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from fencepost.campaigns.jobs import done
from fencepost.campaigns.soaked import Soaked, SoakPlan, SoakRun, Status, sentence_of
from fencepost.judging.verdicts import Outcome, Verdict
from fencepost.model.budget import Budget, in_rounds
from fencepost.model.clock import MS, now_ns
from fencepost.model.disk import taken
from fencepost.plugins.manager import Plugins
from fencepost.runs.coverage import Counts, states_named
from fencepost.runs.random_schedule import Conducted, Preference, run_one
from fencepost.runs.run import RunSpec, new_folder


@final
@dataclass(frozen=True, slots=True)
class Soak:
    """How many runs, how long each is, which faults are drawn in a run of `spec` (none: neither
    faults nor administration), and how many runs take place at a time. `weights` are those of
    `Preference`.

    Run n, counted from 0, has the seed of the spec plus n. The runs take place in rounds of `jobs`:
    each prefers what the runs of earlier rounds did not reach. So the same soak with the same
    number of jobs draws the same. The folder of a clean run is deleted unless `keep`; with
    `keep_bytes`, the oldest of these are deleted once they take more together. All may take
    `budget_ns`, see `Budget`.
    """

    spec: RunSpec
    runs: int
    span_ms: int
    offered: Collection[str]
    jobs: int = 1
    keep: bool = False
    keep_bytes: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    budget_ns: int | None = None

    @property
    def plan(self) -> SoakPlan:
        """What its last lines say of it."""
        return SoakPlan(
            system=self.spec.system.name,
            seed=self.spec.seed,
            runs=self.runs,
            span_ms=self.span_ms,
            with_faults=bool(self.offered),
            states=tuple(states_named(self.spec.system)),
            keep_bytes=self.keep_bytes,
        )


def soak(
    wanted: Soak,
    plugins: Plugins,
    out: Path,
    report: Callable[[str], None],
    into: Soaked | None = None,
    noted: Noted = lambda what: None,
) -> Soaked:
    """Conducts the runs, as many at a time as there are jobs, while the budget has time for them.

    Each result is added to `into` at once, and `noted` is called with it, so that it outlives an
    error in a later run; it is called with a seed if the folder of that run was deleted. Raises
    PluginFailed if code of a plugin keeps a run from starting: it would keep each from it.
    """

    soaked = Soaked(with_faults=bool(wanted.offered)) if into is None else into
    soaked.states = states_named(wanted.spec.system)
    known: Counts = {}

    def conduct(number: int) -> SoakRun:
        # The seed alone distinguishes the runs, so one of them can be run again by itself.
        spec = replace(wanted.spec, seed=wanted.spec.seed + number)
        folder = new_folder(out, f"soak-{spec.seed}")
        preference = Preference(known, wanted.weights)
        conducted = run_one(
            spec, plugins, folder, wanted.span_ms, wanted.offered, preference=preference
        )
        one = _result_of(conducted, spec.seed)
        # A night may have hundreds of runs. What anybody may want to look at stays.
        if one.status is Status.CLEAN and not one.lost and not wanted.keep:
            shutil.rmtree(folder.path)
        return one

    budget, kept = Budget(wanted.budget_ns, now_ns), Kept(wanted.keep_bytes)
    for numbers in budget.rounds(in_rounds(wanted.runs, wanted.jobs)):
        # Once for each round: all its runs know the same, however they overlap, so a soak can be
        # repeated.
        known = soaked.met()
        for _, one in done(conduct, numbers, wanted.jobs):
            soaked.runs.append(one)
            noted(one)
            if wanted.keep and one.status is Status.CLEAN and not one.lost:
                for seed in kept.add(one.seed, Path(one.run)):
                    soaked.deleted.append(seed)
                    noted(seed)
            report(f"{len(soaked.runs)} of {wanted.runs}: {sentence_of(one)}")
    soaked.spent = budget.spent
    soaked.runs.sort(key=lambda run: run.seed)
    return soaked


Noted = Callable[[SoakRun | int], None]
"""Called with each run, and with the seed of each whose folder was deleted."""


@final
class Kept:
    """The folders of clean runs that are kept, the oldest first; together they take no more than a
    limit (None: any). A run in which something was found is none of them: its folder stays."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._folders: deque[tuple[int, Path, int]] = deque()

    def add(self, seed: int, folder: Path) -> Sequence[int]:
        """Keeps a folder; deletes the oldest that are too much now, and returns their seeds."""
        if self._limit_bytes is None:
            return ()
        self._folders.append((seed, folder, taken(folder)))
        deleted = []
        while sum(size for _, _, size in self._folders) > self._limit_bytes:
            oldest, path, _ = self._folders.popleft()
            shutil.rmtree(path)
            deleted.append(oldest)
        return deleted


def _result_of(conducted: Conducted, seed: int) -> SoakRun:
    result, path = conducted.result, str(conducted.folder.path)
    if result is None:
        return SoakRun(
            seed=seed,
            run=path,
            trouble=conducted.trouble,
            started=False,
            whole=False,
            complete=False,
            met=conducted.met,
        )
    verdicts, end = result.judgement.verdicts, result.end
    unknown = {c: verdicts[c] for c in result.judgement.of(Outcome.UNKNOWN)}
    anew = {c: one for c, one in verdicts.items() if one.first_new is not None}
    return SoakRun(
        seed=seed,
        run=path,
        release=conducted.folder.info().release,
        verdicts={
            c: one.verdict
            for c, one in verdicts.items()
            if one.verdict is not Outcome.NOT_APPLICABLE
        },
        violated={c: one.first_new.says for c, one in anew.items() if one.first_new},
        new={c: (one.new, one.violated) for c, one in anew.items()},
        known=_known(verdicts),
        stand_ins=_stand_ins(verdicts),
        unknown=result.judgement.undecided,
        follows={c: (one.follows, one.reason) for c, one in unknown.items() if one.follows},
        held=tuple(c for c, v in verdicts.items() if v.verdict is Outcome.HOLDS),
        faults=result.injected,
        operations=conducted.operations,
        without_receipt=len(result.missed),
        missed=tuple(result.why_missed()),
        trouble=conducted.trouble,
        lost=conducted.lost,
        stalled=end.stalled_in_words,
        whole=conducted.whole,
        plugin_failed=conducted.plugin_failed,
        complete=result.judgement.whole(end),
        met=conducted.met,
        forfeited=result.judgement.in_part(end),
        drawn_ms=conducted.drawn_ms,
        ran_ms=(end.ended_at_ns - end.began_at_ns) // MS,
    )


def _stand_ins(verdicts: Mapping[str, Verdict]) -> Mapping[str, str]:
    broken = (one for verdict in verdicts.values() for one in verdict.violations)
    return {
        one.known: ", ".join(one.as_known.versions) for one in broken if one.known and one.as_known
    }


def _known(verdicts: Mapping[str, Verdict]) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, Counter[str]] = {}
    for clause, verdict in verdicts.items():
        for broken in verdict.violations:
            if broken.known:
                found.setdefault(broken.known, Counter())[clause] += 1
    return found
