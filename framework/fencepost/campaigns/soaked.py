"""What a soak came to: its runs, their findings joined, and the lines that say so at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import final

from msgspec import Struct, to_builtins

from fencepost.campaigns import endings
from fencepost.events.words import because
from fencepost.judging.verdicts import Outcome
from fencepost.model.disk import in_bytes
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_USAGE,
    EXIT_VIOLATED,
)
from fencepost.runs.coverage import Counts, Met, counted, counts, in_words

NO_FAULT = "no fault was injected in any run, so nothing was tried"


class SoakPlan(Struct, frozen=True, kw_only=True):
    """What was asked of a soak, as far as its last lines need it."""

    system: str
    seed: int
    runs: int
    span_ms: int
    with_faults: bool
    states: tuple[str, ...]
    keep_bytes: int | None = None


class Status(StrEnum):
    """What a run of a soak comes to: the first of these that is so."""

    NOT_STARTED = "NOT STARTED"
    NEW = "NEW"
    CUT_SHORT = "CUT SHORT"
    UNDECIDED = "UNDECIDED"
    KNOWN = "known only"
    IN_PART = "in part"
    CLEAN = "clean"


class SoakRun(Struct, frozen=True, kw_only=True):
    """The result of one run. `run` is its folder, which is always kept unless the run is clean."""

    seed: int
    run: str
    release: str = ""
    """The system with its version, for people; empty if it did not start."""
    verdicts: Mapping[str, Outcome] = {}
    """Of each clause that applies to the system."""
    violated: Mapping[str, str] = {}
    """Clause -> the first violation that is not known."""
    new: Mapping[str, tuple[int, int]] = {}
    """Such a clause -> how many of its violations are not known, and how many there are."""
    known: Mapping[str, Mapping[str, int]] = {}
    """Known finding -> clause -> how many of its violations are that finding."""
    stand_ins: Mapping[str, str] = {}
    """Known finding -> the nearest release, or several, that has it, if the build is no release."""
    unknown: Mapping[str, str] = {}
    """Clause -> why it is undecided, unless another clause that is violated explains it."""
    follows: Mapping[str, tuple[str, str]] = {}
    """Clause that is undecided because of another one -> that one, and why."""
    held: Sequence[str] = ()
    """The clauses that were exercised and held: to the end, or until the run was cut short."""
    faults: int = 0
    operations: int = 0
    """How often an administrator asked for something."""
    without_receipt: int = 0
    missed: Sequence[str] = ()
    """The same, a sentence each: what was measured, and what to look at."""
    trouble: str = ""
    """The failure that is not a violation, in one sentence."""
    lost: Sequence[str] = ()
    """Clients that failed, a sentence each; the events of the others were judged."""
    stalled: str = ""
    """Which processes did not run for a while, in words; empty if none is worth a word."""
    started: bool = True
    """Whether the cluster got ready at all; if not, `trouble` says why."""
    whole: bool = True
    """Whether the run reached its planned end."""
    plugin_failed: bool = False
    """Whether that was because code of a plugin raised, such as a log parser."""
    complete: bool = True
    """Whether its history is whole, so that what is undecided has a reason of its own."""
    met: Counts = {}
    """Which operations met their victims in which states: operation -> state -> how often."""
    forfeited: str = ""
    """For how long the run was judged, and why no longer; empty if it was to its end."""
    drawn_ms: int = 0
    """For how long operations were drawn."""
    ran_ms: int = 0
    """How long the run lasted, from its first event to its last."""

    @property
    def status(self) -> Status:
        """What the run comes to."""
        # The first that is so: a violation stands whatever came later, and a run that was cut short
        # explains why something is undecided.
        if not self.started:
            return Status.NOT_STARTED
        if self.violated:
            return Status.NEW
        if not self.whole:
            return Status.CUT_SHORT
        if self.unknown or self.trouble:
            return Status.UNDECIDED
        if self.known:
            return Status.KNOWN
        return Status.IN_PART if self.forfeited else Status.CLEAN


@final
@dataclass(slots=True)
class Soaked:
    """All runs of a soak."""

    with_faults: bool
    """Whether faults were to be injected."""
    states: Sequence[str] = ()
    """The states in which an operation may meet a victim, in the order in which they are shown."""
    runs: list[SoakRun] = field(default_factory=list)
    spent: bool = False
    """Whether it ended since its budget had no time for another run."""
    deleted: list[int] = field(default_factory=list)
    """The seeds of the clean runs whose folders were deleted, for a limit of the disk."""

    def violated(self) -> Sequence[str]:
        """The clauses that any run violated anew."""
        return sorted({clause for run in self.runs for clause in run.violated})

    def known(self) -> Mapping[str, int]:
        """Known finding -> in how many runs it appeared."""
        return Counter(one for run in self.runs for one in run.known)

    def undecided(self) -> Sequence[str]:
        """The clauses that were unknown in any run of which the history is complete. Those of a
        run that was cut short are undecided because of that."""
        return sorted({clause for run in self.runs if run.complete for clause in run.unknown})

    def of(self, status: Status) -> Sequence[SoakRun]:
        """The runs of that status."""
        return [run for run in self.runs if run.status is status]

    def unbroken(self) -> bool:
        """Whether faults were wanted, and no run had one."""
        return self.with_faults and not any(run.faults for run in self.runs)

    def never_started(self) -> str:
        """Why no cluster ever got ready; empty if one did."""
        return "" if any(run.started for run in self.runs) else self.runs[0].trouble

    def exit_code(self) -> int:
        """1 for a new violation; 2 if code of a plugin raised; 4 if no cluster ever got ready; 3
        if anything is undecided, a run was cut short, or no fault was injected though faults were
        wanted; else 0."""
        if self.violated():
            return EXIT_VIOLATED
        if any(run.plugin_failed for run in self.runs):
            return EXIT_USAGE
        if self.runs and self.never_started():
            return EXIT_ENVIRONMENT
        unsure = (Status.NOT_STARTED, Status.CUT_SHORT, Status.UNDECIDED)
        if self.unbroken() or any(run.status in unsure for run in self.runs):
            return EXIT_INCONCLUSIVE
        return EXIT_CLEAN

    def met(self) -> Counts:
        """Which operations met their victims in which states, in all runs."""
        found: Counter[Met] = Counter()
        for run in self.runs:
            found += counted(run.met)
        return counts(found)

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost soak --json` prints."""
        return {
            "runs": [{**to_builtins(run), "status": run.status} for run in self.runs],
            "clean": len(self.of(Status.CLEAN)),
            "violated": self.violated(),
            "known": self.known(),
            "unknown": self.undecided(),
            "stopped_by_budget": self.spent,
            "deleted": self.deleted,
            "cut_short": [run.seed for run in self.of(Status.CUT_SHORT)],
            "exit_code": self.exit_code(),
            "coverage": {"states": self.states, "met": self.met()},
        }


