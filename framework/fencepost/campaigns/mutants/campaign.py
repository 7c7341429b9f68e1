"""`fencepost mutants`: draws changes of a system's code, and tries whether each is noticed.

Each mutant runs in a process of its own, simulated: under the system's suite, and then under random
schedules, until something fails. What is left is either equivalent to the original, or nothing
tests it.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from typing import final

import msgspec
from msgspec import Struct

from fencepost.campaigns.mutants import trial
from fencepost.campaigns.mutants.mutations import Mutation, mutations_of
from fencepost.campaigns.mutants.trial import LEFT, Noticed, Trial
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import Mutable, System

LIMIT_S = 300.0
"""How long one mutant may run: one that does not end in time is noticed."""


class Mutant(Struct, frozen=True, kw_only=True):
    """One change, what noticed it (empty: nothing), and how long that took."""

    file: str
    line: int
    was: str
    now: str
    noticed_by: str
    seconds: float


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
    """Tries mutants of one system: `seeds` random schedules of `span_ms` after the suite, `jobs` at
    a time. `report` gets a line for each."""

    system: System
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
            for module in sorted(_modules(self.system.mutable()))
            for one in mutations_of(module, _origin(module).read_bytes())
        ]
        return Random(f"{seed}/mutants").sample(every, min(count, len(every)))

    def run(self, mutations: Sequence[Mutation]) -> Results:
        """Tries each; raises EnvironmentFailed if the unchanged system does not pass."""
        healthy = self.attempt(None)
        if healthy.noticed_by != LEFT:
            raise EnvironmentFailed(f"the unchanged system does not pass: {healthy.noticed_by}")
        tried: list[Mutant] = []
        with ThreadPoolExecutor(self.jobs) as pool:
            for mutant in pool.map(self.attempt, mutations):
                tried.append(mutant)
                word = mutant.noticed_by.splitlines()[0] if mutant.noticed_by else "NOT noticed"
                place = f"{mutant.file}:{mutant.line}"
                self.report(f"{len(tried)} of {len(mutations)}: {place}: {word}")
        tried.sort(key=lambda one: (bool(one.noticed_by), one.file, one.line))
        return Results(tried)

    def attempt(self, mutation: Mutation | None) -> Mutant:
        """Tries one mutation, or the unchanged system."""
        began_ns = now_ns()
        with tempfile.TemporaryDirectory(prefix="fencepost-mutant-") as made:
            folder = Path(made)
            module, source = "", b""
            if mutation is not None:
                module = mutation.module
                source = mutation.applied(_origin(module).read_bytes())
            wanted = Trial(
                module=module,
                source=source.decode(),
                system=self.system.name,
                out=str(folder / "out"),
                seeds=self.seeds,
                span_ms=self.span_ms,
            )
            (folder / "trial.json").write_bytes(msgspec.json.encode(wanted))
            noticed = _noticed(folder)
        return Mutant(
            file=module,
            line=mutation.line if mutation else 0,
            was=mutation.was if mutation else "",
            now=mutation.now if mutation else "",
            noticed_by=noticed,
            seconds=(now_ns() - began_ns) / SECOND,
        )


def _noticed(folder: Path) -> str:
    program = [sys.executable, "-m", trial.__name__, str(folder / "trial.json")]
    try:
        done = subprocess.run(
            program,
            cwd=folder,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {LIMIT_S:.0f} s"
    if done.returncode or not done.stdout:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"exit code {done.returncode}: {''.join(last)}"
    return msgspec.json.decode(done.stdout, type=Noticed).by


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
