"""The process that tries mutants: it collects a simulated system's tests once, and forks for each.

    python -m fencepost.campaigns.mutants.trial SETTING.json

The file holds a `Setting`. Each line of standard input is a `Trial`, and its answer, a line on
standard output, is a `Noticed`. A trial runs in a fork: its change is made there, in functions that
are imported already. The kernel ends one that takes too much time. Exit code 2: the file cannot be
read.
"""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

import msgspec
import pytest
from msgspec import Struct

from fencepost.campaigns.mutants.live import Sources, replace_functions
from fencepost.campaigns.mutants.mutations import REACHED
from fencepost.campaigns.mutants.reach import Reach, Recorder
from fencepost.model.errors import UsageError
from fencepost.supervision.parents import end_with

LEFT = ""
"""The answer's word for a change that nothing noticed."""

IMPORT_S = 120
"""How many seconds of the processor the imports and the collection of the tests may take."""


class Setting(Struct, frozen=True, kw_only=True):
    """What all trials of a process have in common. `sources` replace those of the modules of these
    names. `suite`: whether the system's suite runs; `paths` are files or folders with other tests.
    A random schedule has a number up to `seeds`, and takes `span_ms`."""

    system: str
    sources: Mapping[str, str]
    suite: bool
    paths: Sequence[str]
    seeds: int
    span_ms: int
    wait_s: int
    """How long a trial may take."""


class Trial(Struct, frozen=True, kw_only=True):
    """What to run: `source` is that of `module` with the change (both empty: no change), `parts`
    the names of tests in this order, and then of random schedules, each with the seconds of the
    processor that it may take (None: all)."""

    module: str = ""
    source: str = ""
    parts: Mapping[str, float] | None


class Noticed(Struct, frozen=True, kw_only=True):
    """What noticed the change: a test, or a random schedule with the clauses that it violates.
    Empty: nothing did. `possible`: whether the change can be made in a running process. `reach`
    names each test, and each schedule as `schedule(seed)`."""

    by: str
    possible: bool = True
    reach: Reach = Reach(())


def schedule(seed: int) -> str:
    """The name of a random schedule."""
    return f"schedule {seed}"


@final
@dataclass(eq=False)
class Forks:
    """A plugin of pytest: once the tests are collected, forks for each trial. Pytest goes on in the
    fork only."""

    requests: BinaryIO
    answers: BinaryIO
    out: Path
    setting: Setting
    recorder: Recorder
    trial: Trial | None = None
    """The trial of this process, if it is a fork."""
    possible: bool = True
    lost: Sequence[str] = ()
    """Names of parts that do not exist."""
    collected: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None
        self.collected = True
        for line in self.requests:
            trial = msgspec.json.decode(line, type=Trial)
            if trial.module:
                # In the server, before the fork: the functions must exist for their code to be
                # replaced, and the next fork has the import already.
                importlib.import_module(trial.module)
            server = os.getpid()
            child = os.fork()
            if child == 0:
                # Else a mutant that never ends would outlive a command that was interrupted.
                end_with(server)
                self._prepare(trial, session)
                return None
            _, status = os.waitpid(child, 0)
            if status:
                self.answer(Noticed(by=_ended(os.waitstatus_to_exitcode(status))))
            # Thousands of trials would fill the disk with runs.
            shutil.rmtree(self.out, ignore_errors=True)
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.begin(nodeid)

    def begin(self, part: str) -> None:
        """Called with the name of each part before it starts."""
        self.recorder.begin(part)
        assert self.trial is not None
        if self.trial.parts is not None:
            # A limit of the processor's time, not of the clock: a busy machine makes no mutant
            # slow. It counts from the fork's beginning, so what was used so far is added.
            _, most = resource.getrlimit(resource.RLIMIT_CPU)
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit_s = used.ru_utime + used.ru_stime + self.trial.parts[part]
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, most))

    def answer(self, noticed: Noticed) -> None:
        """Answers the newest request."""
        self.answers.write(msgspec.json.encode(noticed) + b"\n")
        self.answers.flush()

    def _prepare(self, trial: Trial, session: pytest.Session) -> None:
        # For a mutant that waits without using the processor.
        signal.alarm(self.setting.wait_s)
        # A process that is ended by a limit would write its memory to the disk.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.trial = trial
        if trial.module:
            self.possible = replace_functions(sys.modules[trial.module], trial.source)
        if not self.possible:
            session.items[:] = []
        elif trial.parts is not None:
            by_name = {item.nodeid: item for item in session.items}
            schedules = set(map(schedule, range(1, self.setting.seeds + 1)))
            self.lost = sorted(trial.parts.keys() - by_name.keys() - schedules)
            # In the order of the trial, the shortest first: most mutants are noticed by the first.
            session.items[:] = [by_name[name] for name in trial.parts if name in by_name]


