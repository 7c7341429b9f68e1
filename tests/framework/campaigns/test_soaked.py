"""What the runs of a soak come to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencepost.campaigns import soak as soaks
from fencepost.campaigns.soak import NO_FAULT, Soaked, SoakRun
from fencepost.commands import soak as command
from fencepost.model.errors import UsageError
from fencepost.plugins.manager import load
from fencepost.runs.random_schedule import Conducted, Preference
from fencepost.runs.run import RunSpec


def run_of(seed: int, faults: int, trouble: str = "") -> SoakRun:
    return SoakRun(
        seed=seed,
        run=f"run-{seed}",
        violated={},
        known={},
        unknown={},
        faults=faults,
        without_receipt=0,
        trouble=trouble,
    )


def test_faults_that_were_wanted_and_never_injected_leave_a_soak_undecided() -> None:
    quiet = [run_of(1, 0), run_of(2, 0)]
    assert Soaked(with_faults=True, runs=quiet).undecided() == [NO_FAULT]
    assert Soaked(with_faults=False, runs=quiet).undecided() == []
    assert Soaked(with_faults=True, runs=[*quiet, run_of(3, 1)]).undecided() == []
    troubled = [run_of(1, 0, "its disk was full")]
    assert Soaked(with_faults=True, runs=troubled).undecided() == ["seed 1", NO_FAULT]


def test_a_run_that_is_not_clean_says_why_and_where_it_is() -> None:
    assert run_of(1, 3).why_not_clean() == ()
    reason = "the history is not complete"
    run = replace(
        run_of(7, 3),
        violated={"RP-06": "broker-1 leads"},
        unknown={**dict.fromkeys(["RP-01", "RP-02", "RP-03", "RP-04", "RP-05"], reason)},
    )
    assert run.why_not_clean() == [
        "seed 7: RP-06 violated: broker-1 leads",
        f"seed 7: RP-01, RP-02, RP-03 and 2 more undecided: {reason}",
        "seed 7: its run is run-7",
    ]


def test_a_run_that_was_not_judged_to_its_end_says_so() -> None:
    run = replace(run_of(7, 3), forfeited="its disks were lost")
    assert run.clean
    sentence = "seed 7, 3 faults: clean; not judged to its end: its disks were lost"
    assert soaks._sentence(run) == sentence


def test_what_a_soak_found_is_printed_though_a_later_run_crashes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def runs() -> Iterator[Conducted]:
        yield Conducted(soaks.new_folder(tmp_path, "x"), None, "it was not ready")
        raise RuntimeError("a bug")

    each = runs()
    monkeypatch.setattr(soaks, "run_one", lambda *given, **named: next(each))
    with pytest.raises(RuntimeError, match="a bug"):
        command.soak(runtime="simulated", runs=3, out=tmp_path, seed=1, jobs=1)
    *first, last, violated, undecided = capsys.readouterr().out.splitlines()
    assert first == ["seed 1: it was not ready"]
    assert last.startswith(f"seed 1: its run is {tmp_path}")
    assert [violated, undecided] == [
        "0 clauses violated: none",
        f"2 undecided: seed 1, {NO_FAULT}",
    ]


def test_runs_of_a_round_know_the_coverage_of_the_rounds_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=3)
    seen: dict[int, dict[str, int]] = {}

    def one(spec: RunSpec, *given: object, preference: Preference) -> Conducted:
        seen[spec.seed] = dict(preference.met.get("kill", {}))
        folder = soaks.new_folder(tmp_path, str(spec.seed))
        return Conducted(folder, None, "", met={"kill": {f"state-{spec.seed}": 1}})

    monkeypatch.setattr(soaks, "run_one", one)
    wanted = soaks.Soak(spec, 3, 1_000, ("kill",), weights={"kill": 2.0})
    found = soaks.soak(wanted, plugins, tmp_path, lambda line: None)
    assert seen == {3: {}, 4: {"state-3": 1}, 5: {"state-3": 1, "state-4": 1}}
    assert found.as_json()["coverage"] == {
        "states": found.states,
        "met": {"kill": {"state-3": 1, "state-4": 1, "state-5": 1}},
    }
    assert "reassigning" in found.states


@pytest.mark.parametrize("given", ["kil=1", "kill", "kill=often", "kill=-1", "kill=nan"])
def test_a_wrong_weight_is_refused_before_anything_starts(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        command.soak(runtime="simulated", weight=[given], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
