"""One recorded schedule on real processes and in the simulator comes to the same verdicts.

Every node is struck in its turn, so that it does not matter who held which office when.
"""

from __future__ import annotations

from pathlib import Path

from fencepost.plugin_manager import load
from fencepost.replay import replay
from fencepost.run import Run, RunSpec
from fencepost.run_folder import RunFolder
from fencepost.schedule import Schedule, Strike

STRIKES = (
    *(("cut_from_controllers", {"broker": f"broker-{n}"}, 4_500) for n in (1, 2, 3)),
    *(("kill", {"node": f"broker-{n}"}, 4_500) for n in (1, 2, 3)),
    *(("kill", {"node": f"controller-{n}"}, 3_000) for n in (1, 2, 3)),
)
APART_MS = 6_000


def test_a_schedule_recorded_on_processes_means_the_same_in_the_simulator(tmp_path: Path) -> None:
    plugins = load()
    planned = Schedule(
        strikes=tuple(
            Strike(at_ms=1_000 + APART_MS * n, fault=fault, arguments=arguments, for_ms=for_ms)
            for n, (fault, arguments, for_ms) in enumerate(STRIKES)
        )
    )
    spec = RunSpec(plugins.system("reference/quorum"), seed=1)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "recorded")) as run:
        run.clients.produce("replayed")
        run.clients.consume("replayed")
        run.faults.follow(planned)
        recorded = run.finish()
    replayed = replay(recorded.folder, plugins, tmp_path, lambda line: None, "simulated")
    recorded.check()
    replayed.check()
    assert {c: v.verdict for c, v in replayed.judgement.verdicts.items()} == {
        c: v.verdict for c, v in recorded.judgement.verdicts.items()
    }
