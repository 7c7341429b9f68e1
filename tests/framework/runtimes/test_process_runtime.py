"""The process runtime, with real echo nodes: starting, time, deaths, the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests import echo_node
from tests.echo_node import EchoSystem
from tests.echo_run import NEVER, PAIR, advance, echo_run, more, slot, talk, talking_pair

from fencepost import (
    ClientSpec,
    Cluster,
    Condition,
    EnvironmentFailed,
    Inconclusive,
    ProcessExited,
    ProcessSpawned,
    Receipt,
    RunEnded,
    RunStarted,
    Runtime,
    Shape,
    Signal,
    Stalled,
    UsageError,
    View,
    Violation,
    one_way,
    two_way,
)
from fencepost.history import merge as history
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS, SECOND, now_ns, poll
from fencepost.model.system.subject import Subject
from fencepost.runtimes.process import runtime as process_runtime
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.supervision.launcher import state_of
from fencepost_kafka import kafka_shape

Make = Callable[..., ProcessRuntime]


@pytest.fixture
def make(tmp_path: Path, real: None) -> Iterator[Make]:
    """Runtimes of echo nodes that are not started; closed at the end."""
    made: list[ProcessRuntime] = []

    def build(system: EchoSystem | None = None, shape: Shape = PAIR) -> ProcessRuntime:
        made.append(echo_run(tmp_path / f"run-{len(made) + 1}", system, shape))
        return made[-1]

    yield build
    for runtime in made:
        runtime.close()


@pytest.fixture
def pair(tmp_path: Path, real: None) -> Iterator[ProcessRuntime]:
    """Two brokers that talk to each other."""
    runtime = talking_pair(tmp_path / "pair")
    yield runtime
    runtime.close()


@pytest.fixture
def waiting_alone_takes_time(pair: ProcessRuntime, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The harness's clock, in nanoseconds; only waiting takes time on it, since the machine may
    stall."""
    clock = [now_ns()]

    def select(wanted_s: float) -> list[object]:
        clock[0] += round(wanted_s * SECOND)
        return []

    monkeypatch.setattr(process_runtime, "now_ns", lambda: clock[0])
    monkeypatch.setattr(pair._waiting, "select", select)
    return clock


# --------------------------------------------------------------------------------------- links


def test_a_wait_in_vain_names_the_connections_on_which_no_fault_of_links_acts(
    tmp_path: Path, real: None
) -> None:
    with talking_pair(tmp_path / "run", EchoSystem(bypasses=True)) as runtime:
        cluster = Cluster(runtime, lambda view: (), 1_000, PAIR)
        with pytest.raises(Violation, match=r"in vain$"):
            cluster.eventually(NEVER, 50)
        assert not runtime.apply_cut(one_way(["broker-1"], ["clients"])).true
        said = "in vain, and a fault of links did not act on all: a connection of broker-1 passes"
        with pytest.raises(Inconclusive, match=said):
            cluster.eventually(NEVER, 50)


# --------------------------------------------------------------------------------------- disks


