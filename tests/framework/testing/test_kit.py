"""The conformance kit: it accepts valid plugins, and names each fault of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from tests.kafka.test_sentences import made

from fencepost import (
    Authority,
    Cause,
    Change,
    ClientFailed,
    ClientSpec,
    ClientStarted,
    Codec,
    Event,
    Evidence,
    Exercised,
    Fault,
    Findings,
    Injected,
    Key,
    Layout,
    NodeStopped,
    ParsedEvent,
    ProcessExited,
    Receipt,
    Rule,
    RunEnd,
    Runtime,
    Shape,
    Signal,
    Slot,
    Undecided,
    Violated,
    Workload,
    hookimpl,
    on,
)
from fencepost.events import KINDS as FRAMEWORK_KINDS
from fencepost.events import Stalled
from fencepost.plugins.manager import load
from fencepost.runs.run import Run
from fencepost.testing import HistoryBuilder, kit
from fencepost_clusters.etcd.events import LOGGED
from fencepost_clusters.etcd.system import Etcd
from fencepost_kafka import KINDS as KAFKA_KINDS
from fencepost_kafka import ProduceCompleted, ProduceInvoked
from fencepost_plugins.bounce import bounce, kill
from fencepost_plugins.partition import cut, isolate, isolate_role
from fencepost_plugins.pause import pause

ETCD_SAMPLES = Path(__file__).parents[2] / "clusters" / "etcd" / "samples"


@pytest.mark.parametrize("kind", [*KAFKA_KINDS], ids=lambda kind: kind.__name__)
def test_every_kind_of_kafkas_conforms(kind: type[Struct]) -> None:
    sample = made(kind)
    fields = {f.name for f in msgspec.structs.fields(kind)}
    if "outcome" in fields and kind.__name__ != "ProbeCompleted":
        sample = msgspec.structs.replace(sample, outcome="ok")
    kit.check_event_kind(kind, sample)


class Melting(Struct, tag="plugin.melting"):
    degrees: int


class Nested(Struct, frozen=True, tag="plugin.nested"):
    inside: tuple[tuple[int, ...], ...]


def test_a_kind_that_does_not_conform_is_named() -> None:
    with pytest.raises(AssertionError, match=r"plugin\.melting is not frozen"):
        kit.check_event_kind(Melting, Melting(3))
    with pytest.raises(AssertionError, match=r"the field inside of plugin\.nested is not flat"):
        kit.check_event_kind(Nested, Nested(((1,),)))
    assert len(FRAMEWORK_KINDS) > 10


class Leading(Struct, frozen=True, tag="plugin.leading"):
    epoch: int
    as_text: bool

    def authority(self) -> tuple[Authority, ...]:
        change: Any = "gained" if self.as_text else Change.GAINED
        epoch: Any = self.epoch if self.as_text else str(self.epoch)
        return (Authority("master", change, epoch),)


def test_a_change_of_authority_whose_fields_have_wrong_types_is_named() -> None:
    with pytest.raises(AssertionError, match=r"plugin\.leading does not fit: .*\$\.epoch"):
        kit.check_event_kind(Leading, Leading(1, as_text=False))
    with pytest.raises(AssertionError, match=r"change of the Authority .* is no Change: 'gained'"):
        kit.check_event_kind(Leading, Leading(1, as_text=True))


class Calm(Rule[None]):
    """A stall of 10 ms is a violation; one that is the last event of its process is open."""

    clause = "X-1"

    def __init__(self, limit_ns: int = 10_000_000) -> None:
        super().__init__()
        self.limit_ns = limit_ns

    @staticmethod
    def keys(event: Event) -> Iterable[Key]:
        return ((event.process,),)

    @on(Stalled)
    def _stalled(self, state: None, event: Event, body: Stalled) -> Findings:
        if body.stalled_ns > self.limit_ns:
            return (Violated(event.ref, Evidence.SELF, "too long"),)
        return (Exercised(event.ref, Evidence.SELF),)

    def end(self, state: None, end: RunEnd) -> Findings:
        return () if end.complete else (Undecided("cut short", Cause("p#1", 0)),)


def histories() -> list[Any]:
    made_histories = []
    for stalled_ms, complete in ((11, True), (9, True), (9, False)):
        builder = HistoryBuilder()
        builder.add("p#1", Stalled(stalled_ns=stalled_ms * 1_000_000))
        made_histories.append((builder.events(), builder.end(complete)))
    return made_histories


def test_a_rule_meets_its_three_histories() -> None:
    kit.check_rule(Calm(), *histories())


class Hasty(Calm):
    """The same, and it never waits."""

    def end(self, state: None, end: RunEnd) -> Findings:
        return ()


def test_only_a_rule_that_waits_for_nothing_needs_no_undecided_history() -> None:
    violation, near_miss, _ = histories()
    kit.check_rule(Hasty(), violation, near_miss)
    with pytest.raises(
        AssertionError, match="Calm waits for an event after 1 of 1: it needs an un"
    ):
        kit.check_rule(Calm(), violation, near_miss)


def test_a_rule_that_fails_one_of_them_is_named() -> None:
    with pytest.raises(AssertionError, match="Calm misses its violation"):
        kit.check_rule(Calm(limit_ns=20_000_000), *histories())
    with pytest.raises(AssertionError, match="Calm reports its near miss"):
        kit.check_rule(Calm(limit_ns=1), *histories())
    violation, near_miss, _ = histories()
    with pytest.raises(AssertionError, match="Calm does not say that it is open"):
        kit.check_rule(Calm(), violation, near_miss, near_miss)


def test_faults_are_made_again_from_their_arguments() -> None:
    kit.check_fault(kill, node="broker-1")
    kit.check_fault(cut, sources="broker-1", targets=["broker-2", "broker-3"])
    kit.check_fault(isolate_role, role="broker")


# ------------------------------------------------------------------------------------- log parsers


@dataclass
class Lamps:
    """A system of which only the log is known: `12.5 on` at 12.5 s after 2024 began."""

    whole_seconds: bool = False
    wall: bool = True
    shared: list[str] = field(default_factory=list)
    """What parsers that share their state remember; empty for those that do not."""
    says: str = "on"

    def log_parser(self, slot: Slot, shape: Shape) -> Lamps:
        return self

    def parse(self, line: str) -> list[ParsedEvent]:
        stamp, _, word = line.partition(" ")
        if self.says in {"all", word}:
            seconds = 0.5 if self.says == "all" else float(stamp)
            since_ns = 1_704_067_200_000_000_000 if self.wall else 0
            at_ns = int(seconds) * 10**9 if self.whole_seconds else int(seconds * 10**9)
            times = len(self.shared) + 1
            if self.shared:
                self.shared.append(line)
            return [ParsedEvent(since_ns + at_ns, Stalled(stalled_ns=times), wall=True)]
        return []


HALL = Slot("hall-1", "lamp", 1, 1)
LINES = ["12.5 on", "13.25 off", "14.75 on"]


def test_a_log_parser_makes_the_events_of_recorded_lines() -> None:
    kit.check_log_parser(Lamps(), HALL, LINES, [Stalled(stalled_ns=1), Stalled(stalled_ns=1)])


@pytest.mark.parametrize(
    ("lamps", "expected", "why"),
    [
        (
            Lamps(),
            [Stalled(stalled_ns=1), Stalled(stalled_ns=2)],
            r"event 1 of the log is .*Stalled.*1.*not .*2",
        ),
        (Lamps(), [Stalled(stalled_ns=1)], "makes 2 events, not 1"),
        (Lamps(whole_seconds=True), [Stalled(stalled_ns=1)] * 2, "the stamps are whole seconds"),
        (Lamps(wall=False), [Stalled(stalled_ns=1)] * 2, "no time in nanoseconds since 1970"),
        (
            Lamps(shared=["begun"]),
            [Stalled(stalled_ns=2), Stalled(stalled_ns=3)],
            "they share state",
        ),
        (
            Lamps(says="all"),
            [Stalled(stalled_ns=1)] * 3,
            "lines that the system does not print make",
        ),
        (Lamps(says="off"), [Melting(3)], "not Melting"),
    ],
)
def test_a_log_parser_that_does_not_conform_is_named(
    lamps: Lamps, expected: list[Struct], why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.check_log_parser(lamps, HALL, LINES, expected)


def test_a_log_parser_that_raises_is_named() -> None:
    with pytest.raises(AssertionError, match="the parser raises on the line 'noon on'"):
        kit.check_log_parser(Lamps(), HALL, ["noon on"], [])


def test_the_log_parser_of_etcd_conforms() -> None:
    lines = (ETCD_SAMPLES / "3.6.16-bounced-then-signalled.log").read_text().splitlines()
    recorded = (ETCD_SAMPLES / "3.6.16-bounced-then-signalled.events").read_text().splitlines()
    bodies = [msgspec.json.decode(line.split(" ", 1)[1]) for line in recorded]
    kinds = Codec(LOGGED).kinds
    expected = [msgspec.convert(body, kinds[body["type"]]) for body in bodies]
    etcd = Etcd()
    member = etcd.layout(Shape()).slot("etcd-2")
    kit.check_log_parser(etcd, member, lines, expected, kinds=LOGGED)
    with pytest.raises(AssertionError, match=r"makes etcd\.\w+, a kind that was not given"):
        kit.check_log_parser(etcd, member, lines, expected)


# --------------------------------------------------------------------------------------- workloads


def worked(
    *bodies: Struct, exit_code: int = 0, ended: bool = True, stopped: bool = True
) -> list[Event]:
    """The events of a worker, from its start to its end."""
    builder = HistoryBuilder()
    builder.add("w#1", ClientStarted(kind="lamp", library="switch"))
    for body in bodies:
        builder.add("w#1", body)
    if stopped:
        builder.add("w#1", NodeStopped(reason="done"))
    if ended:
        builder.add(
            "harness", ProcessExited(ended="w#1", exit_code=exit_code, signal=0, expected=True)
        )
    return [*builder.events()]


def invoked(operation: str) -> Struct:
    return ProduceInvoked(operation=operation, topic="t", partition=0, acks=1)


def completed(operation: str) -> Struct:
    return ProduceCompleted(
        operation=operation, topic="t", partition=0, acks=1, outcome="ok", offset=0, error=""
    )


def test_workers_that_end_in_good_order_conform() -> None:
    kit.check_workers(["w#1"], worked(invoked("a"), completed("a"), invoked("b")))


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (worked(ended=False), "w#1 does not end when it is asked to"),
        (worked(exit_code=3), "w#1 ends with exit code 3 and signal 0"),
        (worked(ClientFailed(error="no lamp", fatal=True)), "w#1 failed: no lamp"),
        (worked(stopped=False), r"the last event of w#1 is client\.started"),
        (worked(invoked("a"), invoked("a")), "two operations are named a"),
        (worked(completed("a"), completed("a")), "the operation a ends twice"),
        (worked(completed("a"), invoked("a")), "the operation a ends before it begins"),
    ],
)
def test_workers_that_do_not_are_named(history: list[Event], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.check_workers(["w#1"], history)


def test_a_workload_that_starts_no_worker_is_named(tmp_path: Path) -> None:
    mute = ModuleType("mute")
    mute.fencepost_workloads = hookimpl(  # type: ignore[attr-defined]
        lambda: {"mute": Workload(("-m", "mute"))}, specname="fencepost_workloads"
    )
    plugins = load({"mute": mute})
    with kit.started(
        "reference/quorum", tmp_path, runtime="simulated", workload="mute", plugins=plugins
    ) as run:
        with pytest.raises(AssertionError, match="the workload mute starts no worker by `load`"):
            kit.check_workload(run)
        with pytest.raises(AssertionError, match="clients/idle#1 completes no operation"):
            kit.check_workload(run, ClientSpec("idle", "mute", {"kind": "admin"}))


# ------------------------------------------------------------------------------- faults and systems


@dataclass(frozen=True)
class Clumsy:
    """Kills a node; its first or its second healing fails. It may have no receipt."""

    node: str = "broker-3"
    hits: bool = True
    heals: tuple[bool, bool] = (True, True)
    starts: bool = True
    name: str = "clumsy"

    def arguments(self) -> dict[str, object]:
        return {"node": self.node}

    def inject(self, runtime: Runtime) -> Injected:
        slot = runtime.layout.slot(self.node)
        process = runtime.living(slot)
        assert process is not None
        runtime.signal(process, Signal.KILL)
        left = list(self.heals)

        def heal() -> Receipt:
            if self.starts and runtime.living(slot) is None:
                runtime.start(slot)
            return Receipt(left.pop(0), "healed")

        return Injected((self.node,), Receipt(self.hits, "it fell"), heal)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A cluster that checks share; each leaves it recovered."""
    folder = tmp_path_factory.mktemp("shared")
    with kit.started("reference/quorum", folder, runtime="simulated") as run:
        yield run


