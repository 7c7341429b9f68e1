"""What the runs of a soak come to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from fencepost.campaigns import soak as soaks
from fencepost.campaigns.soak import Soak
from fencepost.campaigns.soaked import NO_FAULT, Soaked, SoakRun, Status, ending
from fencepost.commands import soak as command
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, UsageError
from fencepost.plugins.manager import load
from fencepost.runs.random_schedule import Conducted, Preference
from fencepost.runs.run import RunSpec


def run_of(seed: int, faults: int, trouble: str = "") -> SoakRun:
    return SoakRun(
        seed=seed, run=f"run-{seed}", faults=faults, trouble=trouble, drawn_ms=60_000, ran_ms=90_000
    )


def ended(*runs: SoakRun, coverage: bool = False) -> list[str]:
    wanted = Soak(RunSpec(load().system("reference/quorum")), len(runs), 60_000, ())
    soaked = Soaked(with_faults=True, states=("holder", "down"), runs=list(runs))
    return list(ending(soaked, wanted.plan, 600, coverage=coverage))


def test_faults_that_were_wanted_and_never_injected_leave_a_soak_undecided() -> None:
    quiet = [run_of(1, 0), run_of(2, 0)]
    assert Soaked(with_faults=True, runs=quiet).exit_code() == EXIT_INCONCLUSIVE
    assert ended(*quiet)[-1] == f"{NO_FAULT}: exit code 3"
    assert Soaked(with_faults=False, runs=quiet).exit_code() == EXIT_CLEAN
    assert Soaked(with_faults=True, runs=[*quiet, run_of(3, 1)]).exit_code() == EXIT_CLEAN
    troubled = [run_of(1, 0, "its disk was full")]
    assert Soaked(with_faults=True, runs=troubled).exit_code() == EXIT_INCONCLUSIVE


def test_a_soak_names_the_version_of_what_it_struck() -> None:
    of = structs.replace(run_of(1, 3), release="redis/sentinel 7.0.15")
    assert ended(of)[0].startswith("1 run of redis/sentinel 7.0.15 (seed 1)")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, Status.CLEAN),
        ({"forfeited": "its disks were lost"}, Status.IN_PART),
        ({"known": {"a-finding": {"RP-06": 1}}}, Status.KNOWN),
        ({"unknown": {"RP-06": "nothing was read"}}, Status.UNDECIDED),
        ({"trouble": "not recovered"}, Status.UNDECIDED),
        ({"whole": False, "complete": False}, Status.CUT_SHORT),
        ({"violated": {"RP-06": "lost"}, "new": {"RP-06": (1, 1)}, "whole": False}, Status.NEW),
        ({"started": False}, Status.NOT_STARTED),
    ],
)
def test_a_run_comes_to_one_verdict(changes: dict[str, Any], status: Status) -> None:
    assert replace(run_of(1, 3), **changes).status is status


def test_clauses_that_are_undecided_because_of_a_known_one_leave_a_soak_clean() -> None:
    run = replace(
        run_of(9102, 60),
        known={"config-clears": {"AVAIL-recovered": 1}},
        follows={"JEPSEN-lost-write": ("AVAIL-recovered", "240 writes could not be read back")},
    )
    soaked = Soaked(with_faults=True, runs=[run])
    assert (soaked.undecided(), soaked.exit_code()) == ([], EXIT_CLEAN)


def test_a_soak_ends_with_one_verdict_a_seed_and_the_reason_for_its_exit_code() -> None:
    """As a nightly reader needs it: what is new, what held, and what to do next."""
    outcomes = {"RP-06": Outcome.HOLDS, "RP-07": Outcome.NOT_EXERCISED, "KR-06": Outcome.HOLDS}
    runs = [
        replace(run_of(seed, 50), verdicts=outcomes, met={"kill": {"holder": 2}}, operations=3)
        for seed in (9101, 9102, 9105, 9106, 9107)
    ]
    runs[0] = replace(runs[0], known={"refused-duplicate": {"KR-06": 28}})
    runs[1] = replace(
        runs[1],
        known={"config-clears": {"AVAIL-recovered": 1}},
        follows={"JEPSEN-lost-write": ("AVAIL-recovered", "240 of orders-0 were not read")},
    )
    runs.append(
        replace(
            run_of(9103, 61),
            violated={"KR-06": "broker 1 lost storm-4-0 at offset 574"},
            new={"KR-06": (4, 75)},
            known={"refused-duplicate": {"KR-06": 71}},
            verdicts={**outcomes, "KR-06": Outcome.VIOLATED},
        )
    )
    runs.append(
        replace(
            run_of(9104, 20, "broker-1 ended"),
            whole=False,
            complete=False,
            held=["RP-06"] * 56,
            unknown={"RP-06": "the history is not complete"},
            ran_ms=87_800,
        )
    )
    assert ended(*runs) == [
        "7 runs of reference/quorum (seeds 9101 to 9107): 331 faults and 15 operations in 7.0 "
        "minutes; 10.0 minutes in all",
        "  9101  known only   known: refused-duplicate (KR-06 28)",
        "  9102  known only   known: config-clears (AVAIL-recovered 1)",
        "                     because of AVAIL-recovered, undecided: JEPSEN-lost-write: 240 of "
        "orders-0 were not read",
        "  9103  NEW          KR-06: 4 of 75 violations, first: broker 1 lost storm-4-0 at offset "
        "574",
        "                     known: refused-duplicate (KR-06 71)",
        "  9104  CUT SHORT    at 87.8 s: broker-1 ended",
        "                     56 clauses held until then",
        "  9105 to 9107  clean (3 of 7 runs)",
        "1 of 3 clauses held in the whole runs; violated: KR-06; never exercised: RP-07",
        "1 of 2 pairs of an operation and a state of its victim were reached; no victim was down "
        "(--coverage lists them)",
        "why: fencepost report run-9103      again: fencepost replay run-9103",
        "1 clause violated anew, 1 run cut short: exit code 1",
    ]
    assert "  kill  holder 10; not down" in ended(*runs, coverage=True)


def test_a_schedule_that_lasted_longer_than_planned_is_not_said_to_be_a_part_of_it() -> None:
    assert " in 1.1 minutes; " in ended(replace(run_of(1, 9), drawn_ms=66_000))[0]
    assert " in 0.5 of 1.0 minutes; " in ended(replace(run_of(1, 9), drawn_ms=30_000))[0]


def test_a_run_that_was_not_judged_to_its_end_says_for_how_long_it_was() -> None:
    run = replace(run_of(7, 3), forfeited="judged for 33.1 s of 90.0 s: disks were lost")
    assert ended(run)[1:] == [
        "  7  in part      judged for 33.1 s of 90.0 s: disks were lost",
        "why: fencepost report run-7      again: fencepost replay run-7",
        "nothing new: exit code 0",
    ]


def test_runs_with_which_the_last_lines_do_not_go_on_are_named() -> None:
    lines = ended(*(run_of(seed, 3, "not recovered") for seed in range(1, 6)))
    assert sum(line.startswith("why: ") for line in lines) == 3
    assert lines[-2] == "and so on, beside these: run-4, run-5"


def test_an_exit_code_that_is_not_0_has_its_reason() -> None:
    assert ended(run_of(1, 3, "not recovered"))[-1] == "1 run with trouble: exit code 3"
    new = {"violated": {"RP-06": "lost"}, "new": {"RP-06": (1, 1)}}
    assert ended(replace(run_of(1, 3), whole=False, **new))[-1] == (
        "1 clause violated anew, 1 run cut short: exit code 1"
    )


def test_a_soak_in_which_code_of_a_plugin_raised_says_so_beside_a_code_of_its_own() -> None:
    raised = replace(run_of(1, 3, "the log parser raised"), whole=False, plugin_failed=True)
    assert ended(raised, run_of(2, 3))[-1] == (
        "1 run cut short, 1 run in which code of a plugin raised: exit code 2"
    )


def test_a_client_that_failed_and_a_stall_are_named_though_the_run_is_clean() -> None:
    run = replace(run_of(7, 3), lost=["clients/a#1 ended"], stalled="this machine stalled")
    assert ended(run)[1:3] == [
        "  7  clean        clients/a#1 ended",
        "                  this machine stalled",
    ]


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
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [
        "  1  NOT STARTED  it was not ready",
        f"1 run cut short, {NO_FAULT}: exit code 4",
    ]
    assert "1 of 3: seed 1, 0 faults: NOT STARTED: it was not ready" in printed.err


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


def test_a_weight_without_faults_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--no-faults draws none"):
        command.soak(runtime="simulated", faults=False, weight=["kill=2"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", ["kil=1", "kill", "kill=often", "kill=-1", "kill=nan"])
def test_a_wrong_weight_is_refused_before_anything_starts(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        command.soak(runtime="simulated", weight=[given], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