# --------------------------------------------------------------------------------------- in words

_STATUS_WIDTH = max(map(len, Status)) + 2


def run_in_words(run: SoakRun) -> Sequence[str]:
    """One run: its verdict, what is new, what is known, and what could not be decided."""
    said = [
        *_new(run),
        *_cut_short(run),
        *_known_in_words(run),
        *_undecided(run),
        *(f"without a receipt: {one}" for one in run.missed if run.unknown),
        *run.lost,
    ]
    said += [run.forfeited] if run.forfeited else []
    if run.stalled:
        said.append(run.stalled)
    first = f"  {run.seed}  {run.status:{_STATUS_WIDTH}}"
    return [(first if at == 0 else " " * len(first)) + line for at, line in enumerate(said or [""])]


def _new(run: SoakRun) -> Iterator[str]:
    for clause, message in run.violated.items():
        new, every = run.new[clause]
        share = f"{new} of " if new < every else ""
        yield f"{clause}: {share}{endings.counted(every, 'violation')}, first: {message}"


def _cut_short(run: SoakRun) -> Iterator[str]:
    if not run.started:
        yield run.trouble
    elif not run.whole:
        yield f"at {run.ran_ms / 1000:.1f} s: {run.trouble}"
        yield f"{endings.counted(len(run.held), 'clause')} held until then"


def _known_in_words(run: SoakRun) -> Iterator[str]:
    for finding, clauses in run.known.items():
        times = ", ".join(f"{clause} {number}" for clause, number in clauses.items())
        of = run.stand_ins.get(finding, "")
        yield f"known: {finding}{f' of {of}, the nearest release' if of else ''} ({times})"


def _undecided(run: SoakRun) -> Iterator[str]:
    if run.whole and run.trouble:
        yield run.trouble
    because: dict[tuple[str, str], list[str]] = {}
    for clause, (cause, why) in run.follows.items():
        because.setdefault((cause, why), []).append(clause)
    for (cause, why), clauses in because.items():
        yield f"because of {cause}, undecided: {endings.few(clauses)}: {why}"
    if run.complete:
        yield from endings.undecided(run.unknown)


