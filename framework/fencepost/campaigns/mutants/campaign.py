"""`fencepost mutants`: draws changes of a system's code, and tries whether each is noticed.

Each mutant runs simulated: under the system's suite and other tests, and then under random
schedules, until something fails. What is left is either equivalent to the original, or nothing
tests it. The unchanged system runs first: a mutant runs only under the tests and schedules that
reach the change, the shortest first.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from types import TracebackType
from typing import Self, final

import msgspec
from msgspec import Struct

from fencepost.campaigns.mutants import trial
from fencepost.campaigns.mutants.mutations import Mutation, mutations_of, probed
from fencepost.campaigns.mutants.reach import Reach
from fencepost.campaigns.mutants.trial import LEFT, Noticed, Setting, Trial
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import Mutable, System

LIMIT_S, TIMES = 10, 5
"""A part may take this many seconds of the processor, and as many times as long as it takes
unchanged: a mutant that takes more is noticed."""
WAIT_S = 1_200
"""How long to wait for one mutant, on a busy machine too."""


class Mutant(Struct, frozen=True, kw_only=True):
    """One change, what noticed it (empty: nothing), and how long that took. `reached_by` counts the
    tests and schedules in which the changed place is executed, and would have had another value or
    effect."""

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

    @classmethod
    def of(cls, mutants: Iterable[Mutant]) -> Results:
        """The same in the order in which results are told."""
        return cls(sorted(mutants, key=lambda one: (bool(one.noticed_by), one.file, one.line)))

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
    tests below `paths`, `jobs` at a time. `report` gets a line for each.

    `modules` are changed in place of the system's own code, such as the rules: then the suite does
    not run, and what notices a change are the tests below `paths`."""

    system: System
    paths: Sequence[str]
    modules: Sequence[str] = ()
    jobs: int
    seeds: int
    span_ms: int
    report: Callable[[str], None]

    def drawn(self, count: int, seed: int) -> Sequence[Mutation]:
        """`count` mutations of the system's code, drawn by a seed; all if there are fewer.

        Raises UsageError for a system that names no code.
        """
        return drawn_from(self._every(), count, seed)

    def at(self, places: Sequence[str]) -> Sequence[Mutation]:
        """Every mutation in one of these places: the end of a module's name, and a line's number.

        Raises UsageError for a place without one.
        """
        return at_places(self._every(), places, self.system.name)

    def _every(self) -> Sequence[Mutation]:
        names = self.modules
        if not names:
            if not isinstance(self.system, Mutable):
                raise UsageError(f"{self.system.name} names no code of its own to change")
            names = self.system.mutable()
        return every_of(modules_of(names))

    def run(self, mutations: Sequence[Mutation], reach: Reach) -> Results:
        """Tries each. `reach` is what `healthy` returned for them."""
        return Results.of(self.tried(mutations, reach))

    def tried(self, mutations: Sequence[Mutation], reach: Reach) -> Sequence[Mutant]:
        """Tries each, and returns them in their order."""
        tried: list[Mutant] = []
        with ExitStack() as ended, ThreadPoolExecutor(self.jobs) as pool:
            idle: queue.SimpleQueue[Process] = queue.SimpleQueue()
            # A process takes seconds to collect the tests: none is started for mutants that nothing
            # reaches.
            reached = sum(bool(reach.of(number)) for number in range(len(mutations)))
            for _ in range(min(self.jobs, reached)):
                idle.put(ended.enter_context(self.process({})))
            attempt = partial(self.attempt, idle, reach)
            for mutant in pool.map(attempt, range(len(mutations)), mutations):
                tried.append(mutant)
                word = mutant.noticed_by.splitlines()[0] if mutant.noticed_by else NOT_NOTICED
                place = f"{mutant.file}:{mutant.line}: {mutant.was} -> {mutant.now}"
                self.report(f"{len(tried)} of {len(mutations)}: {place}: {word}")
        return tried

    def healthy(self, mutations: Sequence[Mutation]) -> Reach:
        """Runs the unchanged system. Returns which test and which schedule reaches which of these
        mutations, by their place among them.

        Raises EnvironmentFailed if it does not pass.
        """
        of: dict[str, dict[int, Mutation]] = {}
        for number, one in enumerate(mutations):
            of.setdefault(one.module, {})[number] = one
        sources = {
            module: probed(_origin(module).read_bytes(), some).decode()
            for module, some in of.items()
        }
        with self.process(sources) as process:
            noticed = process.ask(Trial(parts=None))
        if noticed.by != LEFT:
            raise EnvironmentFailed(f"the unchanged system does not pass: {noticed.by}")
        return noticed.reach

    def attempt(
        self, idle: queue.SimpleQueue[Process], reach: Reach, number: int, mutation: Mutation
    ) -> Mutant:
        """Tries one mutation under the tests and schedules that reach it, in one of the processes
        with the unchanged system, or in one of its own."""
        began_ns = now_ns()
        # Only what reaches the changed place can notice it. A loop that no longer ends is noticed
        # by its time.
        parts = {name: LIMIT_S + TIMES * seconds for name, seconds in reach.of(number).items()}
        changed = mutation.applied(_origin(mutation.module).read_bytes()).decode()
        # What an import has executed cannot be changed afterwards: such a mutant needs a process in
        # which its module is imported with the change.
        noticed = Noticed(by=LEFT, possible=not reach.at_import(number))
        if parts and noticed.possible:
            process = idle.get()
            noticed = process.ask(Trial(module=mutation.module, source=changed, parts=parts))
            idle.put(process)
        # Also for a change that could not be made in the running process.
        if parts and not noticed.possible:
            with self.process({mutation.module: changed}) as process:
                noticed = process.ask(Trial(parts=parts))
        return Mutant(
            file=mutation.module,
            line=mutation.line,
            was=mutation.was,
            now=mutation.now,
            noticed_by=noticed.by,
            seconds=(now_ns() - began_ns) / SECOND,
            reached_by=len(parts),
        )

    def process(self, sources: Mapping[str, str]) -> Process:
        """A process that tries mutants, with these sources in place of the modules' own."""
        setting = Setting(
            system=self.system.name,
            sources=sources,
            suite=not self.modules,
            paths=self.paths,
            seeds=self.seeds,
            span_ms=self.span_ms,
            wait_s=WAIT_S,
        )
        return Process(setting)


