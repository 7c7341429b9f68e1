"""The result of a run, and the order in which its problems are reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from fencepost import (
    Cause,
    ClusterRecovered,
    EnvironmentFailed,
    Evidence,
    FencepostError,
    Inconclusive,
    Injected,
    Receipt,
    RunEnd,
    Runtime,
    UsageError,
    Violation,
    two_way,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Broken, Forfeited, Judgement, Outcome, Verdict
from fencepost.model.clock import MS
from fencepost.model.machine import check_platform
from fencepost.model.runtime import let_pass_until
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunResult, RunSpec, check_runtime, new_folder
from fencepost_clusters.reference.cluster import ReferenceQuorum


@dataclass(frozen=True)
class HalfWay:
    """A fault that cuts a broker off, and then raises."""

    name: str = "half_way"

    def inject(self, runtime: Runtime) -> Injected:
        names = [slot.name for slot in runtime.layout.nodes()]
        runtime.apply_cut(two_way(["broker-1"], names))
        raise UsageError("the rest of this fault does not fit")

    def arguments(self) -> Mapping[str, object]:
        return {}


def test_a_fault_that_fails_half_way_leaves_no_link_cut(tmp_path: Path) -> None:
    """Otherwise the cluster would be blamed for not recovering."""
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=7)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        with pytest.raises(UsageError, match="does not fit"):
            run.faults.inject(HalfWay())
        let_pass_until(run.runtime, run.runtime.now_ns() + 20_000 * MS)
        result = run.finish()
    assert result.recovered is not None
    assert result.recovered.recovered, result.recovered.missing
    result.check()


SENTENCE = "A fenced broker serves no client."
BROKEN = Broken(Cause("broker-2#1", 7), Evidence.CLIENT, "it served 3 messages", (), ("epoch 4",))
VERDICTS = {
    "QC-01": Verdict(Outcome.HOLDS, 3, Evidence.PEER, "It holds."),
    "QC-02": Verdict(Outcome.UNKNOWN, 0, None, "It is open.", "the machine stood still"),
    "QC-03": Verdict(Outcome.NOT_EXERCISED, 0, None, "It was not tried."),
    "HB-01": Verdict(Outcome.NOT_APPLICABLE, 0, None, "It binds another plane."),
}
VIOLATED = {
    "QC-17": Verdict(
        verdict=Outcome.VIOLATED,
        exercised=1,
        evidence=Evidence.CLIENT,
        sentence=SENTENCE,
        reason="",
        violated=1,
        violations=(BROKEN,),
    )
}
GOOD = RunResult(
    RunFolder(Path("run")),
    Judgement(VERDICTS),
    RunEnd(True, 0),
    recovered=ClusterRecovered(recovered=True, took_ms=5, bound_ms=100, missing=()),
)


def test_a_violation_that_is_known_fails_nothing_and_is_said() -> None:
    known = structs.replace(VIOLATED["QC-17"], known=("serves-on",))
    result = replace(GOOD, judgement=Judgement({**VERDICTS, "QC-17": known}))
    result.check()
    assert result.remarks() == ["QC-17 is violated as known: serves-on"]


def test_an_app_that_had_to_be_killed_is_said_and_fails_nothing() -> None:
    result = replace(GOOD, killed=("billing-1#1",))
    result.check()
    (said,) = result.remarks()
    assert "billing-1#1" in said


def test_a_run_without_trouble_passes() -> None:
    GOOD.check()
    GOOD.check(["QC-01", "HB-01"])


def test_a_violation_is_reported_first_with_its_explanation() -> None:
    worst = replace(
        GOOD,
        judgement=Judgement({**VERDICTS, **VIOLATED}),
        end=RunEnd(False, 0, ("cut short",)),
        missed={"cut-1": Receipt(False, "it still answers")},
        trouble=EnvironmentFailed("broker-3 died"),
    )
    with pytest.raises(Violation) as caught:
        worst.check()
    assert str(caught.value).splitlines() == [
        f"QC-17 is violated: {SENTENCE}",
        "  it served 3 messages (broker-2#1@7, evidence: client)",
        "  epoch 4",
    ]


def test_trouble_comes_as_it_is() -> None:
    trouble = EnvironmentFailed("broker-3 died")
    with pytest.raises(EnvironmentFailed) as caught:
        replace(GOOD, trouble=trouble, end=RunEnd(False, 0)).check()
    assert caught.value is trouble


STUCK = ClusterRecovered(recovered=False, took_ms=100, bound_ms=100, missing=("no controller",))
LOST = Judgement(VERDICTS, Forfeited("its disks were lost"))
ENDED = Judgement(VERDICTS, Forfeited("its disks were lost", ("broker-3#1",)))


def test_a_cluster_that_lost_what_it_stands_on_need_not_recover() -> None:
    result = replace(GOOD, recovered=STUCK, judgement=LOST)
    result.check()
    assert result.what_went_wrong() == ""
    stuck = replace(GOOD, recovered=STUCK)
    assert stuck.what_went_wrong() == "not recovered: no controller"


def test_a_node_that_ends_itself_once_all_is_lost_is_no_trouble() -> None:
    dead = EnvironmentFailed("broker-3 died")
    result = replace(GOOD, trouble=dead, judgement=ENDED)
    result.check()
    assert result.what_went_wrong(dead) == ""
    crashed = replace(GOOD, trouble=dead, judgement=LOST)
    assert crashed.what_went_wrong() == crashed.what_went_wrong(dead) == "broker-3 died"
    with pytest.raises(EnvironmentFailed):
        crashed.check()
    other = UsageError("no such broker")
    assert replace(GOOD, judgement=ENDED).what_went_wrong(other) == "no such broker"


def test_a_cluster_that_did_not_recover_is_no_verdict_if_no_clause_says_so() -> None:
    stuck = ClusterRecovered(
        recovered=False, took_ms=100, bound_ms=100, missing=("broker-2 is FENCED",)
    )
    with pytest.raises(Inconclusive, match=r"not recovered 100 ms after .*: broker-2 is FENCED"):
        replace(GOOD, recovered=stuck).check()


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (replace(GOOD, end=RunEnd(False, 0, ("an event is missing",))), "an event is missing"),
        (replace(GOOD, end=RunEnd(False, 0)), "not complete: the run was cut short"),
        (
            replace(GOOD, end=RunEnd(False, 0, tuple("abcdefg"))),
            "not complete: a; b; c; d; e; and 2 more",
        ),
        (
            replace(
                GOOD,
                missed={
                    "cut-1": Receipt(False, "it still answers"),
                    "isolate-2": Receipt(False, "none was open", unused=True, idle=True),
                    "isolate-3": Receipt(False, "nothing answered", idle=True, unanswered=True),
                },
            ),
            re.escape(
                "without a receipt: cut-1 (it still answers); "
                "isolate-2 (none was open: is that link idle, or do the nodes not dial the "
                "addresses of `place.hosts`?); "
                "isolate-3 (nothing answered: does the system's probe ask what its nodes answer, "
                "at `place.address`?)"
            ),
        ),
        (replace(GOOD, unread=("orders-0",)), "not read to the end: orders-0"),
    ],
)
def test_evidence_that_is_lacking_decides_nothing(result: RunResult, says: str) -> None:
    with pytest.raises(Inconclusive, match=says):
        result.check()


@pytest.mark.parametrize(
    ("clause", "error", "says"),
    [
        ("QC-02", Inconclusive, "QC-02 is unknown: the machine stood still"),
        ("QC-03", Violation, "marked QC-03, which nothing in it exercised"),
        ("QC-99", UsageError, "no loaded rule judges QC-99"),
    ],
)
def test_a_marked_clause_passes_only_if_it_holds(
    clause: str, error: type[FencepostError | Violation], says: str
) -> None:
    GOOD.check(["QC-01"])
    with pytest.raises(error, match=says):
        GOOD.check(["QC-01", clause])


def test_the_folder_of_runs_keeps_itself_out_of_version_control(tmp_path: Path) -> None:
    out = tmp_path / ".fencepost"
    first, second = new_folder(out, "demo"), new_folder(out, "demo")
    assert first.path != second.path
    assert (out / ".gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_before_is_not_hidden_from_version_control(tmp_path: Path) -> None:
    mode = tmp_path.stat().st_mode
    made = new_folder(tmp_path, "demo")
    assert [path.name for path in tmp_path.iterdir()] == [made.path.name]
    assert tmp_path.stat().st_mode == mode


def test_what_a_runtime_needs_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_TOXIPROXY", "/no/such")
    with pytest.raises(EnvironmentFailed, match="FENCEPOST_TOXIPROXY names /no/such"):
        check_runtime("process")
    check_runtime("simulated")


class Unfetched(ReferenceQuorum):
    """A system whose software is not to be had."""

    def fetch(self) -> str:
        raise EnvironmentFailed("no software for it")


def test_what_nodes_run_is_fetched_before_a_run_is_made_and_its_start_is_timed(
    tmp_path: Path,
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(EnvironmentFailed, match="no software for it"):
        Run.start(RunSpec(Unfetched()), load(), folder)
    assert not (folder.path / "run.json").exists()
    # An image has its software, and a simulated node needs none.
    for runtime in ("docker", "simulated"):
        RunSpec(Unfetched(), runtime=runtime).fetch()


def test_another_platform_than_linux_is_refused_in_a_sentence() -> None:
    check_platform("linux")
    with pytest.raises(EnvironmentFailed, match=r"Linux only, not on darwin: .*/proc"):
        check_platform("darwin")
