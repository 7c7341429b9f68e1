"""The faults on real processes behind real links: their effects, their receipts, their healing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from shutil import rmtree

import echo_node
import pytest

from fencepost import (
    Condition,
    FaultHealed,
    FaultInjected,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
    Runtime,
    Signal,
    UsageError,
    View,
)
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.model.system.subject import Subject
from fencepost.plugins.manager import load_from
from fencepost.runs import schedule as schedules
from fencepost.runs.faults import Faults
from fencepost.runs.schedule import Injection, Schedule
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.supervision.launcher import state_of
from fencepost_kafka import Role, kafka_shape
from fencepost_kafka.probe import kafka_probe
from fencepost_kafka.testing import KafkaNode
from fencepost_plugins import bounce, duplicate_id, partition, pause, slow_link

pytestmark = pytest.mark.real

PLUGINS = load_from(
    (),
    {
        "bounce": bounce,
        "duplicate_id": duplicate_id,
        "partition": partition,
        "pause": pause,
        "slow_link": slow_link,
    },
)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One controller and two brokers, each talking to each; every test leaves it as it found it."""
    folder = RunFolder.create(tmp_path_factory.mktemp("run"))
    system = echo_node.EchoSystem(duplicates=True)
    subject = Subject(system, kafka_shape(controllers=1, brokers=2), kinds=echo_node.KINDS)
    with ProcessRuntime(subject, folder) as process_runtime:
        for role in (Role.CONTROLLER, Role.BROKER):
            for slot in process_runtime.layout.of(role):
                process_runtime.start(slot)
        wait(process_runtime, lambda view: len(view.node_of) == 3)
        yield process_runtime


def selecting(runtime: Runtime) -> schedules.Select:
    return schedules.selecting(echo_node.EchoSystem(), runtime.layout)


@pytest.fixture
def faults(runtime: Runtime, tmp_path: Path) -> Iterator[Faults]:
    for node, peer in permutations(("controller-1", "broker-1", "broker-2"), 2):
        assert hears(runtime, node, peer), (node, peer)
    made = Faults(
        runtime,
        PLUGINS,
        tmp_path / "schedule.json",
        selecting(runtime),
    )
    yield made
    made.heal_all()


def wait(runtime: Runtime, holds: Callable[[View], bool], limit_ms: int = 30_000) -> bool:
    condition = Condition("the test's own condition", holds)
    return runtime.advance(condition, runtime.now_ns() + limit_ms * MS) is not None


def hears(runtime: Runtime, node: str, peer: str, limit_ms: int = 30_000) -> bool:
    """Whether a node receives another frame from a peer."""
    process = KafkaNode(runtime.layout.slot(node)).process(runtime.view)
    seen = runtime.view.count

    def heard(view: View) -> bool:
        event = view.last
        return (
            view.count > seen
            and event is not None
            and event.process == process
            and event.body == echo_node.FrameReceived(peer)
        )

    return wait(runtime, heard, limit_ms)


def is_deaf_to(runtime: Runtime, node: str, peer: str) -> bool:
    """Whether no frame of the peer arrives for 500 ms, after all earlier ones were processed.

    A node that answers a probe has processed what had reached it before."""
    assert kafka_probe(runtime.place(runtime.layout.slot(node)).address, echo_node.PORT, 30)
    wait(runtime, lambda view: False, 200)
    return not hears(runtime, node, peer, 500)


def living_pid(runtime: Runtime, node: str) -> int:
    process = runtime.living(runtime.layout.slot(node))
    return -1 if process is None else process.pid


# --------------------------------------------------------------------------------------- network


def test_a_cut_stops_one_direction_until_it_heals(runtime: Runtime, faults: Faults) -> None:
    with faults.cut("broker-1", "broker-2") as cut:
        assert cut.receipt.true, cut.receipt.evidence
        assert is_deaf_to(runtime, "broker-2", "broker-1")
        assert hears(runtime, "broker-1", "broker-2")
    assert cut.heal().true
    assert hears(runtime, "broker-2", "broker-1")