def test_a_file_that_vanishes_while_a_disk_is_copied_is_left_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make()
    source, target = slot(runtime, "broker-1"), slot(runtime, "broker-2")
    disk, copy = runtime.folder.data_of(source.name), runtime.folder.data_of(target.name)
    (disk / "kept").mkdir()
    (disk / "gone").mkdir()
    for file in ("kept/log", "gone/log", "gone.tmp"):
        (disk / file).write_text(file)
    scandir = os.scandir

    @contextmanager
    def vanishing(path: object) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as listed:  # type: ignore[call-overload]
            entries = list(listed)
        if path == disk or path == os.fspath(disk):
            (disk / "gone.tmp").unlink()
            (disk / "gone" / "log").unlink()
            (disk / "gone").rmdir()
        yield iter(entries)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", vanishing)
        runtime._backend.copy_disk(source, target)
    assert [str(path.relative_to(copy)) for path in sorted(copy.rglob("*"))] == ["kept", "kept/log"]
    os.mkfifo(disk / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        runtime._backend.copy_disk(source, target)


# ------------------------------------------------------------------------------ starting, ending


def test_a_started_process_is_named_recorded_and_placed(make: Make) -> None:
    runtime: Runtime = make()
    broker = runtime.layout.slot("broker-1")
    before = runtime.place(broker)
    process = runtime.start(broker)
    assert process.name == before.process == "broker-1#1"
    assert runtime.living(broker) == process
    assert runtime.view.slot_of == {"broker-1#1": "broker-1"}
    spawned = runtime.view.latest["harness", "process.spawned"]
    assert spawned.body == ProcessSpawned(
        started="broker-1#1", slot="broker-1", role="broker", node_id=1, pid=process.pid
    )
    up = runtime.advance(
        Condition("up", lambda v: "broker-1#1" in v.node_of), now_ns() + 10 * SECOND
    )
    assert up is not None
    assert (up.process, up.kind) == ("broker-1#1", "node.started")
    assert spawned.at_ns < up.at_ns
    assert runtime.place(broker).process == "broker-1#2"
    assert before.data_dir == runtime.place(broker).data_dir
    assert before.hosts["broker-1"] == before.address
    assert before.hosts["broker-2"] == before.address.rsplit(".", 1)[0] + ".2"
    run = before.address.split(".")[1]
    assert before.advertised == f"127.{run}.250.1"
    assert before.seed == 7


def test_the_run_records_what_it_is(make: Make) -> None:
    runtime = make(shape=kafka_shape(1, 2, {"a.b": "c"}))
    info = runtime.folder.info()
    assert (info.system, info.runtime, info.seed) == ("echo/mesh", "process", 7)
    assert info.counts == {"controller": 1, "broker": 2}
    assert info.settings == {"a.b": "c"}
    assert [s.name for s in info.slots] == ["controller-1", "broker-1", "broker-2", "clients"]
    assert info.versions["toxiproxy"].startswith("v2.")
    first = runtime.events()[0]
    assert first.body == RunStarted(system="echo/mesh", runtime="process", seed=7)
    assert info.clock_origin_ns < first.at_ns


def test_a_killed_process_is_gone_and_the_next_one_takes_its_place(pair: ProcessRuntime) -> None:
    broker = slot(pair, "broker-1")
    first = pair.living(broker)
    assert first is not None
    (pair.place(broker).data_dir / "disk").write_text("kept")
    receipt = pair.signal(first, Signal.KILL)
    assert receipt.true
    assert f"broker-1#1 (process {first.pid}) was ended by SIGKILL" in receipt.evidence
    assert state_of(first.pid) == ""
    assert pair.living(broker) is None
    assert "broker-1#1" not in pair.view.alive
    assert pair.view.latest["harness", "process.exited"].body == ProcessExited(
        ended="broker-1#1", exit_code=0, signal=signal.SIGKILL, expected=True
    )
    again = pair.signal(first, Signal.KILL)
    assert again == Receipt(
        False,
        f"broker-1#1 (process {first.pid}) is not alive: it was ended by SIGKILL",
    )
    second = pair.start(broker)
    assert second.name == "broker-1#2"
    talk(pair)
    assert (pair.place(broker).data_dir / "disk").read_text() == "kept"


def test_a_process_that_ignores_sigterm_is_ended_by_close(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "stubborn"),)))
    runtime.start(slot(runtime, "broker-1"))
    assert advance(runtime, Condition("up", lambda v: "broker-1#1" in v.node_of))
    stubborn = runtime.living(slot(runtime, "broker-1"))
    assert stubborn is not None
    assert runtime.signal(stubborn, Signal.TERM).true
    assert advance(runtime, NEVER, 0.3) is None
    assert runtime.living(slot(runtime, "broker-1")) == stubborn
    runtime.close()
    assert state_of(stubborn.pid) == ""


# ---------------------------------------------------------------------------------- time passing


def test_a_condition_that_holds_already_is_met_even_past_the_deadline(
    pair: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair._waiting, "select", None)  # it would have to wait
    event = pair.advance(Condition("up", lambda v: "broker-1#1" in v.alive), deadline_ns=0)
    assert event is not None
    assert event.run == pair.folder.run


def test_too_late_is_none_at_the_deadline(
    pair: ProcessRuntime, waiting_alone_takes_time: list[int]
) -> None:
    began = waiting_alone_takes_time[0]
    assert pair.advance(NEVER, began + 250 * MS) is None
    assert waiting_alone_takes_time[0] == began + 250 * MS


def test_the_deciding_event_is_returned_and_the_view_stands_there(pair: ProcessRuntime) -> None:
    views: list[View] = []
    counts: list[int] = []

    def holds(view: View) -> bool:  # more than those that had come when it was asked first
        views.append(view)
        counts.append(view.kinds["echo.frame_received"])
        return counts[-1] >= counts[0] + 3

    event = advance(pair, Condition("three more", holds))
    assert event is not None
    assert event.kind == "echo.frame_received"
    assert views[-1].kinds["echo.frame_received"] == counts[0] + 3


