"""Links of a real run that fail while no fault is active: an event, and no false verdict."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import echo_node
from tests.echo_run import advance, talk, talking_pair

from fencepost import Codec, Condition, LinkFailed, ProcessExited, RunEnded, View
from fencepost.history import merge
from fencepost.injection import toxiproxies
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka import Role

FAILED = Condition("a link failed", lambda view: isinstance(_last(view), LinkFailed))


def _last(view: View) -> object:
    return view.last.body if view.last else None


@pytest.fixture
def pair(tmp_path: Path, real: None) -> Iterator[ProcessRuntime]:
    """Two brokers that talk to each other."""
    runtime = talking_pair(tmp_path / "pair")
    yield runtime
    runtime.close()


def failures(runtime: ProcessRuntime) -> list[LinkFailed]:
    return [event.body for event in runtime.events() if isinstance(event.body, LinkFailed)]


def test_a_run_without_a_fault_has_no_failed_link(pair: ProcessRuntime) -> None:
    pair.close()
    assert failures(pair) == []


@dataclass
class Stopping:
    """A client; while it stops, something else happens."""

    stop: Callable[[], None]


@pytest.mark.parametrize("when", ["before", "while clients stop"])
def test_a_process_that_ends_as_the_run_does_has_died_and_its_links_have_not_failed(
    pair: ProcessRuntime, when: str
) -> None:
    broker = pair.living(pair.layout.of(Role.BROKER)[1])
    assert broker is not None

    def die() -> None:
        os.kill(broker.pid, signal.SIGKILL)
        assert pair._launcher.wait(broker.name, 10) is not None

    if when == "before":
        die()
    else:
        pair._sessions.append(Stopping(die))  # type: ignore[arg-type]
    pair.close()
    assert failures(pair) == []
    events = [event.body for event in pair.events()]
    assert [
        e.expected for e in events if isinstance(e, ProcessExited) and e.ended == broker.name
    ] == [False]
    assert [event.completed for event in events if isinstance(event, RunEnded)] == [False]


def test_a_link_that_is_removed_is_an_event_and_comes_back(pair: ProcessRuntime) -> None:
    (name,) = [one for one in pair._links.processes if one.startswith("toxiproxy/broker-1")]
    (port,) = {link.port for link in pair.layout.links if link.source == "broker-1"}
    pair._backend.toxiproxies.ask(name, "delete", f"/proxies/broker-2.{port}")
    assert advance(pair, FAILED)
    (failed,) = failures(pair)
    assert failed.sentence() == (
        f"the link broker-1 -> broker-2:{port} failed without a fault: it has no proxy"
    )
    assert 0 < failed.since_ns < pair.now_ns()
    talk(pair)
    pair.close()
    end = merge.merge(pair.folder, Codec(echo_node.KINDS))
    assert not end.complete
    assert end.doubtful_from_ns == failed.since_ns
    assert end.damage == (failed.sentence(),)


def test_a_toxiproxy_that_stands_still_is_an_event(
    pair: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toxiproxies, "API_LIMIT_S", 0.3)
    started = pair._backend.launcher._pids  # type: ignore[attr-defined]
    (name,) = [one for one in started if one.startswith("toxiproxy/broker-1#")]
    os.kill(started[name], signal.SIGSTOP)
    assert advance(pair, FAILED)
    assert {one.what for one in failures(pair)} == {"its toxiproxy did not answer"}
    talk(pair)