def ending(soaked: Soaked, wanted: SoakPlan, took_s: float, *, coverage: bool) -> Sequence[str]:
    """What `fencepost soak` prints at its end: one verdict a seed, what held, the coverage, the
    commands to go on with, and the reason for the exit code."""
    runs = soaked.runs
    clean = [run.seed for run in runs if run.status is Status.CLEAN and not _speaks(run)]
    lines = [_heading(soaked, wanted, took_s)]
    lines += [line for run in runs if run.seed not in clean for line in run_in_words(run)]
    if soaked.spent:
        left = f"no time was left for more of the {wanted.runs} that were asked for"
        lines.append(f"  stopped after {endings.counted(len(runs), 'run')}: {left}")
    if clean:
        of = endings.counted(len(runs), "run")
        lines.append(f"  {endings.in_ranges(clean)}  clean ({len(clean)} of {of})")
    if soaked.deleted and wanted.keep_bytes is not None:
        folders = endings.counted(len(soaked.deleted), "folder")
        seeds, most = endings.in_ranges(soaked.deleted), in_bytes(wanted.keep_bytes)
        lines.append(f"  deleted {folders} of clean runs, to keep {most} at most (seeds {seeds})")
    whole = [run.verdicts for run in runs if run.started and run.whole]
    lines += filter(None, [endings.what_held(whole, " in the whole runs")])
    said = in_words(soaked.met(), soaked.states)
    lines += said if coverage else [f"{one} (--coverage lists them)" for one in said[:1]]
    worst = min((run.status for run in runs), key=list(Status).index)
    if worst not in (Status.CLEAN, Status.NOT_STARTED):
        alike = [run.run for run in runs if run.status is worst]
        lines += [endings.go_on(run) for run in alike[:_GO_ON]]
        if len(alike) > _GO_ON:
            rest = [Path(run).name for run in alike[_GO_ON:]]
            lines.append(f"and so on, beside these: {endings.few(rest, _NAMED)}")
    cut = sum(not run.whole for run in runs)
    failed = sum(run.plugin_failed for run in runs)
    troubled = sum(bool(run.whole and run.trouble) for run in runs)
    violated, undecided = len(soaked.violated()), len(soaked.undecided())
    lines.append(
        endings.exit_reason(
            soaked.exit_code(),
            *endings.violated(violated),
            f"{endings.counted(undecided, 'clause')} undecided" if undecided else "",
            f"{endings.counted(cut, 'run')} cut short" if cut else "",
            f"{endings.counted(failed, 'run')} in which code of a plugin raised" if failed else "",
            f"{endings.counted(troubled, 'run')} with trouble" if troubled else "",
            NO_FAULT if soaked.unbroken() else "",
        )
    )
    return lines


_GO_ON = 3
"""With how many of the worst runs the last lines go on."""
_NAMED = 5
"""How many more of them are named."""


def _speaks(run: SoakRun) -> bool:
    """Whether there is something to say of a run that is clean."""
    return bool(run.lost or run.stalled)


def _heading(soaked: Soaked, wanted: SoakPlan, took_s: float) -> str:
    runs = soaked.runs
    seeds = endings.in_ranges([run.seed for run in runs])
    drawn = round(sum(run.drawn_ms for run in runs) / 60_000, 1)
    planned = round(len(runs) * wanted.span_ms / 60_000, 1)
    # A schedule may last longer than planned, since its last fault heals; only a shorter one lacks.
    span = f"{drawn} of {planned}" if drawn < planned else f"{drawn}"
    release = next((run.release for run in runs if run.release), wanted.system)
    name = f"{endings.counted(len(runs), 'run')} of {release}"
    faults = endings.counted(sum(run.faults for run in runs), "fault")
    operations = endings.counted(sum(run.operations for run in runs), "operation")
    return (
        f"{name} ({'seed' if len(runs) == 1 else 'seeds'} {seeds}): {faults} and {operations} in "
        f"{span} minutes; {took_s / 60:.1f} minutes in all"
    )


def sentence_of(run: SoakRun) -> str:
    """One run in one line, while others go on."""
    what = f"seed {run.seed}, {endings.counted(run.faults, 'fault')}: {run.status}"
    first = next((line for line in (*run.violated, *_cut_short(run), *run.known)), "")
    return f"{what}{because(first)}"
