"""Judges recorded runs again, and shows what a change of the rules does to their verdicts.

    python tests/bench/corpus.py freeze CORPUS RUNS...    judges every run below RUNS
    python tests/bench/corpus.py compare CORPUS        judges them again, and shows what differs

A refactoring freezes a corpus first: runs of every system, at peace and under faults, healthy and
with planted defects. Then its difference is empty, or its commit explains it. Nothing is
written into the folders of the runs. Exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from fencepost import FencepostError
from fencepost.reporting import RunFolder, judge_folder, load

SHOWN = 20
"""How many differing verdicts are printed; all are counted."""


def answer(path: str) -> tuple[str, dict[str, Any]]:
    """The verdicts of one run, with violations, known findings and explanations; or why none."""
    try:
        judgement, _ = judge_folder(RunFolder(Path(path)), load().promises, keep=False)
    except FencepostError as failed:
        return path, {"error": str(failed)}
    return path, json.loads(msgspec.json.encode(dict(judgement.verdicts)))


def answers(paths: Sequence[str], jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    with get_context("fork").Pool(jobs, maxtasksperchild=20) as pool:
        yield from pool.imap(answer, paths)


def freeze(corpus: Path, runs: Sequence[Path], jobs: int) -> None:
    paths = sorted({str(found.parent.resolve()) for one in runs for found in one.rglob("run.json")})
    with gzip.open(corpus, "wt") as file:
        for path, verdicts in answers(paths, jobs):
            file.write(json.dumps([path, verdicts]) + "\n")
    print(f"{len(paths)} runs")


def compare(corpus: Path, jobs: int, ignored: frozenset[str]) -> int:
    with gzip.open(corpus, "rt") as file:
        frozen: dict[str, dict[str, Any]] = dict(json.loads(line) for line in file)
    kinds: Counter[str] = Counter()
    shown = 0
    for path, now in answers(sorted(frozen), jobs):
        for clause, was, found in _differences(frozen[path], now, ignored):
            kinds[f"{clause}: {was.get('verdict')} -> {found.get('verdict')}"] += 1
            if shown < SHOWN:
                shown += 1
                print(f"{path} {clause}\n  was {_short(was)}\n  now {_short(found)}")
    for kind, count in sorted(kinds.items()):
        print(f"{count:6} {kind}")
    print(f"{len(frozen)} runs, {sum(kinds.values())} verdicts differ")
    return 1 if kinds else 0


def _differences(
    was: Mapping[str, Any], now: Mapping[str, Any], ignored: frozenset[str]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for clause in sorted({*was, *now}):
        before, after = (_without(one.get(clause, {}), ignored) for one in (was, now))
        if before != after:
            yield clause, before, after


def _without(value: Any, ignored: frozenset[str]) -> Any:
    """The answer without fields of these names, at any depth."""
    if isinstance(value, dict):
        return {k: _without(v, ignored) for k, v in value.items() if k not in ignored}
    return [_without(one, ignored) for one in value] if isinstance(value, list) else value


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 1500 else f"{text[:1500]} ..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("freeze", "compare"))
    parser.add_argument("corpus", type=Path)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ignore", nargs="*", default=[], help="fields that may differ")
    given = parser.parse_args()
    if given.do == "freeze":
        freeze(given.corpus, given.runs, given.jobs)
        return 0
    return compare(given.corpus, given.jobs, frozenset(given.ignore))


if __name__ == "__main__":
    sys.exit(main())
