"""Runs sessions of pytest, one after the other; counts them as one.

    python tests/tooling/flaky.py COMMAND [--rerun-flaky] ARGUMENTS [-- ARGUMENTS]...

With `--rerun-flaky`, at most three failed real tests run once more, alone, if no other test failed.
A test that passes the second time is flaky: it hides a race. It is written to
`.fencepost/flaky.json` and printed in the last lines, with its seed and the folder of its run. A
pure or simulated test is deterministic, so it never runs again. If more than three tests failed,
none runs again.

The next session runs even if tests failed, so that their failures hide no others. A session that
was interrupted, or could not import its tests, is the last one.

COMMAND names the caller. The limit of three includes the flaky tests of other commands, which are
printed again too, so the last lines of `.ci/run` name all of them. The very last line is
`N passed, N failed`, and `, N skipped` if any were.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import msgspec
import outcomes
from outcomes import Outcome, Session

LIMIT = 3
FOLDER = Path(".fencepost")
FILE = "flaky.json"
_TESTS_FAILED = 1
"""Pytest's exit code if a test failed and nothing else went wrong."""


class Flaky(msgspec.Struct, frozen=True, kw_only=True):
    """A real test that failed, and passed when it ran once more, alone."""

    command: str
    test: str
    seed: str
    run: str
    error: str

    def __str__(self) -> str:
        return f"{self.test}  seed={self.seed or 'none'}  run={self.run or 'none'}"


@final
@dataclass(frozen=True, slots=True)
class Result:
    """The result of both sessions: a failed test is flaky if the second session passed it."""

    flaky: Sequence[Outcome]
    failed: Sequence[Outcome]
    passed: int
    skipped: int
    interrupted: bool = False

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {len(self.failed)} failed{skipped}"


def known(file: Path) -> list[Flaky]:
    """The flaky tests that the file lists."""
    return msgspec.json.decode(file.read_bytes(), type=list[Flaky]) if file.exists() else []


def to_repeat(ended: Session, used: int, limit: int = LIMIT) -> Sequence[Outcome]:
    """The failed tests, if they may run once more; otherwise none. `used` of the limit are."""
    failed = ended.of("failed")
    if ended.exit_code != _TESTS_FAILED or ended.uncollected:
        return ()
    if len(failed) + used > limit or not all(one.real for one in failed):
        return ()
    return failed


def result_of(first: Session, second: Session | None) -> Result:
    """A test that the second session skipped, or did not run, has failed."""
    passed = set() if second is None else {one.test for one in second.of("passed")}
    flaky = [one for one in first.of("failed") if one.test in passed]
    return Result(
        flaky=flaky,
        failed=[one for one in first.of("failed") if one.test not in passed],
        passed=len(first.of("passed")) + len(flaky),
        skipped=len(first.of("skipped")),
        interrupted=first.exit_code not in (0, _TESTS_FAILED) or bool(first.uncollected),
    )


def seeded(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with a seed, so that a failure which the seed causes occurs again."""
    if any(one.startswith("--fencepost-seed") for one in arguments):
        return arguments
    return (*arguments, f"--fencepost-seed={int.from_bytes(os.urandom(4))}")


def pytest(arguments: Sequence[str]) -> int:
    """Runs pytest in a process of its own, and passes SIGTERM on to it; its exit code."""
    program = Path(sys.executable).with_name("pytest")
    with subprocess.Popen([program, *arguments]) as running:
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        while True:
            try:
                return running.wait()
            except KeyboardInterrupt:  # the terminal interrupts pytest too, which ends by itself
                continue


@final
@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the sessions of one command; `limit` tests may be flaky in all."""

    command: str
    folder: Path
    limit: int

    def run(self, sessions: Sequence[Sequence[str]]) -> int:
        """The exit code of the first session that failed; 0 if none did."""
        file = self.folder / FILE
        flaky = [one for one in known(file) if one.command != self.command]
        write(file, flaky)
        ended = 0
        results: list[Result] = []
        not_repeated = False
        for arguments in sessions:
            used = len(flaky) + len(total(results).failed)
            code, result, repeated = self._session(seeded(arguments), used)
            if result is None:
                return code
            results.append(result)
            flaky += [flaky_of(self.command, one) for one in result.flaky]
            write(file, flaky)
            ended = ended or code
            not_repeated |= bool(self.limit and code and not repeated)
            if result.interrupted:
                break
        if len(sessions) > 1 or flaky or ended:
            summarise(total(results), flaky, not_repeated=not_repeated)
        return ended

    def _session(self, arguments: Sequence[str], used: int) -> tuple[int, Result | None, bool]:
        """Runs the tests, then once more those that may repeat: the exit code, what both come to,
        and whether any ran again. There is no result if pytest refused its arguments, or died.
        `used` counts the failed tests of earlier sessions."""
        first_file, second_file = (
            self.folder / name for name in ("outcomes.json", "outcomes-again.json")
        )
        first_file.unlink(missing_ok=True)
        code = pytest([*arguments, f"--outcomes={first_file}"])
        if not first_file.exists():
            return code or _TESTS_FAILED, None, False
        first = outcomes.read(first_file)
        repeated = to_repeat(first, used, self.limit)
        if not repeated:
            return code, result_of(first, None), False
        print("\nThese real tests failed. They run once more, alone:")
        print(*(f"  {one.test}" for one in repeated), sep="\n", flush=True)
        second_file.unlink(missing_ok=True)
        again = ["-n", "0", f"--again={first_file}", f"--outcomes={second_file}"]
        pytest([*arguments, *again])
        second = outcomes.read(second_file) if second_file.exists() else None
        result = result_of(first, second)
        return (_TESTS_FAILED if result.failed else 0), result, True


def total(results: Sequence[Result]) -> Result:
    """The result of several sessions."""
    return Result(
        flaky=[one for result in results for one in result.flaky],
        failed=[one for result in results for one in result.failed],
        passed=sum(result.passed for result in results),
        skipped=sum(result.skipped for result in results),
    )


def flaky_of(command: str, failed: Outcome) -> Flaky:
    return Flaky(
        command=command, test=failed.test, seed=failed.seed, run=failed.run, error=failed.error
    )


def write(file: Path, flaky: Sequence[Flaky]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(flaky), indent=1) + b"\n")


def summarise(result: Result, flaky: Sequence[Flaky], *, not_repeated: bool) -> None:
    """Prints the last lines."""
    if not_repeated:
        print(f"\nNo test ran again: at most {LIMIT} failed tests do, if all of them are real.")
    if result.failed:
        print("\nFailed:", *(f"  {one.test}" for one in result.failed), sep="\n")
    if flaky:
        print("\nFlaky: failed first, passed alone:", *(f"  {one}" for one in flaky), sep="\n")
    print(result, flush=True)


def main(command: str, words: Sequence[str]) -> int:
    rerun = words[:1] == ["--rerun-flaky"]
    sessions: list[list[str]] = [[]]
    for word in words[rerun:]:
        if word == "--":
            sessions.append([])
        else:
            sessions[-1].append(word)
    return Runner(command, FOLDER, LIMIT if rerun else 0).run(sessions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