def test_a_node_that_can_be_duplicated_says_that_it_has_started(
    simulated: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.check_starts(simulated)
    view = simulated.runtime.view
    monkeypatch.setattr(view, "node_of", {})
    with pytest.raises(AssertionError, match=r"broker-1#1 has recorded no fencepost\.Node"):
        kit.check_starts(simulated)
    monkeypatch.setattr(view, "node_of", {"broker-1#1": ("broker", 9)})
    with pytest.raises(AssertionError, match="broker-1#1 says that it is node 9, not 1"):
        kit.check_starts(simulated)


def test_a_fault_that_is_healed_twice_conforms(simulated: Run) -> None:
    kit.check_injection(simulated, Clumsy())
    kit.check_injection(simulated, bounce(node="broker-2", after_ms=50))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Clumsy(hits=False), "clumsy has no receipt: it fell"),
        (Clumsy(heals=(False, True)), "clumsy did not heal"),
        (Clumsy(heals=(True, False)), "clumsy did not heal"),
        (Clumsy(starts=False), "clumsy healed, and no process runs in broker-3"),
    ],
)
def test_a_fault_that_does_not_conform_is_named(simulated: Run, fault: Clumsy, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        kit.check_injection(simulated, fault)
    simulated.faults.heal_all()
    broker = simulated.runtime.layout.slot("broker-3")
    if simulated.runtime.living(broker) is None:
        simulated.runtime.start(broker)
    assert simulated.base.await_recovery().recovered


@pytest.mark.parametrize(
    "fault",
    [kill("broker-1"), pause("broker-2"), isolate("broker-1"), bounce("broker-3", after_ms=50)],
    ids=lambda fault: fault.name,
)
def test_the_faults_of_any_system_heal_though_their_targets_died(
    simulated: Run, fault: Fault
) -> None:
    kit.check_injection(simulated, fault, target_dies=True)


def test_a_node_without_a_link_is_named() -> None:
    layout = Layout((HALL,), ())
    run: Any = SimpleNamespace(runtime=SimpleNamespace(layout=layout))
    with pytest.raises(AssertionError, match="no link of the layout leads to or from hall-1"):
        kit.check_links(run)


@pytest.mark.parametrize("system", ["reference/quorum", "reference/legacy"])
def test_the_reference_cluster_conforms_in_the_simulator(system: str, tmp_path: Path) -> None:
    result = kit.check_system(system, tmp_path, runtime="simulated")
    assert result.injected == 9
