"""What a soak notes of its runs, so that its ending is not lost with it; and the folders it
keeps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import json as msgspec_json
from msgspec.structs import replace
from warm_start import COMMAND_LINE, fencepost

from fencepost.campaigns.soak import Kept
from fencepost.campaigns.soak_journal import (
    Deleted,
    Ended,
    Journal,
    Ran,
    is_of_soaks,
    read_last,
)
from fencepost.campaigns.soaked import SoakPlan, SoakRun, ending
from fencepost.judging.verdicts import Outcome
from fencepost.model.clock import poll
from fencepost.model.disk import in_bytes, size_of, taken
from fencepost.model.errors import UsageError

NOW = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)
PLAN = SoakPlan(
    system="acme/db", seed=7, runs=20, span_ms=60_000, with_faults=True, states=("down",)
)


def run_of(folder: Path, seed: int, **more: Any) -> SoakRun:
    return SoakRun(
        seed=seed,
        run=str(folder / f"20261129-2300{seed:02}-soak-{seed}"),
        faults=3,
        verdicts={"A-1": Outcome.HOLDS},
        met={"kill": {"down": 1}},
        **more,
    )


NEW = {"violated": {"A-1": "it lied"}, "new": {"A-1": (1, 2)}}


def journal(folder: Path) -> Journal:
    folder.mkdir(exist_ok=True)
    return Journal.open(folder, PLAN, NOW)


def test_what_is_noted_is_told_though_the_soak_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    noted = journal(folder)
    runs = [run_of(folder, 8, **NEW), run_of(folder, 7)]
    for took_s, run in enumerate(runs, 60):
        noted.note(Ran(run=run, took_s=took_s))
    (path,) = folder.glob("soak-*")
    assert path.name == "soak-20261129-230000-7.ndjson"
    assert path.stat().st_mode & 0o077 == 0
    # The line in which it was killed is cut off.
    path.write_bytes(path.read_bytes() + b'{"type":"ran","run":{"se')
    told = read_last(folder)
    assert (told.plan, told.took_s, told.ended) == (PLAN, 61, False)
    assert msgspec_json.encode(told.soaked.runs) == msgspec_json.encode([runs[1], runs[0]])
    assert ending(told.soaked, told.plan, told.took_s, coverage=False)[-1] == (
        "1 clause violated anew: exit code 1"
    )
    noted.close()


def test_a_run_that_had_begun_is_named_and_those_of_other_soaks_are_not(tmp_path: Path) -> None:
    noted = journal(tmp_path)
    noted.note(Ran(run=run_of(tmp_path, 7), took_s=1))
    for name in ("20261129-230007-soak-7", "20261129-230008-soak-8"):
        (tmp_path / name).mkdir()
    for name in ("20261129-220000-soak-9", "20261129-230009-soak-99"):
        (tmp_path / name).mkdir()
    assert read_last(tmp_path).unfinished == (tmp_path / "20261129-230008-soak-8",)
    noted.note(Ended(spent=True, took_s=2))
    noted.close()
    told = read_last(tmp_path)
    assert (told.unfinished, told.ended, told.soaked.spent) == ((), True, True)


def test_the_folder_may_have_been_moved(tmp_path: Path) -> None:
    noted = journal(tmp_path / "there")
    noted.note(Ran(run=run_of(tmp_path / "there", 7), took_s=1))
    noted.close()
    (tmp_path / "there").rename(tmp_path / "here")
    (run,) = read_last(tmp_path / "here").soaked.runs
    assert run.run == str(tmp_path / "here" / "20261129-230007-soak-7")


def test_the_last_of_several_soaks_is_told(tmp_path: Path) -> None:
    journal(tmp_path).close()
    later = Journal.open(tmp_path, replace(PLAN, seed=3), NOW.replace(hour=23, minute=30))
    later.close()
    assert read_last(tmp_path).plan.seed == 3


@pytest.mark.parametrize("text", ["", "no json\n", '{"type":"ended","spent":true,"took_s":1}\n'])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "soak-1.ndjson").write_text(text)
    with pytest.raises(UsageError, match="is no journal of a soak"):
        read_last(tmp_path)


def test_a_folder_of_one_run_is_none_of_soaks(tmp_path: Path) -> None:
    assert not is_of_soaks(tmp_path)
    journal(tmp_path).close()
    assert is_of_soaks(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert not is_of_soaks(tmp_path)


def folder_with(path: Path, size: int) -> Path:
    path.mkdir()
    (path / "history.ndjson").write_bytes(b"x" * size)
    return path


def test_the_oldest_folders_go_first_and_those_that_fit_stay(tmp_path: Path) -> None:
    kept, size = Kept(300_000), 100_000
    folders = [folder_with(tmp_path / str(seed), size) for seed in range(5)]
    assert [list(kept.add(seed, path)) for seed, path in enumerate(folders[:2])] == [[], []]
    assert taken(folders[0]) >= size
    deleted = [seed for seed in range(2, 5) for seed in kept.add(seed, folders[seed])]
    assert deleted == sorted(deleted)
    assert [path.exists() for path in folders] == [seed not in deleted for seed in range(5)]
    assert sum(map(taken, filter(Path.exists, folders))) <= 300_000
    assert folders[4].exists()


def test_without_a_limit_nothing_is_deleted(tmp_path: Path) -> None:
    assert Kept(None).add(1, folder_with(tmp_path / "1", 10)) == ()
    assert (tmp_path / "1").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 500_000_000),
        ("5GB", 5_000_000_000),
        ("2GiB", 2 << 30),
        ("1.5 KiB", 1536),
        ("7B", 7),
        ("5", None),
        ("5gb", None),
        ("GB", None),
        ("1iB", None),
    ],
)
def test_a_size_has_its_unit(text: str, size: int | None) -> None:
    assert size_of(text) == size


def test_a_size_is_shown_with_its_unit() -> None:
    assert [in_bytes(n) for n in (999, 1_500_000, 5_000_000_000)] == ["999 B", "1.5 MB", "5 GB"]


def test_what_was_deleted_is_said_in_a_line(tmp_path: Path) -> None:
    noted = Journal.open(tmp_path, replace(PLAN, keep_bytes=5_000_000_000), NOW)
    for seed in (7, 8, 9):
        noted.note(Ran(run=run_of(tmp_path, seed), took_s=1))
    for seed in (7, 8):
        noted.note(Deleted(seed=seed))
    noted.close()
    told = read_last(tmp_path)
    lines = ending(told.soaked, told.plan, 1, coverage=False)
    assert "  deleted 2 folders of clean runs, to keep 5 GB at most (seeds 7, 8)" in lines


SOAK = ("soak", "--runtime", "simulated", "--jobs=1", "--minutes=0.05", "--seed=1")


@pytest.mark.tool
def test_a_soak_keeps_no_more_than_it_may(tmp_path: Path) -> None:
    kept = ("--keep-at-most=1B", "--runs=2", f"--out={tmp_path}")
    done = fencepost(*SOAK, *kept)
    assert done.returncode == 0, done.stderr
    assert "deleted 2 folders of clean runs, to keep 1 B at most (seeds 1, 2)" in done.stdout
    assert list(tmp_path.glob("soak/*-soak-*/")) == []
    refused = fencepost(*SOAK, "--keep-at-most=5")
    assert refused.returncode == 2
    assert "is no size such as 500MB" in " ".join(refused.stderr.split())


@pytest.mark.tool
def test_a_run_of_which_nothing_can_be_read_does_not_cost_the_ending(tmp_path: Path) -> None:
    """It was killed as it made the folder."""
    noted = journal(tmp_path / "soak")
    noted.note(Ran(run=run_of(tmp_path / "soak", 7), took_s=60))
    noted.close()
    begun = tmp_path / "soak" / "20261129-230008-soak-8"
    begun.mkdir()
    report = fencepost("report", str(tmp_path / "soak"), f"--out={tmp_path / 'report'}")
    assert report.returncode == 0, report.stderr
    lines = report.stdout.splitlines()
    assert lines[0] == f"had not ended: fencepost report {begun}"
    assert lines[-1] == "nothing new: exit code 0"
    assert "no page was made: " in report.stderr


@pytest.mark.tool
def test_a_killed_soak_gets_its_ending_from_report(tmp_path: Path) -> None:
    """The same lines as those of a soak that had the same runs, and nobody killed."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND_LINE, *SOAK, "--runs=500", f"--out={tmp_path}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:

        def noted() -> int:
            return sum(
                one.read_text().count('"type":"ran"') for one in tmp_path.glob("soak/*.ndjson")
            )

        assert poll(lambda: noted() >= 2, 120, 0.05)
        killed.kill()
    told = read_last(tmp_path / "soak")
    number = len(told.soaked.runs)
    report = fencepost("report", str(tmp_path / "soak"), f"--out={tmp_path / 'report'}")
    whole = fencepost(*SOAK, f"--runs={number}", f"--out={tmp_path / 'whole'}")
    minutes = re.compile(r"; \d+\.\d minutes in all")
    expected = [minutes.sub("", line) for line in whole.stdout.splitlines()]
    lines = [minutes.sub("", line) for line in report.stdout.splitlines()]
    assert lines[-len(expected) :] == expected
    assert report.returncode == whole.returncode == 0, report.stderr
    if told.unfinished:
        assert f"had not ended: fencepost report {told.unfinished[0]}" in lines
    again = fencepost("report", str(tmp_path / "soak"), f"--out={tmp_path / 'report'}", "--json")
    assert len(json.loads(again.stdout)["soak"]["runs"]) == number