def _absolute(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The same variables for a process in another folder."""
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    absolute = os.pathsep.join(os.path.abspath(one) for one in paths if one)
    return {**variables, "PYTHONPATH": absolute}


@final
class Process:
    """A process that tries mutants one after another, in a folder of its own (see `trial`)."""

    def __init__(self, setting: Setting) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fencepost-mutant-")
        path = Path(self._folder.name) / "setting.json"
        path.write_bytes(msgspec.json.encode(setting))
        self._printed = Path(self._folder.name) / "printed"
        self._changed = bool(setting.sources)
        with self._printed.open("wb") as printed:
            self._child = subprocess.Popen(
                [sys.executable, "-m", trial.__name__, str(path)],
                cwd=self._folder.name,
                env=_absolute(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            self._child.kill()
        # Closes its input, which ends it, and reads the rest of its output, which could block it.
        self._child.communicate()
        self._folder.cleanup()

    def ask(self, wanted: Trial) -> Noticed:
        """Waits for the answer to a trial.

        Raises EnvironmentFailed if the process ends without one, and its sources are unchanged.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(msgspec.json.encode(wanted) + b"\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if answer:
            return msgspec.json.decode(answer, type=Noticed)
        last = self._printed.read_text(errors="replace").strip().splitlines()[-1:]
        ended = f"exit code {self._child.wait()}: {''.join(last)}"
        # With the changed source, an end without an answer is the mutant's doing: it was noticed.
        if not self._changed:
            raise EnvironmentFailed(f"the process that tries mutants ended: {ended}")
        return Noticed(by=ended)


def modules_of(names: Iterable[str]) -> Sequence[str]:
    """The modules of these names; of a package, all below it but its tests. In their order."""
    return sorted(set(_modules(names)))


def every_of(modules: Iterable[str]) -> Sequence[Mutation]:
    """Every mutation of these modules."""
    return [one for module in modules for one in mutations_of(module, _origin(module).read_bytes())]


def drawn_from(every: Sequence[Mutation], count: int, seed: int) -> Sequence[Mutation]:
    """`count` of these mutations, drawn by a seed; all if there are fewer."""
    # By the seed alone, so that the same mutants are tried again after a rule or a test was added.
    return Random(f"{seed}/mutants").sample(every, min(count, len(every)))


def at_places(every: Sequence[Mutation], places: Sequence[str], whose: str) -> Sequence[Mutation]:
    """Those of these mutations that are in one of the places. Raises UsageError for a place without
    one, which names whose mutations they are."""
    found: list[Mutation] = []
    for place in places:
        here = [one for one in every if f".{one.module}:{one.line}".endswith(f".{place}")]
        if not here:
            raise UsageError(f"{whose} has nothing to change at {place}")
        found += here
    return found


def _modules(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        if name.rpartition(".")[2].startswith("test_"):
            continue
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
    if not found.origin.endswith(".py"):
        raise UsageError(f"{module} is compiled, and only interpreted code can be changed")
    return Path(found.origin)