def test_a_condition_is_asked_after_all_earlier_events(pair: ProcessRuntime) -> None:
    """A view that ends at the last deciding event would show a dead process as alive."""
    process = pair.living(slot(pair, "broker-1"))
    assert process is not None
    pair.signal(process, Signal.KILL)
    assert pair.advance(Condition("alive", lambda v: process.name in v.alive), now_ns()) is None


def test_both_of_two_conditions(pair: ProcessRuntime) -> None:
    both = more("echo.frame_received", "broker-1", pair.view) & more(
        "echo.frame_received", "broker-2", pair.view
    )
    assert advance(pair, both) is not None


def test_the_harness_notices_when_it_stalled(pair: ProcessRuntime) -> None:
    script = f"read now; kill -STOP {os.getpid()}; sleep 0.6; kill -CONT {os.getpid()}"
    began = now_ns()
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE) as stopper:
        assert stopper.stdin is not None
        to_stopper = stopper.stdin.fileno()
        asked: list[View] = []

        def stood_still(view: View) -> bool:  # by this script, and for long
            asked.append(view)
            if len(asked) == 2:  # it waits by now: what passes before that is no stall of a wait
                os.write(to_stopper, b"\n")
            stall = view.latest.get(("harness", "process.stalled"))
            long = stall is not None and getattr(stall.body, "stalled_ns", 0) > 300 * MS
            return stall is not None and long and stall.at_ns > began

        stalled = advance(pair, Condition("so long a stall", stood_still), 30)
    assert stalled is not None
    assert stalled.process == "harness"
    assert isinstance(stalled.body, Stalled)
    assert 300 * MS < stalled.body.stalled_ns < now_ns() - began


def test_the_harness_that_does_not_stand_still_records_no_stall(
    pair: ProcessRuntime, waiting_alone_takes_time: list[int]
) -> None:
    before = pair.view.kinds["process.stalled"]
    assert pair.advance(NEVER, waiting_alone_takes_time[0] + SECOND // 2) is None
    assert pair.view.kinds["process.stalled"] == before


# ---------------------------------------------------------------------------- unexpected deaths


def test_a_node_that_dies_at_start_is_named_within_seconds(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "dies"),)))
    process = runtime.start(slot(runtime, "broker-1"))
    with pytest.raises(EnvironmentFailed) as failed:
        advance(runtime, NEVER, 60)
    noticed_ns = now_ns()
    assert noticed_ns - runtime.view.latest["harness", "process.exited"].at_ns < 5 * SECOND
    log = runtime.folder.log_of("broker-1#1")
    assert str(failed.value) == (
        f"broker-1#1 (process {process.pid}) ended with exit code 3, but should be running; "
        f'it last said "line 29 of my last words" ({log})'
    )
    assert failed.value.log == log
    assert failed.value.detail.splitlines() == [f"line {n} of my last words" for n in range(15, 30)]
    assert runtime.view.latest["harness", "process.exited"].body == ProcessExited(
        ended="broker-1#1",
        exit_code=3,
        signal=0,
        expected=False,
        said="line 29 of my last words",
    )


def test_a_death_is_raised_until_the_slot_has_a_process_again(pair: ProcessRuntime) -> None:
    victim = pair.living(slot(pair, "broker-1"))
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* was ended by SIGKILL, but"):
            advance(pair, NEVER, 10)
    pair.start(slot(pair, "broker-1"))
    talk(pair)


def test_the_deciding_event_counts_even_if_a_process_died(pair: ProcessRuntime) -> None:
    victim = pair.living(slot(pair, "broker-1"))
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    gone = Condition("its end", lambda view: victim.name not in view.alive)
    assert advance(pair, gone) is not None
    with pytest.raises(EnvironmentFailed):
        advance(pair, NEVER, 10)


def test_a_node_may_leave_in_an_orderly_way(make: Make) -> None:
    runtime = make(EchoSystem(modes=(("broker-1", "leaves"),)))
    runtime.start(slot(runtime, "broker-1"))
    ended = advance(runtime, Condition("its end", lambda v: v.kinds["process.exited"] == 1))
    assert ended is not None
    assert ended.body == ProcessExited(ended="broker-1#1", exit_code=0, signal=0, expected=False)
    assert advance(runtime, NEVER, 0.1) is None


