"""`fencepost compare`: the same schedules on several systems, such as versions of one, and the
clauses in which these differ.

The systems take turns: schedule n is drawn against system n modulo their number, in a run that
counts for that system, and its record is followed on all others. So no system has only schedules
that another one's state has shaped. Schedules of recorded runs can be given instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, final

from msgspec import Struct

from fencepost.campaigns.endings import counted
from fencepost.campaigns.jobs import done
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.budget import Budget, in_rounds
from fencepost.model.clock import now_ns
from fencepost.model.errors import UsageError
from fencepost.model.shares import interval
from fencepost.model.system.capabilities import layout_of
from fencepost.plugins.manager import Plugins
from fencepost.runs import schedule
from fencepost.runs.random_schedule import Conducted, follow_one, run_one
from fencepost.runs.replay import recorded_shape
from fencepost.runs.run import RunSpec, new_folder

DECIDED = (Outcome.VIOLATED, Outcome.HOLDS)


@final
@dataclass(frozen=True, slots=True)
class Compare:
    """What to compare: the spec of each system, equal but for the system, and the schedules.

    `recorded` are the folders of runs whose schedules are followed, one after the other and from
    the first again, in clusters of the shape that these runs had, without their defects; without
    any, `runs` schedules are drawn, `span_ms` long, from the `offered` faults. Each system has
    `runs` runs. `jobs` is how many schedules are under way at a time. The folder of a clean run is
    deleted unless `keep`. `budget_ns` is the time that all may take, see `Budget`.
    """

    specs: Sequence[RunSpec]
    runs: int
    span_ms: int
    offered: Collection[str]
    recorded: Sequence[RunFolder] = ()
    jobs: int = 1
    keep: bool = False
    budget_ns: int | None = None


class Trial(Struct, frozen=True, kw_only=True):
    """One run of one system. `number` is that of its schedule; `run` is its folder, which is always
    kept unless every exercised clause holds and it had no trouble."""

    system: str
    number: int
    run: str
    verdicts: Mapping[str, Outcome]
    known: Mapping[str, Sequence[str]]
    """Clause -> the known findings that explain its violations."""
    violated: Mapping[str, str] = {}
    """Clause -> the first violation that is not known."""
    unknown: Mapping[str, str] = {}
    """Clause -> why it is undecided."""
    faults: int
    without_receipt: int
    trouble: str = ""
    lost: Sequence[str] = ()
    """Clients that failed, a sentence each; the events of the others were judged."""
    started: bool = True

    @property
    def new(self) -> Sequence[str]:
        """The clauses that the run violated in a way that is not known."""
        violated = [c for c, one in self.verdicts.items() if one is Outcome.VIOLATED]
        return [clause for clause in violated if clause not in self.known]

    @property
    def clean(self) -> bool:
        """Whether every exercised clause holds, and the run and its clients reached their end."""
        broken = (Outcome.VIOLATED, Outcome.UNKNOWN)
        return not (self.trouble or self.lost) and not any(
            one in broken for one in self.verdicts.values()
        )


class Share(NamedTuple):
    """In how many of `of` runs a clause was violated, among those that decided it, and the interval
    that contains the true share with `CONFIDENCE` (Wilson's score interval)."""

    violated: int
    of: int
    low: float
    high: float


def share(violated: int, of: int) -> Share:
    """The share with its interval; of no run at all it is anything."""
    return Share(violated, of, *interval(violated, of))


class Row(Struct, frozen=True, kw_only=True):
    """One clause that at least one run violated: its share on each system."""

    clause: str
    shares: Mapping[str, Share]
    known: Sequence[str]
    """The known findings among its violations."""

    @property
    def differs(self) -> bool:
        """Whether the intervals of two systems have no share in common."""
        intervals = [one for one in self.shares.values() if one.of]
        # The largest lower end lies above the smallest upper end, so these two have nothing in
        # common.
        return bool(intervals) and max(i.low for i in intervals) > min(i.high for i in intervals)


@final
@dataclass(slots=True)
class Compared:
    """All runs of a comparison, and what they show."""

    systems: Sequence[str]
    trials: list[Trial] = field(default_factory=list)
    spent: bool = False
    """Whether it ended since its budget had no time for another schedule."""

    def rows(self) -> Sequence[Row]:
        """The violated clauses: first those in which systems differ, then by name."""
        clauses = {c for t in self.trials for c, o in t.verdicts.items() if o is Outcome.VIOLATED}
        return sorted(map(self._row, clauses), key=lambda row: (not row.differs, row.clause))

    def _row(self, clause: str) -> Row:
        shares = {}
        for system in self.systems:
            outcomes = [t.verdicts.get(clause) for t in self.trials if t.system == system]
            decided = [one for one in outcomes if one in DECIDED]
            shares[system] = share(decided.count(Outcome.VIOLATED), len(decided))
        known = {one for trial in self.trials for one in trial.known.get(clause, ())}
        return Row(clause=clause, shares=shares, known=sorted(known))

    def troubled(self) -> Sequence[str]:
        """The runs that did not reach their end, a line each (`trouble` may quote a log)."""
        return [
            f"{t.system}, schedule {t.number}: {t.trouble.splitlines()[0]}"
            for t in self.trials
            if t.trouble
        ]

    def undecided(self) -> Sequence[str]:
        """The clauses that were unknown in any run."""
        return sorted(
            {c for t in self.trials for c, o in t.verdicts.items() if o is Outcome.UNKNOWN}
        )

    def unbroken(self) -> bool:
        """Whether no run had a fault."""
        return not any(trial.faults for trial in self.trials)

    def worst(self) -> Trial | None:
        """The run to look at: the first that violated a clause anew, or else did not reach its end,
        or else left a clause undecided."""
        trials = self.trials
        anew = [one for one in trials if one.new]
        cut = [one for one in trials if one.trouble]
        return next(iter((*anew, *cut, *(one for one in trials if one.unknown))), None)

    def never_started(self) -> str:
        """The system of which no run got ready, and why; empty if each has one that did."""
        for system in self.systems:
            own = [one for one in self.trials if one.system == system]
            if own and not any(one.started for one in own):
                return f"{system} did not start: {own[0].trouble}"
        return ""

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost compare --json` prints."""
        return {
            "systems": self.systems,
            "clauses": [
                {
                    "clause": row.clause,
                    "differs": row.differs,
                    "known": row.known,
                    "systems": {name: one._asdict() for name, one in row.shares.items()},
                }
                for row in self.rows()
            ],
            "runs": [
                {
                    "system": one.system,
                    "schedule": one.number,
                    "run": one.run,
                    "violated": [c for c, o in one.verdicts.items() if o is Outcome.VIOLATED],
                    "unknown": [c for c, o in one.verdicts.items() if o is Outcome.UNKNOWN],
                    "faults": one.faults,
                    "without_receipt": one.without_receipt,
                    "trouble": one.trouble,
                    "lost": one.lost,
                }
                for one in self.trials
            ],
        }


def compare(
    wanted: Compare,
    plugins: Plugins,
    out: Path,
    report: Callable[[str], None],
    into: Compared | None = None,
) -> Compared:
    """Conducts the runs.

    Each result is added to `into` at once, so that it outlives an error in a later run. It ends
    when a system did not start with the first schedule. Before anything is started it raises
    UsageError for systems that cannot be compared, or a folder without a schedule, and
    EnvironmentFailed for one whose software cannot be fetched.
    """
    check(wanted.specs)
    recorded = [followed(wanted.specs, one) for one in wanted.recorded]
    # One that has none must not end the comparison after hours.
    for spec in wanted.specs:
        spec.fetch()
    names = [spec.system.name for spec in wanted.specs]
    compared = Compared(names) if into is None else into

    def conduct(number: int) -> Sequence[Trial]:
        specs, planned = recorded[number % len(recorded)] if recorded else (wanted.specs, None)
        return _one_schedule(replace(wanted, specs=specs), plugins, out, number, planned)

    budget = Budget(wanted.budget_ns, now_ns)
    # The first schedule alone shows whether every system starts.
    rest = range(1, wanted.runs)
    jobs = len(rest) if wanted.budget_ns is None else wanted.jobs
    later = [rest[one.start : one.stop] for one in in_rounds(len(rest), max(1, jobs))]
    for numbers in budget.rounds([range(1), *later]):
        for _, trials in done(conduct, numbers, min(wanted.jobs, max(1, len(numbers)))):
            compared.trials += trials
            for one in trials:
                report(said_of(one))
        if compared.never_started():
            break
    compared.spent = budget.spent
    compared.trials.sort(key=lambda one: (one.number, names.index(one.system)))
    return compared


def followed(
    specs: Sequence[RunSpec], recorded: RunFolder
) -> tuple[Sequence[RunSpec], schedule.Schedule]:
    """The specs and the schedule of a recorded run. What a spec leaves open of its shape is that of
    the run, but for its defects."""
    planned = schedule.read(recorded.schedule)
    shape = replace(recorded_shape(recorded.info()), defects=())
    shaped = [replace(one, shape=one.shape.over(shape)) for one in specs]
    check(shaped)
    return shaped, planned


def check(specs: Sequence[RunSpec]) -> None:
    """Raises UsageError unless a schedule of each system fits all others: they must have nodes of
    the same names."""
    names = [spec.system.name for spec in specs]
    if len(set(names)) < max(2, len(names)):
        raise UsageError("name two systems or more, each once")
    first, *others = ({slot.name for slot in layout_of(s.system, s.shape).slots} for s in specs)
    for name, slots in zip(names[1:], others, strict=True):
        if first != slots:
            differing = ", ".join(sorted(first ^ slots))
            raise UsageError(
                f"a schedule of {names[0]} does not fit {name}: only one of them has {differing}"
            )


def _one_schedule(
    wanted: Compare,
    plugins: Plugins,
    out: Path,
    number: int,
    planned: schedule.Schedule | None,
) -> Sequence[Trial]:
    """The runs of all systems with one schedule, the first of which records it if none is
    planned."""
    # The systems take turns as the first one, against which the schedule is drawn: its state shapes
    # the draws, and this must not favour one system.
    first = number % len(wanted.specs)
    trials: list[Trial] = []
    for spec in (*wanted.specs[first:], *wanted.specs[:first]):
        if planned is not None:
            trials.append(follow(spec, plugins, out, number, planned, keep=wanted.keep))
            continue
        seeded, folder = _numbered(spec, out, number)
        conducted = run_one(seeded, plugins, folder, wanted.span_ms, wanted.offered)
        # The cluster did not get ready, so there is no schedule that the others could follow.
        if conducted.result is None:
            return [_trial(conducted, spec.system.name, number)]
        # A run in which no fault was drawn records none.
        written = folder.schedule.exists()
        planned = schedule.read(folder.schedule) if written else schedule.Schedule()
        trials.append(_ended(conducted, spec, number, keep=wanted.keep))
    return trials


def follow(
    spec: RunSpec,
    plugins: Plugins,
    out: Path,
    number: int,
    planned: schedule.Schedule,
    *,
    keep: bool,
) -> Trial:
    """A run of a system that follows a schedule; its folder is deleted if it is clean, unless
    `keep`."""
    seeded, folder = _numbered(spec, out, number)
    conducted = follow_one(seeded, plugins, folder, planned)
    return _ended(conducted, spec, number, keep=keep)


def _numbered(spec: RunSpec, out: Path, number: int) -> tuple[RunSpec, RunFolder]:
    """The spec of a run with that number, and a folder for it."""
    seeded = replace(spec, seed=spec.seed + number)
    label = f"{out.name}-{seeded.seed}-{spec.system.name}".replace("/", "-").replace("@", "-")
    return seeded, new_folder(out, label)


def _ended(conducted: Conducted, spec: RunSpec, number: int, *, keep: bool) -> Trial:
    trial = _trial(conducted, spec.system.name, number)
    if trial.clean and not keep:
        shutil.rmtree(conducted.folder.path)
    return trial


def _trial(conducted: Conducted, system: str, number: int) -> Trial:
    result = conducted.result
    judged = {} if result is None else result.judgement.verdicts
    return Trial(
        system=system,
        number=number,
        run=str(conducted.folder.path),
        verdicts={clause: one.verdict for clause, one in judged.items()},
        known={clause: tuple(one.known) for clause, one in judged.items() if one.known},
        violated={c: one.first_new.says for c, one in judged.items() if one.first_new},
        unknown={c: one.reason for c, one in judged.items() if one.verdict is Outcome.UNKNOWN},
        faults=0 if result is None else result.injected,
        without_receipt=0 if result is None else len(result.missed),
        trouble=conducted.trouble,
        lost=conducted.lost,
        started=result is not None,
    )


def said_of(one: Trial) -> str:
    violated = [c for c, outcome in one.verdicts.items() if outcome is Outcome.VIOLATED]
    found = [f"violates {', '.join(violated)}"] if violated else []
    found += [*one.lost, *one.trouble.splitlines()[:1]]
    what = f"schedule {one.number}, {one.system}, {counted(one.faults, 'fault')}"
    return f"{what}: {'; '.join(found) or 'no clause violated'}"