def test_overlapping_partitions_heal_independently(runtime: Runtime, faults: Faults) -> None:
    isolated = faults.isolate("broker-1")
    parted = faults.partition("broker-1", "broker-2")
    assert isolated.receipt.true
    assert parted.receipt.true
    isolated.heal()
    assert hears(runtime, "controller-1", "broker-1")
    assert is_deaf_to(runtime, "broker-2", "broker-1")
    parted.heal()
    assert hears(runtime, "broker-2", "broker-1")


def test_a_cut_to_a_dead_node_has_no_receipt(runtime: Runtime, faults: Faults) -> None:
    with faults.kill("broker-2"):
        missed = faults.cut("broker-1", "broker-2")
        assert not missed.receipt.true
        missed.heal()


def test_a_slow_link_is_measured_and_heals(runtime: Runtime, faults: Faults) -> None:
    slow = faults.slow_link("broker-1", "broker-2", latency_ms=150)
    assert slow.receipt.true, slow.receipt.evidence
    healed = slow.heal()
    assert healed.true, healed.evidence


# ------------------------------------------------------------------------------------- processes


def test_a_killed_node_comes_back_when_it_heals(runtime: Runtime, faults: Faults) -> None:
    before = living_pid(runtime, "broker-1")
    killed = faults.kill("broker-1")
    assert killed.receipt.true
    assert living_pid(runtime, "broker-1") == -1
    assert killed.heal().true
    assert living_pid(runtime, "broker-1") not in (before, -1)


def test_a_damaged_disk_ends_in_zeros_when_the_next_process_starts(
    runtime: Runtime, faults: Faults
) -> None:
    assert isinstance(runtime, ProcessRuntime)
    disk = runtime.folder.data_of("broker-1")
    (disk / "orders-0").mkdir()
    for name in ("00.log", "07.log"):
        (disk / "orders-0" / name).write_bytes(b"messages")
    with faults.damage_disk("broker-1", files="orders-*/*.log", last_bytes=3) as active:
        assert active.receipt.true
        assert active.receipt.evidence.endswith("the last 3 bytes of orders-0/07.log are zeros")
        assert (disk / "orders-0" / "07.log").read_bytes() == b"messa\0\0\0"
        assert (disk / "orders-0" / "00.log").read_bytes() == b"messages"
    assert living_pid(runtime, "broker-1") != -1
    with faults.damage_disk("broker-1", files="audit-*/*.log", last_bytes=3) as active:
        assert not active.receipt.true
        assert active.receipt.evidence.endswith("no file of its disk changed (audit-*/*.log)")
    for files, last_bytes in (("*", 0), ("", 5)):
        with pytest.raises(UsageError, match="a pattern of files, and last_bytes of at least 1"):
            faults.damage_disk("broker-1", files=files, last_bytes=last_bytes)
    assert living_pid(runtime, "broker-1") != -1
    rmtree(disk / "orders-0")


def test_a_node_that_is_dead_already_gives_no_receipt(runtime: Runtime, faults: Faults) -> None:
    first = faults.kill("broker-1")
    second = faults.kill("broker-1")
    assert not second.receipt.true
    assert not faults.pause("broker-1").receipt.true
    second.heal()
    alive = living_pid(runtime, "broker-1")
    first.heal()
    assert living_pid(runtime, "broker-1") == alive, "the second healing starts no second process"


def test_a_terminated_node_ends_in_an_orderly_way(runtime: Runtime, faults: Faults) -> None:
    process = KafkaNode(runtime.layout.slot("broker-1")).process(runtime.view)
    with faults.terminate("broker-1") as terminated:
        assert terminated.receipt.true
        exited = runtime.view.latest["harness", "process.exited"].body
    assert exited == ProcessExited(ended=process, exit_code=0, signal=0, expected=True)


def test_a_bounced_node_is_back_after_the_given_time(runtime: Runtime, faults: Faults) -> None:
    before = living_pid(runtime, "broker-1")
    bounced = faults.bounce("broker-1", after_ms=300)
    assert bounced.healed
    assert bounced.receipt.true
    assert living_pid(runtime, "broker-1") not in (before, -1)
    events = runtime.events()
    ended = [e.at_ns for e in events if isinstance(e.body, ProcessExited)][-1]
    began = [e.at_ns for e in events if isinstance(e.body, ProcessSpawned)][-1]
    assert began - ended >= 300 * MS