def test_a_dead_supervisor_is_reported_at_once_and_close_still_works(pair: ProcessRuntime) -> None:
    os.kill(pair._backend.launcher.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFailed, match="supervisor"):
        advance(pair, NEVER, 10)
    pair.close()
    last = pair.events()[-1]
    assert last.body == RunEnded(completed=False)


def test_a_dead_toxiproxy_is_reported_at_once(pair: ProcessRuntime) -> None:
    started = pair._backend.launcher._pids  # type: ignore[attr-defined]
    (toxiproxy,) = [name for name in started if name.startswith("toxiproxy/broker-1#")]
    os.kill(started[toxiproxy], signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match=r"toxiproxy/broker-1#\d was ended by SIGKILL"):
        advance(pair, NEVER, 10)


# --------------------------------------------------------------------------------- run and close


def test_a_closed_run_is_complete_and_leaves_no_process(pair: ProcessRuntime) -> None:
    pair.client(ClientSpec("one", "echo"))
    pids = [e.body.pid for e in pair.events() if isinstance(e.body, ProcessSpawned)]
    began = now_ns()
    pair.close()
    assert now_ns() - began < 2 * SECOND
    pair.close()
    assert len(pids) == 3
    assert all(state_of(pid) in ("", "Z") for pid in pids)
    end = history.merge(pair.folder, pair.codec)
    assert (end.complete, end.damage) == (True, ())
    reading = history.read(pair.folder, pair.codec)
    events = list(reading)
    assert events[0].body == RunStarted(system="echo/mesh", runtime="process", seed=7)
    assert events[-1].body == RunEnded(completed=True)
    exits = [e.body for e in events if isinstance(e.body, ProcessExited)]
    assert sorted(body.ended for body in exits) == ["broker-1#1", "broker-2#1", "clients/one#1"]
    assert all(body.expected for body in exits)


@pytest.mark.real
def test_an_error_in_the_middle_makes_the_run_incomplete(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with (
        pytest.raises(RuntimeError, match="mine"),
        ProcessRuntime(Subject(EchoSystem(), PAIR, kinds=echo_node.KINDS), folder) as runtime,
    ):
        raise RuntimeError("mine")
    assert runtime.events()[-1].body == RunEnded(completed=False)
    assert not history.merge(folder, runtime.codec).complete


def test_events_of_every_process_come_in_happens_before_order(pair: ProcessRuntime) -> None:
    events = pair.events()
    assert {e.process for e in events} == {"harness", "broker-1#1", "broker-2#1"}
    for process in {e.process for e in events}:
        numbers = [e.node_seq for e in events if e.process == process]
        assert numbers == list(range(len(numbers)))


def test_two_runs_do_not_meet(tmp_path: Path, pair: ProcessRuntime) -> None:
    other = talking_pair(tmp_path / "other")
    assert pair.place(slot(pair, "broker-1")).address != other.place(slot(pair, "broker-1")).address
    assert pair.apply_cut(two_way(["broker-1"], ["broker-2"])).true
    talk(other)
    other.close()
    assert pair.heal_links().true
    talk(pair)


def test_a_node_whose_port_is_taken_shows_its_log(make: Make) -> None:
    runtime = make()
    address = runtime.place(slot(runtime, "broker-1")).address
    with socket.create_server((address, echo_node.PORT)):
        runtime.start(slot(runtime, "broker-1"))
        with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* exit code 1") as failed:
            advance(runtime, NEVER, 10)
    assert "address already in use" in failed.value.detail


def test_without_toxiproxy_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_TOXIPROXY", "/no/such/program")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())  # any of them may end meanwhile
    with pytest.raises(EnvironmentFailed, match="FENCEPOST_TOXIPROXY names /no/such/program"):
        ProcessRuntime(Subject(EchoSystem(), PAIR), RunFolder.create(tmp_path / "run"))
    assert poll(lambda: set(children.read_text().split()) <= before, 10)


def test_a_system_without_programs_is_refused(tmp_path: Path) -> None:
    class Theory:
        name, plane = "theory/none", "none"
        layout = EchoSystem().layout

    with pytest.raises(UsageError, match="theory/none cannot be started as processes"):
        ProcessRuntime(Subject(Theory(), PAIR), RunFolder.create(tmp_path / "run"))


def test_a_layout_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a port below 32768"):
        ProcessRuntime(
            Subject(replace(EchoSystem(), port=40_000), PAIR), RunFolder.create(tmp_path / "run")
        )
