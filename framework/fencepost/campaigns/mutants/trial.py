"""One trial: a simulated system with one module changed, under its suite and random schedules.

    python -m fencepost.campaigns.mutants.trial TRIAL.json

The file holds a `Trial`. One line on standard output is a `Noticed`. The changed module is executed
before any other module imports it. A trial that takes too much time of the processor is ended by
the kernel. Exit code 2: the file cannot be read.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost.campaigns.mutants.reach import Reach, Tracer

LEFT = ""
"""The trial's word for a change that nothing noticed."""


class Trial(Struct, frozen=True, kw_only=True):
    """What to run: `source` is that of `module` with the change (both empty: no change).

    `paths` are files or folders with tests beside those of the suite. `tests` are the names of the
    tests to run, in this order (None: all), and `schedules` the seeds of the random schedules after
    them. The lines of the files `traced` that each executes are recorded.
    """

    module: str
    source: str
    system: str
    paths: Sequence[str]
    tests: Sequence[str] | None
    schedules: Sequence[int]
    span_ms: int
    limit_s: int
    """Seconds of processor time after which the trial is ended."""
    traced: Sequence[str] = ()


class Noticed(Struct, frozen=True):
    """What noticed the change: a test, or a random schedule with the clauses that it violates.
    Empty: nothing did. `reach` names each test, and each schedule as `schedule(seed)`."""

    by: str
    reach: Reach


def schedule(seed: int) -> str:
    """The name of a random schedule."""
    return f"schedule {seed}"


def exchange(module: str, source: str) -> None:
    """Executes the source as that module, in place of the module's own."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    changed = importlib.util.module_from_spec(spec)
    sys.modules[module] = changed
    exec(compile(source, spec.origin, "exec"), changed.__dict__)
    parent, _, name = module.rpartition(".")
    setattr(sys.modules[parent], name, changed)


def run(trial: Trial, out: Path, part: Callable[[str], None]) -> str:
    """Runs the tests up to the first that fails, and then the random schedules. Returns what
    noticed the change. `part` is called with the name of each before it starts. Runs are kept
    below `out`."""
    # Imported here: a changed module must be in place before these import it.
    from fencepost.campaigns.defects import verdicts_in  # noqa: PLC0415
    from fencepost.judging.judge import Outcome  # noqa: PLC0415
    from fencepost.model.system.shape import Shape  # noqa: PLC0415
    from fencepost.plugins.manager import load  # noqa: PLC0415
    from fencepost.runs.random_schedule import run_one  # noqa: PLC0415
    from fencepost.runs.run import RunSpec, new_folder  # noqa: PLC0415
    from fencepost.testing import test_run as testrun  # noqa: PLC0415

    plugins = load()
    system = plugins.system(trial.system)
    if trial.tests is None or trial.tests:
        collected = testrun.ResultCollector(only=trial.tests, started=part)
        suite = testrun.suite_of(system)
        wanted = testrun.Wanted(trial.system, "simulated", out, seed=1, suite=suite)
        testrun.listen_quietly(wanted, collected, "--exitfirst", *trial.paths)
        for one in collected.tests:
            if one["outcome"] == "failed":
                return str(one["test"])
        if collected.codes:
            return next(iter(collected.codes.values()))
    for seed in trial.schedules:
        part(schedule(seed))
        spec = RunSpec(system, Shape(), "simulated", seed, lossy=True)
        folder = new_folder(out, f"random-{seed}")
        conducted = run_one(spec, plugins, folder, trial.span_ms, plugins.faults)
        broken = [c for c, v in verdicts_in(folder).items() if v.verdict is Outcome.VIOLATED]
        if broken or conducted.trouble:
            return f"{schedule(seed)}: {', '.join(broken) or conducted.trouble}"
    return LEFT


def main(argv: list[str]) -> int:
    """Runs the trial of a file; returns the exit code."""
    try:
        trial = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Trial)
    except (IndexError, OSError, msgspec.DecodeError) as error:
        print(f"the trial cannot be read: {error}", file=sys.stderr)
        return 2
    resource.setrlimit(resource.RLIMIT_CPU, (trial.limit_s, trial.limit_s))
    output = os.dup(1)
    os.dup2(2, 1)  # what the tests print is no result
    tracer = Tracer(trial.traced)
    if trial.traced:
        tracer.start()
    try:
        if trial.module:
            exchange(trial.module, trial.source)
        by = run(trial, Path(argv[1]).parent / "out", tracer.begin)
    except Exception as error:
        by = f"{type(error).__name__}: {error}"
    with os.fdopen(output, "wb") as result:
        result.write(msgspec.json.encode(Noticed(by, tracer.stop())) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
