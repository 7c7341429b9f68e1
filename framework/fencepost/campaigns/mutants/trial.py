"""One trial: a simulated system with one module changed, under its suite and random schedules.

    python -m fencepost.campaigns.mutants.trial TRIAL.json

The file holds a `Trial`. One line on standard output is a `Noticed`. The changed module is executed
before any other module imports it. Exit code 2: the file cannot be read.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

LEFT = ""
"""The trial's word for a change that nothing noticed."""


class Trial(Struct, frozen=True, kw_only=True):
    """What to run: `source` is that of `module` with the change (both empty: no change)."""

    module: str
    source: str
    system: str
    out: str
    seeds: int
    span_ms: int


class Noticed(Struct, frozen=True):
    """What noticed the change: a test, or a random schedule with the clauses that it violates.
    Empty: nothing did."""

    by: str


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


def run(trial: Trial) -> Noticed:
    """Runs the suite up to the first test that fails, and then the random schedules."""
    # Imported here: a changed module must be in place before these import it.
    from fencepost.campaigns.defects import verdicts_in  # noqa: PLC0415
    from fencepost.judging.judge import Outcome  # noqa: PLC0415
    from fencepost.model.system.shape import Shape  # noqa: PLC0415
    from fencepost.plugins.manager import load  # noqa: PLC0415
    from fencepost.runs.random_schedule import run_one  # noqa: PLC0415
    from fencepost.runs.run import RunSpec, new_folder  # noqa: PLC0415
    from fencepost.testing import test_run as testrun  # noqa: PLC0415

    plugins, out = load(), Path(trial.out)
    system = plugins.system(trial.system)
    collected = testrun.ResultCollector()
    suite = testrun.suite_of(system)
    wanted = testrun.Wanted(trial.system, "simulated", out, seed=1, suite=suite)
    testrun.listen_quietly(wanted, collected, "--exitfirst")
    for one in collected.tests:
        if one["outcome"] == "failed":
            return Noticed(str(one["test"]))
    if collected.codes:
        return Noticed(next(iter(collected.codes.values())))
    for seed in range(1, trial.seeds + 1):
        spec = RunSpec(system, Shape(), "simulated", seed, lossy=True)
        folder = new_folder(out, f"random-{seed}")
        conducted = run_one(spec, plugins, folder, trial.span_ms, plugins.faults)
        broken = [c for c, v in verdicts_in(folder).items() if v.verdict is Outcome.VIOLATED]
        if broken or conducted.trouble:
            return Noticed(f"schedule {seed}: {', '.join(broken) or conducted.trouble}")
    return Noticed(LEFT)


def main(argv: list[str]) -> int:
    """Runs the trial of a file; returns the exit code."""
    try:
        trial = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Trial)
    except (IndexError, OSError, msgspec.DecodeError) as error:
        print(f"the trial cannot be read: {error}", file=sys.stderr)
        return 2
    output = os.dup(1)
    os.dup2(2, 1)  # what the tests print is no result
    try:
        if trial.module:
            exchange(trial.module, trial.source)
        noticed = run(trial)
    except Exception as error:
        noticed = Noticed(f"{type(error).__name__}: {error}")
    os.write(output, msgspec.json.encode(noticed) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
