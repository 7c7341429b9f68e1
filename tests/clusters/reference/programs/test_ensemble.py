"""Brokers over an ensemble of three real servers, which are killed, cut off and paused in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_servers import available

from fencepost import Condition, Shape, View, Violation, kind_name
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost_clusters.zookeeper.view import ServersView
from fencepost_kafka import KafkaView, SessionChanged

pytestmark = [pytest.mark.real, available]
SERVERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")


def leader(view: View) -> str | None:
    """The slot of the server that leads in the newest epoch."""
    serving = view.of(ServersView).serving
    leads = {how.epoch: one for one, how in serving.items() if how.mode == "leader"}
    return view.slot_of[leads[max(leads)]] if leads else None


def another_leader(old: str) -> Condition:
    return Condition(f"a server other than {old} to lead", lambda v: leader(v) not in (None, old))


def no_session(view: View) -> bool:
    """No broker's session is connected, as far as it knows."""
    kind = kind_name(SessionChanged)
    brokers = (view.newest[name] for name in ("broker-1", "broker-2", "broker-3"))
    newest = [view.latest[process, kind].body for process in brokers]
    return not any(isinstance(one, SessionChanged) and one.state == "connected" for one in newest)


def no_controller(view: View) -> bool:
    return view.of(KafkaView).active_controller is None


def test_brokers_go_on_while_a_majority_serves_and_again_after_none_did(tmp_path: Path) -> None:
    plugins = load()
    spec = RunSpec(plugins.system("reference/legacy"), Shape({"zookeeper": 3}))
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        cluster, faults = run.cluster, run.faults
        writes = run.clients.produce("orders", count=300, rate=40)
        cluster.eventually(writes.acked_at_least(20))
        first = leader(run.runtime.view)
        assert first is not None
        with faults.kill(first):
            cluster.eventually(another_leader(first), within_ms=60_000)
            cluster.eventually(writes.acked_at_least(100), within_ms=60_000)
        cluster.eventually(cluster.recovered)
        second = leader(run.runtime.view)
        assert second is not None
        with faults.cut(second, [name for name in SERVERS if name != second]):
            cluster.eventually(another_leader(second), within_ms=60_000)
        cluster.eventually(cluster.recovered)
        third = leader(run.runtime.view)
        assert third is not None
        with faults.pause(third):
            cluster.eventually(writes.settled, within_ms=60_000)
        cluster.eventually(cluster.recovered)
        # Without a majority no session is certain: no broker is the controller.
        with faults.kill(SERVERS[0]), faults.kill(SERVERS[1]):
            cluster.eventually(Condition("no broker to have a session", no_session))
            # The controller resigns when it has seen that: an event of its own.
            cluster.eventually(Condition("no broker to be the controller", no_controller))
            with pytest.raises(Violation, match="create_topic refunds ended as"):
                run.clients.create_topic("refunds")
        cluster.eventually(cluster.recovered, within_ms=60_000)
        run.clients.create_topic("payments")
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(("RP-04", "JEPSEN-lost-write"))
