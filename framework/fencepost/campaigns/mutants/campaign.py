"""`fencepost mutants`: draws changes of a system's code, and tries whether each is noticed.

Each mutant runs in a process of its own, simulated: under the system's suite and other tests, and
then under random schedules, until something fails. What is left is either equivalent to the
original, or nothing tests it. The unchanged system runs first: a mutant runs only under the tests
and schedules that execute the changed line, the shortest first.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from typing import final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fencepost.campaigns.mutants import trial
from fencepost.campaigns.mutants.mutations import Mutation, mutations_of
from fencepost.campaigns.mutants.reach import Reach
from fencepost.campaigns.mutants.trial import LEFT, Noticed, Trial, schedule
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import Mutable, System

LIMIT_S = 120
"""How many seconds of processor time one mutant may take: one that does not end is noticed."""
WAIT_S = 20 * LIMIT_S
"""How long to wait for one mutant, on a busy machine too."""


class Mutant(Struct, frozen=True, kw_only=True):
    """One change, what noticed it (empty: nothing), and how long that took. `reached_by` counts the
    tests and schedules that execute the changed line."""

    file: str
    line: int
    was: str
    now: str
    noticed_by: str
    seconds: float
    reached_by: int


NOT_NOTICED = "NOT noticed"


@final
@dataclass(frozen=True, slots=True)
class Results:
    """The mutants that were tried, those that nothing noticed first."""

    mutants: Sequence[Mutant]

    @property
    def noticed(self) -> int:
        """How many were noticed."""
        return sum(bool(one.noticed_by) for one in self.mutants)

    def as_json(self) -> dict[str, object]:
        """The object that `fencepost mutants --json` prints."""
        return {
            "of": len(self.mutants),
            "noticed": self.noticed,
            "mutants": msgspec.to_builtins(list(self.mutants)),
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Tries mutants of one system: `seeds` random schedules of `span_ms` after the suite and the
    tests below `paths`, `jobs` at a time. `report` gets a line for each."""

    system: System
    paths: Sequence[str]
    jobs: int
    seeds: int
    span_ms: int
    report: Callable[[str], None]

    def drawn(self, count: int, seed: int) -> Sequence[Mutation]:
        """`count` mutations of the system's code, drawn by a seed; all if there are fewer.

        Raises UsageError for a system that names no code.
        """
        if not isinstance(self.system, Mutable):
            raise UsageError(f"{self.system.name} names no code of its own to change")
        every = [
            one
            for module in self._modules()
            for one in mutations_of(module, _origin(module).read_bytes())
        ]
        return Random(f"{seed}/mutants").sample(every, min(count, len(every)))

    def _modules(self) -> Sequence[str]:
        assert isinstance(self.system, Mutable)
        return sorted(_modules(self.system.mutable()))

    def run(self, mutations: Sequence[Mutation]) -> Results:
        """Tries each; raises EnvironmentFailed if the unchanged system does not pass."""
        reach = self.healthy()
        tried: list[Mutant] = []
        with ThreadPoolExecutor(self.jobs) as pool:
            for mutant in pool.map(partial(self.attempt, reach), mutations):
                tried.append(mutant)
                word = mutant.noticed_by.splitlines()[0] if mutant.noticed_by else NOT_NOTICED
                place = f"{mutant.file}:{mutant.line}: {mutant.was} -> {mutant.now}"
                self.report(f"{len(tried)} of {len(mutations)}: {place}: {word}")
        tried.sort(key=lambda one: (bool(one.noticed_by), one.file, one.line))
        return Results(tried)

    def healthy(self) -> Reach:
        """Runs the unchanged system. Returns which lines each test and each schedule executes.

        Raises EnvironmentFailed if it does not pass.
        """
        every = self._trial(None, tests=None, schedules=range(1, self.seeds + 1))
        traced = tuple(str(_origin(module)) for module in self._modules())
        noticed = _noticed(replace(every, traced=traced, limit_s=10 * LIMIT_S))
        if noticed.by != LEFT:
            raise EnvironmentFailed(f"the unchanged system does not pass: {noticed.by}")
        return noticed.reach

    def attempt(self, reach: Reach, mutation: Mutation) -> Mutant:
        """Tries one mutation under the tests and schedules that execute a line of it."""
        began_ns = now_ns()
        lines = range(mutation.line, mutation.last_line + 1)
        parts = reach.of(str(_origin(mutation.module)), lines)
        schedules = [seed for seed in range(1, self.seeds + 1) if schedule(seed) in parts]
        tests = [name for name in parts if name not in map(schedule, schedules)]
        noticed = LEFT
        if parts:
            noticed = _noticed(self._trial(mutation, tests=tests, schedules=schedules)).by
        return Mutant(
            file=mutation.module,
            line=mutation.line,
            was=mutation.was,
            now=mutation.now,
            noticed_by=noticed,
            seconds=(now_ns() - began_ns) / SECOND,
            reached_by=len(parts),
        )

    def _trial(
        self, mutation: Mutation | None, *, tests: Sequence[str] | None, schedules: Sequence[int]
    ) -> Trial:
        module, source = "", b""
        if mutation is not None:
            module = mutation.module
            source = mutation.applied(_origin(module).read_bytes())
        return Trial(
            module=module,
            source=source.decode(),
            system=self.system.name,
            paths=self.paths,
            tests=tests,
            schedules=tuple(schedules),
            span_ms=self.span_ms,
            limit_s=LIMIT_S,
        )


def _noticed(wanted: Trial) -> Noticed:
    """Runs a trial in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fencepost-mutant-") as folder:
        path = Path(folder) / "trial.json"
        path.write_bytes(msgspec.json.encode(wanted))
        program = [sys.executable, "-m", trial.__name__, str(path)]
        try:
            done = subprocess.run(
                program, cwd=folder, capture_output=True, timeout=WAIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Noticed(f"it did not end within {WAIT_S} s", Reach(()))
    if done.returncode == -signal.SIGXCPU:
        return Noticed(f"it took more than {wanted.limit_s} s of the processor", Reach(()))
    if done.returncode or not done.stdout:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Noticed(f"exit code {done.returncode}: {''.join(last)}", Reach(()))
    return msgspec.json.decode(done.stdout, type=Noticed)


def _modules(names: Iterable[str]) -> Iterable[str]:
    """The modules of these names; of a package, all below it."""
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None:
            raise UsageError(f"there is no module {name} to change")
        if found.submodule_search_locations is None:
            yield name
            continue
        below = pkgutil.iter_modules(found.submodule_search_locations, f"{name}.")
        yield from _modules(one.name for one in below)


def _origin(module: str) -> Path:
    found = importlib.util.find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    return Path(found.origin)
