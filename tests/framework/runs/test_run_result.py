"""The result of a run, and the order in which its problems are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from fencepost import (
    Cause,
    ClusterRecovered,
    EnvironmentFailed,
    Event,
    Evidence,
    FaultInjected,
    FencepostError,
    Inconclusive,
    Injected,
    KnownFinding,
    PhaseStarted,
    RunEnd,
    Runtime,
    Seen,
    UsageError,
    Violation,
    two_way,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.attribution import attributed
from fencepost.judging.judge import Broken, Judgement, Outcome, Verdict
from fencepost.judging.known_findings import bearing_on
from fencepost.model.clock import MS
from fencepost.model.runtime import let_pass_until
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunResult, RunSpec, new_folder
from fencepost_kafka import LogTruncated


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


def test_a_run_without_trouble_passes() -> None:
    GOOD.check()
    GOOD.check(["QC-01", "HB-01"])


def test_a_violation_is_reported_first_with_its_explanation() -> None:
    worst = replace(
        GOOD,
        judgement=Judgement({**VERDICTS, **VIOLATED}),
        end=RunEnd(False, 0, ("cut short",)),
        missed=("cut-1",),
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


def test_a_cluster_that_did_not_recover_breaks_a_promise() -> None:
    stuck = ClusterRecovered(
        recovered=False, took_ms=100, bound_ms=100, missing=("broker-2 is FENCED",)
    )
    with pytest.raises(Violation, match=r"not recovered 100 ms after .*: broker-2 is FENCED"):
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
        (replace(GOOD, missed=("cut-1", "kill-2")), "without a receipt: cut-1, kill-2"),
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


KNOWN = KnownFinding(
    id="serves-late",
    system="some/thing",
    clauses=("QC-17",),
    message=r"it served \d+ messages",
    says="It serves for a moment after its lease.",
    seen=(
        Seen(version="1.0", runs=3, of=10),
        Seen(version="1.1", runs=1, of=1),
        Seen(version="1.2", runs=0, of=9),
    ),
    schedule="schedule.json",
    history="history.ndjson",
)


def test_a_known_finding_turns_nothing_red() -> None:
    judgement = attributed(Judgement({**VERDICTS, **VIOLATED}), [KNOWN], [])
    assert judgement.verdicts["QC-17"].known == ("serves-late",)
    assert judgement.of(Outcome.VIOLATED) == ("QC-17",)
    assert judgement.broken == ()
    replace(GOOD, judgement=judgement).check(["QC-17"])


@pytest.mark.parametrize(
    "verdict",
    [
        structs.replace(
            VIOLATED["QC-17"],
            violations=(BROKEN, structs.replace(BROKEN, message="it elected two leaders")),
            violated=2,
        ),
        structs.replace(VIOLATED["QC-17"], violated=2),
    ],
    ids=["one is new", "one was not kept"],
)
def test_a_violation_that_may_be_new_fails_beside_a_known_one(verdict: Verdict) -> None:
    judgement = attributed(Judgement({"QC-17": verdict}), [KNOWN], [])
    assert judgement.broken == ("QC-17",)
    with pytest.raises(Violation):
        replace(GOOD, judgement=judgement).check()


def test_a_finding_of_another_clause_does_not_apply_to_this_one() -> None:
    other = structs.replace(KNOWN, clauses=("QC-18",))
    assert attributed(Judgement(VIOLATED), [other], []).broken == ("QC-17",)


@pytest.mark.parametrize(
    ("fault", "target", "began_ms", "known"),
    [
        ("pause", "itself", 5, True),
        ("pause", "itself", 15, False),
        ("pause", "another", 5, False),
        ("kill", "itself", 5, False),
    ],
)
def test_a_finding_of_a_fault_is_known_where_that_fault_had_been_aimed_only(
    fault: str, target: str, began_ms: int, known: bool
) -> None:
    """An injection is recorded once it was measured, which may be after its consequences."""
    finding = structs.replace(KNOWN, fault="pause")
    at = BROKEN.at
    injected = FaultInjected(
        fault_id=f"{fault}-1",
        fault=fault,
        targets=(at.process if target == "itself" else "broker-9#1",),
        receipt=True,
        evidence="",
        began_at_ns=began_ms * MS,
    )
    events = [
        Event("run", at.process, at.seq, 10 * MS, PhaseStarted(phase="load")),
        Event("run", "harness", 0, 20 * MS, injected),
    ]
    judgement = attributed(Judgement(VIOLATED), [finding], events)
    assert (judgement.broken == ()) is known


@pytest.mark.parametrize(
    ("clause", "partition", "known"), [("RP-06", 0, True), ("RP-06", 1, False), ("RP-07", 0, False)]
)
def test_a_consequence_of_a_known_finding_is_known_too(
    clause: str, partition: int, known: bool
) -> None:
    finding = structs.replace(KNOWN, then=("RP-06",), wake="partition")
    wake = structs.replace(BROKEN, at=Cause("broker-9#1", 5), message="it has lost everything")
    verdict = structs.replace(VIOLATED["QC-17"], violations=(wake,))
    events = [
        Event(
            "run",
            BROKEN.at.process,
            BROKEN.at.seq,
            1,
            LogTruncated(
                topic="t",
                partition=0,
                to_offset=0,
                from_log_end=1,
                high_watermark=0,
                leader_epoch=1,
                reason="",
            ),
        ),
        Event(
            "run",
            "broker-9#1",
            5,
            2,
            LogTruncated(
                topic="t",
                partition=partition,
                to_offset=0,
                from_log_end=1,
                high_watermark=0,
                leader_epoch=1,
                reason="",
            ),
        ),
    ]
    judgement = attributed(Judgement({**VIOLATED, clause: verdict}), [finding], events)
    assert judgement.verdicts["QC-17"].known == ("serves-late",)
    assert judgement.verdicts[clause].known == (("serves-late",) if known else ())


@pytest.mark.parametrize(
    ("system", "versions", "bears"),
    [
        ("some/thing", {"some/thing": "1.0"}, True),
        ("some/thing@1.1", {}, True),
        ("some/thing", {"some/thing": "2.0"}, False),
        ("other/thing", {"some/thing": "1.0"}, False),
    ],
)
def test_a_finding_bears_on_the_versions_that_it_was_seen_on(
    system: str, versions: dict[str, str], bears: bool
) -> None:
    assert bool(bearing_on([KNOWN], system, versions)) is bears
