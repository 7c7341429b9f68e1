"""Cuts and slow links between real processes: what they hear, and what the receipts say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import echo_node
from tests.echo_node import EchoSystem
from tests.echo_run import (
    PAIR,
    advance,
    echo_run,
    goes_on,
    is_silent,
    slot,
    talk,
    talking_pair,
)

from fencepost import (
    HEALTHY,
    ClientSpec,
    Condition,
    Link,
    LinkState,
    Receipt,
    Shape,
    Signal,
    UsageError,
    one_way,
    two_way,
)
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.supervision.launcher import state_of
from fencepost_kafka import Role, kafka_shape

pytestmark = pytest.mark.real

Make = Callable[..., ProcessRuntime]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Runtimes of echo nodes that are not started; closed at the end."""
    made: list[ProcessRuntime] = []

    def build(system: EchoSystem | None = None, shape: Shape = PAIR) -> ProcessRuntime:
        made.append(echo_run(tmp_path / f"run-{len(made) + 1}", system, shape))
        return made[-1]

    yield build
    for runtime in made:
        runtime.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ProcessRuntime]:
    """Two brokers that talk to each other."""
    runtime = talking_pair(tmp_path / "pair")
    yield runtime
    runtime.close()


@pytest.mark.parametrize("swap", [False, True], ids=["1-to-2", "2-to-1"])
def test_a_one_way_cut_silences_one_direction_of_both_links(
    pair: ProcessRuntime, swap: bool
) -> None:
    a, b = ("broker-2", "broker-1") if swap else ("broker-1", "broker-2")
    receipt = pair.apply_cut(one_way([a], [b]))
    assert receipt.true, receipt.evidence
    assert "2 connections were open" in receipt.evidence
    assert is_silent(pair, "echo.heard", b)  # what a asks does not reach b
    assert is_silent(pair, "echo.answered", b)  # nor do its answers
    assert goes_on(pair, "echo.heard", a)  # while a hears b all the time
    assert pair.heal_links().true
    talk(pair)


def test_cuts_accumulate_and_each_is_lifted_by_itself(pair: ProcessRuntime) -> None:
    there, both = one_way(["broker-1"], ["broker-2"]), two_way(["broker-1"], ["broker-2"])
    assert pair.apply_cut(there).true
    assert pair.apply_cut(both).true
    assert is_silent(pair, "echo.heard", "broker-1")
    assert pair.lift_cut(both).true
    assert is_silent(pair, "echo.heard", "broker-2")  # the first one still holds
    assert goes_on(pair, "echo.heard", "broker-1")
    assert pair.lift_cut(there).true
    talk(pair)
    assert pair.lift_cut(there).true  # once too often does no harm
    assert pair.apply_cut(there).true
    assert is_silent(pair, "echo.heard", "broker-2")


def test_a_slow_link_is_slow_and_stays_cut_where_it_is_cut(pair: ProcessRuntime) -> None:
    link = Link("broker-1", "broker-2", echo_node.PORT)
    slow = pair.set_link(link, LinkState(latency_ms=40))
    assert slow.true, slow.evidence
    assert "1 link took" in slow.evidence
    assert pair.apply_cut(one_way(["broker-1"], ["broker-2"])).true
    assert pair.set_link(link, HEALTHY).true
    assert is_silent(pair, "echo.heard", "broker-2")


def test_a_throttled_link_shows_its_rate(pair: ProcessRuntime) -> None:
    receipt = pair.set_link(Link("broker-1", "broker-2", echo_node.PORT), LinkState(rate_kb=100))
    assert receipt.true, receipt.evidence


def test_healing_heals_everything(pair: ProcessRuntime) -> None:
    link = Link("broker-1", "broker-2", echo_node.PORT)
    pair.set_link(link, LinkState(latency_ms=20, cut_downstream=True))
    pair.apply_cut(two_way(["broker-1"], ["broker-2"]))
    healed = pair.heal_links()
    assert healed.true, healed.evidence
    assert "2 links answered" in healed.evidence
    assert pair.heal_links() == Receipt(True, "every link was healthy")
    talk(pair)


