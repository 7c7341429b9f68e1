"""The contract of runtimes: one suite, which each of them passes.

Echo nodes run as processes, in containers (skipped without an engine) and simulated. Everything
that a test of a cluster can observe is the same everywhere: names, events, ends, traffic through
links, and receipts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import echo_node
from tests.echo_node import EchoSystem
from tests.echo_run import NEVER, advance, answered, goes_on, is_silent, more, slot, talk

from fencepost import (
    HEALTHY,
    ClientSpec,
    Condition,
    EnvironmentFailed,
    Event,
    FaultTookEffect,
    Link,
    LinkState,
    NodeStopped,
    Process,
    ProcessExited,
    ProcessResumed,
    ProcessSpawned,
    Receipt,
    RunEnded,
    RunStarted,
    Runtime,
    Signal,
    Stalled,
    UsageError,
    View,
    one_way,
    two_way,
)
from fencepost.plugins.manager import load_from
from fencepost.runs import schedule as schedules
from fencepost.runs.faults import Faults
from fencepost_kafka import kafka_shape
from fencepost_plugins import partition, slow_link

Make = Callable[..., Runtime]
LINK = Link("broker-1", "broker-2", echo_node.PORT)
THERE, BOTH = one_way(["broker-1"], ["broker-2"]), two_way(["broker-1"], ["broker-2"])
KILLED = 9


def living(runtime: Runtime, name: str) -> Process:
    process = runtime.living(slot(runtime, name))
    assert process is not None, f"no process runs in {name}"
    return process


# ------------------------------------------------------------------------------ starting, ending


def test_a_started_process_is_named_and_recorded(pair: Runtime) -> None:
    process = living(pair, "broker-1")
    assert process.name.startswith("broker-1#")
    assert pair.view.slot_of[process.name] == "broker-1"
    assert pair.view.node_of[process.name] == ("broker", 1)
    first = pair.events()[0]
    assert isinstance(first.body, RunStarted)
    spawned = [e.body for e in pair.events() if isinstance(e.body, ProcessSpawned)]
    assert (
        ProcessSpawned(
            started=process.name, slot="broker-1", role="broker", node_id=1, pid=process.pid
        )
        in spawned
    )


def test_the_names_of_nodes_lead_clients_outside_to_where_they_connect_first(
    pair: Runtime,
) -> None:
    """In the simulator nothing outside reaches a node."""
    hosts = {one.rpartition(":")[0] for one in pair.bootstrap}
    assert pair.names == {} or hosts <= {*pair.names.values()}
    assert not pair.names.keys() - {one.name for one in pair.layout.slots}


def test_a_slot_holds_one_process(pair: Runtime) -> None:
    with pytest.raises(UsageError, match=r"broker-1#\d is alive in broker-1"):
        pair.start(slot(pair, "broker-1"))
    with pytest.raises(UsageError, match="clients is a slot for clients"):
        pair.start(slot(pair, "clients"))
    with pytest.raises(UsageError, match="its disk is in use"):
        pair.copy_disk(slot(pair, "broker-2"), slot(pair, "broker-1"))
    with pytest.raises(UsageError, match="its disk is in use"):
        pair.damage_disk(slot(pair, "broker-1"), "*.log", 1)


def test_a_killed_process_is_gone_and_the_next_one_takes_its_place(pair: Runtime) -> None:
    first = living(pair, "broker-1")
    receipt = pair.signal(first, Signal.KILL)
    assert receipt.true
    assert "was ended by SIGKILL" in receipt.evidence
    assert pair.living(first.slot) is None
    assert first.name not in pair.view.alive
    exited = pair.view.latest["harness", "process.exited"].body
    assert exited == ProcessExited(ended=first.name, exit_code=0, signal=KILLED, expected=True)
    again = pair.signal(first, Signal.KILL)
    assert not again.true
    assert "is not alive" in again.evidence
    second = pair.start(first.slot)
    slot_name, number = first.name.split("#")
    assert second.name == f"{slot_name}#{int(number) + 1}"
    talk(pair)


def test_a_terminated_process_ends_in_its_own_time(pair: Runtime) -> None:
    first = living(pair, "broker-2")
    assert pair.signal(first, Signal.TERM).true
    assert advance(pair, Condition("its end", lambda view: first.name not in view.alive))
    exited = pair.view.latest["harness", "process.exited"].body
    assert exited == ProcessExited(ended=first.name, exit_code=0, signal=0, expected=True)
    assert pair.view.latest[first.name, "node.stopped"].body == NodeStopped(reason="asked")


def test_a_paused_process_stands_still_until_it_is_resumed(pair: Runtime) -> None:
    process = living(pair, "broker-1")
    assert pair.signal(process, Signal.STOP).true
    assert is_silent(pair, "echo.answered", "broker-1")
    assert pair.signal(process, Signal.CONT).true
    assert goes_on(pair, "echo.answered", "broker-1")


def test_a_process_that_ends_while_it_is_stopped_has_stalled_until_then(pair: Runtime) -> None:
    """It never wakes, and so cannot say that itself."""
    process = living(pair, "broker-1")
    began_ns = pair.now_ns()
    assert pair.signal(process, Signal.STOP).true
    assert is_silent(pair, "echo.answered", "broker-1")
    assert pair.signal(process, Signal.KILL).true
    stalled = pair.view.latest["harness", "process.stalled"].body
    assert isinstance(stalled, Stalled)
    assert stalled.of == process.name
    assert 0 < stalled.stalled_ns <= pair.now_ns() - began_ns


def test_a_process_that_dies_at_start_is_named_until_another_is_started(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "dies"),)), kafka_shape(0, 1))
    broker = slot(runtime, "broker-1")
    runtime.start(broker)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match=r"broker-1#1.*3.*but should be running"):
            advance(runtime, NEVER, 20)
    runtime.start(broker)
    with pytest.raises(EnvironmentFailed, match=r"broker-1#2"):
        advance(runtime, NEVER, 20)


def test_a_supervised_node_is_started_again_until_its_third_crash_within_a_minute(
    make: Make,
) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "dies"),)), kafka_shape(0, 1))
    runtime.supervise()
    runtime.start(slot(runtime, "broker-1"))
    with pytest.raises(EnvironmentFailed, match=r"broker-1#3.*3 times within a minute"):
        advance(runtime, NEVER, 60)
    bodies = [one.body for one in runtime.events()]
    ended = [one.ended for one in bodies if isinstance(one, ProcessExited)]
    assert ended == [f"broker-1#{number}" for number in (1, 2, 3)]


def test_a_process_that_starts_in_a_role_that_no_slot_has_is_refused_at_once(make: Make) -> None:
    """Though the condition holds with its first event, and later too."""
    runtime = make(EchoSystem(modes=(("broker-1", "misnamed"),)), kafka_shape(0, 1))
    runtime.start(slot(runtime, "broker-1"))
    started = Condition("it to start", lambda view: view.kinds["node.started"] == 1)
    for until in (started, started, NEVER):
        with pytest.raises(UsageError, match=r"echo/mesh wrote .* the role 'brokr'"):
            advance(runtime, until, 20)


def test_a_process_that_leaves_in_good_order_is_not_missed(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "leaves"),)), kafka_shape(0, 1))
    process = runtime.start(slot(runtime, "broker-1"))
    gone = Condition("it to leave", lambda view: view.kinds["process.exited"] == 1)
    assert advance(runtime, gone)
    assert advance(runtime, NEVER, 0.1) is None
    exited = runtime.view.latest["harness", "process.exited"].body
    assert exited == ProcessExited(ended=process.name, exit_code=0, signal=0, expected=False)


def test_a_client_takes_commands_and_ends_when_it_is_asked_to(pair: Runtime) -> None:
    session = pair.client(ClientSpec("second", "echo"))
    assert advance(pair, answered(session.process)), "the client does not talk"
    session.tell({"say": "hello"})
    received = Condition(
        "the command", lambda view: (session.process, "echo.command_received") in view.latest
    )
    assert advance(pair, received)
    session.stop()
    ended = Condition("its end", lambda view: session.process not in view.alive)
    assert advance(pair, ended)
    with pytest.raises(UsageError, match="was asked to stop"):
        session.tell({"say": "more"})
    with pytest.raises(UsageError, match="is not lower-case words"):
        pair.client(ClientSpec("Second One", "echo"))


def test_a_client_that_ends_by_itself_is_done_and_not_missed(pair: Runtime) -> None:
    session = pair.client(ClientSpec("second", "echo", {"leaves": True}))
    assert advance(pair, Condition("its end", lambda view: session.process not in view.alive))
    exited = pair.view.latest["harness", "process.exited"].body
    assert exited == ProcessExited(ended=session.process, exit_code=0, signal=0, expected=True)


def test_time_passes_up_to_the_deadline(pair: Runtime) -> None:
    until_ns = pair.now_ns() + 50_000_000
    assert pair.advance(NEVER, until_ns) is None
    assert pair.now_ns() >= until_ns
    seen: list[Event | None] = []

    def holds(view: View) -> bool:
        """The processes go on, so the newest event is the one of this moment only."""
        seen.append(view.last)
        return True

    held = pair.advance(Condition("what holds", holds), 0)
    assert held is not None
    assert held == seen[-1]


def test_a_closed_run_has_ended_and_closes_again(make: Make) -> None:
    runtime = make(shape=kafka_shape(0, 1))
    runtime.start(slot(runtime, "broker-1"))
    assert advance(runtime, Condition("it to start", lambda view: view.kinds["node.started"] == 1))
    runtime.close()
    runtime.close()
    last = runtime.events()[-1]
    assert last.body == RunEnded(completed=True)


# ------------------------------------------------------------------------------------------ cuts


@pytest.mark.parametrize("swap", [False, True], ids=["1-to-2", "2-to-1"])
def test_a_one_way_cut_silences_one_direction_of_both_links(pair: Runtime, swap: bool) -> None:
    a, b = ("broker-2", "broker-1") if swap else ("broker-1", "broker-2")
    receipt = pair.apply_cut(one_way([a], [b]))
    assert receipt.true, receipt.evidence
    assert "2 links answered within" in receipt.evidence
    assert "2 connections were open" in receipt.evidence
    assert is_silent(pair, "echo.frame_received", b)  # what a asks does not reach b
    assert is_silent(pair, "echo.answered", b)  # nor do its answers
    assert goes_on(pair, "echo.frame_received", a)  # while a hears b all the time
    healed = pair.heal_links()
    assert healed.true, healed.evidence
    talk(pair)


def test_a_cut_both_ways_silences_both_and_breaks_their_connections_when_it_is_lifted(
    pair: Runtime,
) -> None:
    assert pair.apply_cut(BOTH).true
    for name in ("broker-1", "broker-2"):
        assert is_silent(pair, "echo.frame_received", name)
        assert is_silent(pair, "echo.closed", name)
    closed = more("echo.closed", "broker-1", pair.view)
    lifted = pair.lift_cut(BOTH)
    assert lifted.true, lifted.evidence
    assert "2 links answered within" in lifted.evidence
    assert advance(pair, closed)
    talk(pair)


def test_the_end_of_a_process_does_not_pass_a_cut(pair: Runtime) -> None:
    """A node that was cut off learned within milliseconds that the others had left it."""
    assert pair.apply_cut(BOTH).true
    process = pair.living(slot(pair, "broker-2"))
    assert process is not None
    pair.signal(process, Signal.KILL)
    assert advance(pair, Condition("its end", lambda view: process.name not in view.alive))
    assert is_silent(pair, "echo.closed", "broker-1")
    closed = more("echo.closed", "broker-1", pair.view)
    pair.start(slot(pair, "broker-2"))
    pair.lift_cut(BOTH)
    assert advance(pair, closed)
    talk(pair)


def test_cuts_accumulate_and_each_is_lifted_by_itself(pair: Runtime) -> None:
    assert pair.apply_cut(THERE).true
    assert pair.apply_cut(BOTH).true
    assert is_silent(pair, "echo.frame_received", "broker-1")
    assert pair.lift_cut(BOTH).true
    assert is_silent(pair, "echo.frame_received", "broker-2")  # the first one still holds
    assert goes_on(pair, "echo.frame_received", "broker-1")
    assert pair.lift_cut(THERE).true
    talk(pair)
    assert pair.lift_cut(THERE).true  # once too often does no harm
    assert pair.apply_cut(THERE).true
    assert is_silent(pair, "echo.frame_received", "broker-2")


def test_healing_heals_everything(pair: Runtime) -> None:
    pair.set_links([LINK], LinkState(latency_ms=20, cut_downstream=True))
    pair.apply_cut(BOTH)
    healed = pair.heal_links()
    assert healed.true, healed.evidence
    assert "2 links answered" in healed.evidence
    assert pair.heal_links() == Receipt(True, "every link was healthy")
    talk(pair)


# ------------------------------------------------------------------------------------- slow links


def test_a_slow_link_is_slow_and_stays_cut_where_it_is_cut(pair: Runtime) -> None:
    slow = pair.set_links([LINK], LinkState(latency_ms=80))
    assert slow.true, slow.evidence
    took = re.search(r"1 link took (\d+) ms or more", slow.evidence)
    assert took is not None, slow.evidence
    assert int(took[1]) >= 160
    assert pair.apply_cut(THERE).true
    assert pair.set_links([LINK], HEALTHY).true
    assert is_silent(pair, "echo.frame_received", "broker-2")


def test_a_throttled_link_shows_its_rate(pair: Runtime) -> None:
    receipt = pair.set_links([LINK], LinkState(rate_kb=100))
    assert receipt.true, receipt.evidence


def test_a_delay_that_cannot_be_measured_has_no_receipt(pair: Runtime) -> None:
    receipt = pair.set_links([LINK], LinkState(latency_ms=1))
    assert not receipt.true
    assert "a delay of 1.6 ms is too short to be measured" in receipt.evidence


def test_a_state_that_makes_no_sense_changes_nothing(pair: Runtime) -> None:
    with pytest.raises(UsageError, match="latency"):
        pair.set_links([LINK], LinkState(latency_ms=-1))
    assert pair.heal_links() == Receipt(True, "every link was healthy")


# ------------------------------------------------------------------------- changes that have missed


def test_a_cut_of_a_link_without_a_connection_has_missed(pair: Runtime) -> None:
    """The client talks to the first broker only."""
    client = pair.client(ClientSpec("first", "echo"))
    assert advance(pair, answered(client.process)), "the client does not talk"
    busy = pair.apply_cut(two_way(["clients"], ["broker-1"]))
    assert busy.true, busy.evidence
    idle = pair.apply_cut(two_way(["clients"], ["broker-2"]))
    missed = "no connection was open through any of these links"
    assert idle == Receipt(False, missed, unused=True, idle=True)
    client.stop()


def test_a_fault_of_idle_links_has_its_receipt_once_a_process_connects(
    pair: Runtime, tmp_path: Path
) -> None:
    plugins = load_from((), {"partition": partition, "slow_link": slow_link})
    select = schedules.selecting(EchoSystem(), pair.layout)
    faults = Faults(pair, plugins, tmp_path / "schedule.json", select)
    first = pair.client(ClientSpec("first", "echo"))
    assert advance(pair, answered(first.process)), "the client does not talk"
    cut = faults.partition("clients", "broker-2")
    slowed = faults.slow_link("clients", "broker-2", latency_ms=40)
    assert cut.receipt.unused
    assert not cut.await_receipt(limit_ms=100).true
    late = pair.client(ClientSpec("late", "echo", {"broker": 2}))
    assert cut.await_receipt() == Receipt(True, "open connections through these links now: 1")
    faults.heal_all()
    effects = [event.body for event in pair.events() if isinstance(event.body, FaultTookEffect)]
    assert [effect.fault_id for effect in effects] == [cut.fault_id, slowed.fault_id]
    first.stop()
    late.stop()


def test_a_cut_of_a_dead_process_has_its_receipt_once_the_next_one_connects(
    pair: Runtime, tmp_path: Path
) -> None:
    plugins = load_from((), {"partition": partition})
    select = schedules.selecting(EchoSystem(), pair.layout)
    faults = Faults(pair, plugins, tmp_path / "schedule.json", select)
    pair.signal(living(pair, "broker-2"), Signal.KILL)
    cut = faults.partition("broker-1", "broker-2")
    assert cut.receipt.unused
    assert not cut.await_receipt(limit_ms=100).true
    pair.start(pair.layout.slot("broker-2"))
    assert cut.await_receipt().true
    faults.heal_all()


def test_a_cut_of_a_dead_process_has_missed(pair: Runtime) -> None:
    pair.signal(living(pair, "broker-2"), Signal.KILL)
    missed = "no process runs at both ends of broker-1 -> broker-2 and broker-2 -> broker-1"
    assert pair.apply_cut(BOTH) == Receipt(False, missed, unused=True)
    assert pair.heal_links().true


def test_a_cut_in_front_of_a_deaf_process_has_missed(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-2", "deaf"),)))
    for broker in runtime.layout.nodes():
        runtime.start(broker)
    assert advance(runtime, Condition("both up", lambda v: v.kinds["node.started"] == 2))
    receipt = runtime.apply_cut(THERE)
    assert not receipt.true
    assert "broker-1 -> broker-2:9092: nothing answered before" in receipt.evidence


def test_a_cut_where_no_link_runs_has_missed(make: Make) -> None:
    runtime = make(shape=kafka_shape(controllers=1, brokers=1))
    receipt = runtime.apply_cut(one_way(["clients"], ["controller-1"]))
    assert receipt == Receipt(False, "no link carries clients -> controller-1")


def test_an_unknown_name_in_a_cut_is_refused(pair: Runtime) -> None:
    with pytest.raises(UsageError, match="no slot named 'broker-11'; did you mean 'broker-1'"):
        pair.apply_cut(one_way(["broker-11"], ["broker-2"]))
    with pytest.raises(UsageError, match="there is no link broker-1 -> broker-2:9"):
        pair.set_links([Link("broker-1", "broker-2", 9)], HEALTHY)


# ------------------------------------------------------------- links of processes in other states


def test_a_node_that_was_just_started_is_given_time_to_answer(pair: Runtime) -> None:
    """Otherwise a restart and a cut in quick succession would never have a receipt."""
    victim = living(pair, "broker-2")
    pair.signal(victim, Signal.KILL)
    second = pair.start(victim.slot)
    receipt = pair.apply_cut(THERE)
    assert receipt.true, receipt.evidence
    pair.signal(second, Signal.KILL)
    pair.start(victim.slot)
    healed = pair.heal_links()
    assert healed.true, healed.evidence


def test_a_paused_process_runs_while_its_links_change_and_stands_still_again(
    pair: Runtime,
) -> None:
    """A stopped process answers no probe, and it can hang the toxiproxies that dial it."""
    process = living(pair, "broker-2")
    pair.signal(process, Signal.STOP)
    changes: list[Callable[[], Receipt]] = [
        lambda: pair.apply_cut(THERE),
        lambda: pair.lift_cut(THERE),
        lambda: pair.set_links([pair.layout.links[0]], LinkState(latency_ms=20)),
        pair.heal_links,
    ]
    for change in changes:
        receipt = change()
        assert receipt.true, receipt.evidence
        assert "was resumed for the change of its links" in receipt.evidence
        ran = pair.view.latest["harness", "process.resumed"].body
        assert isinstance(ran, ProcessResumed)
        assert ran.resumed == process.name
        assert 0 < ran.ran_ns <= pair.now_ns() - ran.from_ns
        assert is_silent(pair, "echo.answered", "broker-2")
    assert pair.signal(process, Signal.CONT).true
    talk(pair)