def serve(forks: Forks) -> None:
    """Collects the tests and answers all requests; in a fork, answers one."""
    # Imported here: sources must be in place before these import the modules.
    from fencepost.plugins.manager import load  # noqa: PLC0415
    from fencepost.testing import test_run as testrun  # noqa: PLC0415

    setting, out = forks.setting, forks.out
    plugins = load()
    for module in setting.sources:
        # Pytest's own finder, which comes first once it runs, would execute the file instead.
        importlib.import_module(module)
    paths = list(setting.paths)
    wanted = testrun.Wanted(
        setting.system,
        "simulated",
        out,
        seed=1,
        suite=testrun.suite_of(plugins.system(setting.system)),
        tests=() if setting.suite else (paths.pop(0),),
    )
    results = testrun.ResultCollector()
    options = ("--exitfirst", f"--basetemp={out.parent / 'tmp'}", *paths)
    ended = testrun.listen_quietly(wanted, results, *options, beside=[forks])
    if not forks.collected:
        raise RuntimeError("the tests cannot be collected")
    if forks.lost:
        raise UsageError(f"no test is named {forks.lost[0]}")
    if ended == pytest.ExitCode.INTERNAL_ERROR:
        raise RuntimeError("pytest failed")
    if forks.trial is not None:
        by = LEFT
        failed = [one["test"] for one in results.tests if one["outcome"] == "failed"]
        if failed or results.codes:
            by = str(next(iter([*failed, *results.codes.values()])))
        elif forks.possible:
            by = _noticing_schedule(forks)
        forks.answer(Noticed(by=by, possible=forks.possible, reach=forks.recorder.stop()))


def _noticing_schedule(forks: Forks) -> str:
    """The first of the trial's random schedules that violates a clause, and which."""
    from fencepost.campaigns.defects import verdicts_in  # noqa: PLC0415
    from fencepost.judging.verdicts import Outcome  # noqa: PLC0415
    from fencepost.model.system.shape import Shape  # noqa: PLC0415
    from fencepost.plugins.manager import load  # noqa: PLC0415
    from fencepost.runs.random_schedule import run_one  # noqa: PLC0415
    from fencepost.runs.run import RunSpec, new_folder  # noqa: PLC0415

    assert forks.trial is not None
    setting, parts = forks.setting, forks.trial.parts
    plugins = load()
    system = plugins.system(setting.system)
    for seed in range(1, setting.seeds + 1):
        if parts is not None and schedule(seed) not in parts:
            continue
        forks.begin(schedule(seed))
        spec = RunSpec(system, Shape(), "simulated", seed, lossy=True)
        folder = new_folder(forks.out, f"random-{seed}")
        conducted = run_one(spec, plugins, folder, setting.span_ms, plugins.faults)
        broken = [c for c, v in verdicts_in(folder).items() if v.verdict is Outcome.VIOLATED]
        # A cluster that does not recover has noticed the change as well.
        if broken or conducted.trouble:
            return f"{schedule(seed)}: {', '.join(broken) or conducted.trouble}"
    return LEFT


def _ended(code: int) -> str:
    """How a fork without an answer ended."""
    if code == -signal.SIGXCPU:
        return "it took too much time of the processor"
    if code == -signal.SIGALRM:
        return "it did not end"
    return f"exit code {code}"


def main(argv: list[str]) -> int:
    """Serves the setting of a file; returns the exit code."""
    end_with(os.getppid())
    try:
        setting = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Setting)
    except (IndexError, OSError, msgspec.DecodeError) as error:
        print(f"the setting cannot be read: {error}", file=sys.stderr)
        return 2
    # Pytest exchanges the standard streams; and what the tests print is no answer.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # A changed source may not end to be imported.
    resource.setrlimit(resource.RLIMIT_CPU, (IMPORT_S, resource.RLIM_INFINITY))
    recorder = Recorder()
    sys.meta_path.insert(0, Sources(setting.sources, {REACHED: recorder.reached}))
    forks = Forks(requests, answers, Path(argv[1]).parent / "out", setting, recorder)
    try:
        serve(forks)
    except Exception as error:
        noticed = Noticed(by=f"{type(error).__name__}: {error}")
        if forks.trial is not None:
            forks.answer(noticed)
        else:
            # The owner waits for an answer to each of its requests, so each gets the reason.
            for _ in requests:
                forks.answer(noticed)
    if forks.trial is not None:
        # Without the exit handlers: they are the server's.
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