def test_a_cut_of_a_dead_process_has_missed(pair: ProcessRuntime) -> None:
    victim = pair.living(slot(pair, "broker-2"))
    assert victim is not None
    pair.signal(victim, Signal.KILL)
    receipt = pair.apply_cut(two_way(["broker-1"], ["broker-2"]))
    assert not receipt.true
    assert "no process runs at both ends" in receipt.evidence
    assert pair.heal_links().true


def test_a_cut_in_front_of_a_deaf_process_has_missed(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-2", "deaf"),)))
    for broker in runtime.layout.of(Role.BROKER):
        runtime.start(broker)
    assert advance(runtime, Condition("both up", lambda v: v.kinds["node.started"] == 2))
    receipt = runtime.apply_cut(one_way(["broker-1"], ["broker-2"]))
    assert not receipt.true
    assert "broker-1 -> broker-2:9092: nothing answered before" in receipt.evidence


def test_a_cut_of_an_idle_link_has_missed(pair: ProcessRuntime) -> None:
    session = pair.client(ClientSpec("one", "echo"))
    assert advance(
        pair, Condition("it talks", lambda v: (session.process, "echo.answered") in v.latest)
    )
    busy = pair.apply_cut(two_way(["clients"], ["broker-1"]))
    assert busy.true, busy.evidence
    idle = pair.apply_cut(two_way(["clients"], ["broker-2"]))
    assert not idle.true
    assert idle.evidence == "no connection was open through any of these links"


def test_a_cut_where_no_link_runs_has_missed(make: Make) -> None:
    runtime = make(shape=kafka_shape(controllers=1, brokers=1))
    receipt = runtime.apply_cut(one_way(["clients"], ["controller-1"]))
    assert receipt == Receipt(False, "no link carries clients -> controller-1")


def test_a_node_that_was_just_started_is_given_time_to_answer(pair: ProcessRuntime) -> None:
    """Else a restart and a cut in quick succession would never have a receipt."""
    victim = pair.living(slot(pair, "broker-2"))
    assert victim is not None
    pair.signal(victim, Signal.KILL)
    pair.start(victim.slot)
    receipt = pair.apply_cut(one_way(["broker-1"], ["broker-2"]))
    assert receipt.true, receipt.evidence
    second = pair.living(slot(pair, "broker-2"))
    assert second is not None
    pair.signal(second, Signal.KILL)
    pair.start(victim.slot)
    healed = pair.heal_links()
    assert healed.true, healed.evidence


def test_an_unknown_name_in_a_cut_is_refused(make: Make) -> None:
    runtime = make()
    with pytest.raises(UsageError, match="no slot named 'broker-11'; did you mean 'broker-1'"):
        runtime.apply_cut(one_way(["broker-11"], ["broker-2"]))
    with pytest.raises(UsageError, match="there is no link broker-1 -> broker-2:9"):
        runtime.set_link(Link("broker-1", "broker-2", 9), HEALTHY)


def test_a_paused_process_runs_while_its_links_change_and_is_stopped_again(
    pair: ProcessRuntime,
) -> None:
    """Else it can hang the toxiproxies of everyone who dials it."""
    process = pair.living(slot(pair, "broker-2"))
    assert process is not None
    pair.signal(process, Signal.STOP)
    cut = one_way(["broker-1"], ["broker-2"])
    changes: list[Callable[[], Receipt]] = [
        lambda: pair.apply_cut(cut),
        lambda: pair.lift_cut(cut),
        lambda: pair.set_link(pair.layout.links[0], LinkState(latency_ms=20)),
        pair.heal_links,
    ]
    for change in changes:
        receipt = change()
        assert receipt.true, receipt.evidence
        assert "was resumed for the change of its links" in receipt.evidence
        assert state_of(process.pid) == "T"
    assert pair.signal(process, Signal.CONT).true
    talk(pair)
