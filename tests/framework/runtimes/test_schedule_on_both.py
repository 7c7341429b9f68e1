"""One recorded schedule on real processes and in the simulator comes to the same verdicts.

Each node in turn gets a fault, so it does not matter which node led when. The clauses that the
schedule is about hold on both. Other clauses that both exercise have the same verdict, and a clause
that only one exercises is neither violated nor unknown.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import load
from fencepost.runs.replay import replay
from fencepost.runs.run import Run, RunSpec
from fencepost.runs.schedule import Injection, Schedule

pytestmark = pytest.mark.real

INJECTIONS = (
    *(("cut_from_controllers", {"broker": f"broker-{n}"}, 4_500) for n in (1, 2, 3)),
    *(("kill", {"node": f"broker-{n}"}, 4_500) for n in (1, 2, 3)),
    *(("kill", {"node": f"controller-{n}"}, 3_000) for n in (1, 2, 3)),
    ("isolate", {"node": "broker-2"}, 4_500),
)
"""No pause: a stall past the lease leaves QC-17 undecided."""
APART_MS = 6_000
RATE = 40
"""Messages a second: enough for each injection to meet some under way, in a run of a minute."""
ABOUT = frozenset(
    {
        *("QC-08", "QC-13", "QC-14", "QC-16", "QC-20", "QC-21", "QC-28", "QC-30"),
        *("REG-01", "REG-02", "REG-06", "RP-04", "RP-05", "RP-06", "RP-07", "RP-10", "RP-13"),
        *("RP-15", "RP-24", "RP-27", "JEPSEN-lost-write", "JEPSEN-duplicate"),
        *("JEPSEN-unseen", "JEPSEN-poll-skip", "JEPSEN-nonmonotonic-poll"),
    }
)
"""Cuts, deaths and returns of every node, a partition, under clients that write and read."""
JUDGED = {Outcome.HOLDS, Outcome.VIOLATED}


def test_a_schedule_recorded_on_processes_means_the_same_in_the_simulator(tmp_path: Path) -> None:
    plugins = load()
    planned = Schedule(
        injections=tuple(
            Injection(at_ms=1_000 + APART_MS * n, fault=fault, arguments=arguments, for_ms=for_ms)
            for n, (fault, arguments, for_ms) in enumerate(INJECTIONS)
        )
    )
    spec = RunSpec(plugins.system("reference/quorum"), seed=1)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "recorded")) as run:
        run.clients.produce("replayed", rate=RATE)
        run.clients.consume("replayed")
        run.faults.follow(planned)
        recorded = run.finish()
    replayed = replay(
        recorded.folder, plugins, out=tmp_path, report=lambda line: None, runtime="simulated"
    )
    for result in (recorded, replayed):
        result.check(tuple(ABOUT))
    both = [
        {clause: verdict.verdict for clause, verdict in r.judgement.verdicts.items()}
        for r in (recorded, replayed)
    ]
    exercised = {c for c in both[0] if {both[0][c], both[1][c]} <= JUDGED}
    assert exercised >= ABOUT
    assert {c: both[0][c] for c in exercised} == {c: both[1][c] for c in exercised}
    assert not {Outcome.VIOLATED, Outcome.UNKNOWN} & {*both[0].values(), *both[1].values()}