def test_a_process_that_ignores_the_signal_gives_no_receipt(
    runtime: Runtime, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, so that it cannot even notice SIGTERM."""
    monkeypatch.setitem(bounce.END_BOUND_MS, Signal.TERM, 200)
    paused = faults.pause("broker-1")
    terminated = faults.terminate("broker-1")
    assert not terminated.receipt.true
    assert "is stopped" in terminated.receipt.evidence
    paused.heal()
    assert wait(runtime, KafkaNode(runtime.layout.slot("broker-1")).dead.holds)
    terminated.heal()


def test_a_process_that_takes_its_time_to_end_was_struck_all_the_same(
    runtime: Runtime, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it takes is the system's own promise, and no miss of the fault."""
    monkeypatch.setattr(bounce, "ends", lambda *given: False)
    terminated = faults.terminate("broker-1")
    asked = runtime.view.latest["harness", "process.asked"].body
    assert isinstance(asked, ProcessAsked)
    assert terminated.targets == (asked.asked,)
    assert terminated.receipt.true
    assert "had not ended 30000 ms later" in terminated.receipt.evidence
    terminated.heal()


def test_a_process_that_was_asked_to_end_and_has_not_is_replaced(
    runtime: Runtime, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end later, when no fault is left to start the next one."""
    monkeypatch.setitem(bounce.END_BOUND_MS, Signal.TERM, 200)
    before = living_pid(runtime, "broker-1")
    paused = faults.pause("broker-1")
    terminated = faults.terminate("broker-1")
    terminated.heal()
    healed = runtime.view.latest["harness", "fault.healed"].body
    assert isinstance(healed, FaultHealed)
    assert "had not ended, and was killed" in healed.evidence
    assert living_pid(runtime, "broker-1") not in (before, -1)
    paused.heal()


def test_a_paused_process_is_stopped_until_it_heals(runtime: Runtime, faults: Faults) -> None:
    pid = living_pid(runtime, "broker-1")
    with faults.pause("broker-1") as paused:
        assert paused.receipt.true
        assert state_of(pid) == "T"
        assert is_deaf_to(runtime, "broker-2", "broker-1")
    assert state_of(pid) not in ("T", "Z", "")
    assert hears(runtime, "broker-2", "broker-1")


def test_a_pause_heals_though_its_process_was_killed(runtime: Runtime, faults: Faults) -> None:
    paused = faults.pause("broker-1")
    faults.bounce("broker-1", after_ms=0)
    healed = paused.heal()
    assert healed.true
    assert "has ended meanwhile" in healed.evidence


@pytest.mark.parametrize("disk", ["empty", "copy"])
def test_a_duplicate_runs_beside_its_node(runtime: Runtime, faults: Faults, disk: str) -> None:
    slot, duplicate = runtime.layout.slot("broker-1"), runtime.layout.slot("broker-1-duplicate")
    (runtime.place(slot).data_dir / "meta.properties").write_text("id=1")
    with faults.duplicate_id("broker-1", disk=disk) as doubled:
        assert doubled.receipt.true, doubled.receipt.evidence
        assert living_pid(runtime, "broker-1") != living_pid(runtime, "broker-1-duplicate") != -1
        assert hears(runtime, "broker-2", "broker-1-duplicate")
        copied = [path.name for path in runtime.place(duplicate).data_dir.iterdir()]
        assert copied == (["meta.properties"] if disk == "copy" else [])
        with pytest.raises(UsageError, match="the duplicate of broker-1 runs already"):
            faults.duplicate_id("broker-1")
    assert living_pid(runtime, "broker-1-duplicate") == -1
    assert living_pid(runtime, "broker-1") != -1


def test_an_isolated_node_and_its_running_duplicate_do_not_reach_each_other(
    runtime: Runtime, faults: Faults
) -> None:
    """A duplicate copied from an isolated master, which so went on to acknowledge."""
    with faults.duplicate_id("broker-1"):
        assert hears(runtime, "broker-1-duplicate", "broker-1")
        with faults.isolate("broker-1") as isolated:
            assert isolated.receipt.true, isolated.receipt.evidence
            assert is_deaf_to(runtime, "broker-1-duplicate", "broker-1")
            assert hears(runtime, "broker-2", "broker-1-duplicate")


def test_a_duplicate_is_refused_at_once_where_no_process_says_that_it_started(
    runtime: Runtime, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.view, "node_of", {"controller-1#1": ("controller", 101)})
    with pytest.raises(UsageError, match=r"node\.started, and no broker of this run"):
        faults.duplicate_id("broker-1")
    assert living_pid(runtime, "broker-1-duplicate") == -1


def test_the_duplicate_of_a_dead_node_doubles_nothing(runtime: Runtime, faults: Faults) -> None:
    faults.kill("broker-1")
    doubled = faults.duplicate_id("broker-1")
    assert not doubled.receipt.true
    doubled.heal()
    assert living_pid(runtime, "broker-1") != -1


# ---------------------------------------------------------------------------- by name, on record


def test_an_injection_is_an_event_and_an_entry_in_the_record(
    runtime: Runtime, faults: Faults, tmp_path: Path
) -> None:
    broker = KafkaNode(runtime.layout.slot("broker-1"))
    with faults.cut([broker], runtime.layout.slot("broker-2").name):
        pass
    events = runtime.events()
    injected = [e for e in events if isinstance(e.body, FaultInjected)][-1]
    healed = [e for e in events if isinstance(e.body, FaultHealed)][-1]
    assert isinstance(injected.body, FaultInjected)
    assert isinstance(healed.body, FaultHealed)
    assert injected.body.fault_id == healed.body.fault_id == "cut-1"
    assert injected.body.receipt
    assert injected.body.directions == ("broker-1 -> broker-2",)
    assert injected.body.pairs() == {("broker-1", "broker-2")}
    assert injected.body.began_at_ns < injected.at_ns < healed.body.began_at_ns < healed.at_ns
    (entry,) = schedules.read(tmp_path / "schedule.json").injections
    assert (entry.fault, entry.receipt) == ("cut", True)
    assert entry.arguments == {"sources": "broker-1", "targets": "broker-2"}
    assert entry.for_ms is not None


def test_a_record_replays_as_a_schedule(runtime: Runtime, faults: Faults, tmp_path: Path) -> None:
    planned = Schedule(
        injections=(
            Injection(
                at_ms=0,
                fault="cut",
                arguments={"sources": "@broker", "targets": "controller-1"},
                for_ms=100,
            ),
            Injection(at_ms=50, fault="kill", arguments={"node": "broker-2"}),
        )
    )
    faults.follow(planned)
    assert [a.healed for a in faults.injected] == [True, False]
    assert living_pid(runtime, "broker-2") == -1
    faults.heal_all()
    recorded = schedules.read(tmp_path / "schedule.json")
    again = Faults(runtime, PLUGINS, tmp_path / "again.json", selecting(runtime))
    again.follow(recorded)
    again.heal_all()
    replayed = schedules.read(tmp_path / "again.json")
    assert [(s.fault, s.arguments) for s in replayed.injections] == [
        ("cut", {"sources": ["broker-1", "broker-2"], "targets": "controller-1"}),
        ("kill", {"node": "broker-2"}),
    ]


def test_a_fault_that_does_not_exist_is_refused_with_the_nearest_one(faults: Faults) -> None:
    with pytest.raises(UsageError, match="no fault named 'pasue'; did you mean 'pause'"):
        faults.pasue("broker-1")
    with pytest.raises(UsageError, match="no slot named 'broker-9'; did you mean 'broker-"):
        faults.kill("broker-9")
    with pytest.raises(UsageError, match="the fault 'kill' was given wrong arguments"):
        faults.kill("broker-1", after_ms=3)
    assert {"cut", "kill", "follow"} <= set(dir(faults))
