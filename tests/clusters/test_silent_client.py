"""A client that is stopped for good, or whose library is stuck: no fault of the cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fencepost import Inconclusive, ProcessSpawned, Stalled
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.workloads import workers

pytestmark = pytest.mark.real


def test_a_client_that_never_wakes_is_a_stall_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "END_LIMIT_MS", 500)
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    with Run.start(RunSpec(plugins.system("reference/quorum")), plugins, folder) as run:
        writes = run.clients.produce("orders", acks="all")
        run.cluster.eventually(writes.acked_at_least(20))
        process = run.workers.running[-1].process
        spawned = [
            event.body.pid
            for event in run.runtime.events()
            if isinstance(event.body, ProcessSpawned) and event.body.started == process
        ]
        os.kill(spawned[0], signal.SIGSTOP)
        stopped_ns = run.runtime.now_ns()
        result = run.finish()
    assert result.silent == (process,)
    stalls = [one for one in result.end.stalls if one[0] == process]
    assert stalls[-1][1] <= stopped_ns < stalls[-1][2]
    with pytest.raises(Inconclusive, match=process):
        result.check()
    events = [event.body for event in run.runtime.events()]
    assert [one.of for one in events if isinstance(one, Stalled) and one.of] == [process]
