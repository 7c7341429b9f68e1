"""The conformance kit: checks of a plugin's system, faults, workloads, rules, log parsers and event
kinds.

    from fencepost.testing import kit

    def test_my_kind():
        kit.check_event_kind(LampSwitched, LampSwitched(room="hall", on=True))

    def test_my_system(tmp_path):
        kit.check_system("acme/lamps", tmp_path)

    def test_my_workload(tmp_path):
        with kit.started("acme/lamps", tmp_path, workload="lamp_clients") as run:
            kit.check_workload(run)

Each check raises AssertionError with a sentence that names the fault. A check that takes a run
needs a cluster, which `started` starts. Several checks can share one. The other checks are pure;
`check_system` starts a cluster and makes all checks of a system on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import Struct

from fencepost.events import (
    ClientFailed,
    Codec,
    Event,
    NodeStopped,
    ProcessExited,
    kind_name,
    nested_fields,
)
from fencepost.events.traits import (
    Authority,
    AuthorityChange,
    Concerning,
    Operation,
    OperationEvent,
    OperationOutcome,
    Worded,
)
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.rules import Exercised, Finding, Rule, Undecided, Violated
from fencepost.model.clock import MS, SECOND
from fencepost.model.faults.fault import Fault, Injected, Passing
from fencepost.model.runtime import (
    HEALTHY,
    ClientSpec,
    Condition,
    Receipt,
    Runtime,
    Signal,
    let_pass_until,
)
from fencepost.model.system.capabilities import LogParser, ParsedEvent, ParsesLogs, Probed
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Link, Slot
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunResult, RunSpec

__all__ = [
    "check_cuts",
    "check_deaths",
    "check_event_kind",
    "check_fault",
    "check_history",
    "check_injection",
    "check_links",
    "check_log_parser",
    "check_rule",
    "check_system",
    "check_workers",
    "check_workload",
    "findings_of",
    "started",
]

_NO_LOG = ("", "{", "\x00\ufffd", "a line that no version of this system prints")
"""Lines that a parser must accept: a crash, a library or a container may print anything."""
_YEAR_2000_NS = 946_684_800 * SECOND


def check_event_kind(kind: type[Struct], sample: Struct) -> None:
    """A kind has a tag `plugin.name`, is frozen and flat, and an event of it survives being written
    and read. The results of its traits have the right types."""
    name = kind_name(kind)
    assert kind.__struct_config__.frozen, f"the event kind {name} is not frozen"
    nested = nested_fields(kind)
    assert not nested, (
        f"the field {nested[0]} of {name} is not flat: text, a number, a truth value, or a "
        "tuple of one of them"
    )
    codec = Codec((kind,))
    event = Event("run", "node-1#1", 0, 1, sample)
    assert codec.decode(codec.encode(event)) == event, f"an event {name} differs when read back"
    if isinstance(sample, Worded):
        words = sample.sentence()
        assert words, f"{name} has an empty sentence"
        assert "\n" not in words, f"the sentence of {name} has more than one line"
    if isinstance(sample, AuthorityChange):
        assert all(isinstance(one, Authority) for one in sample.authority()), name
    if isinstance(sample, OperationEvent):
        assert all(isinstance(one, Operation) for one in sample.client_operations()), name
    if isinstance(sample, Concerning):
        assert all(isinstance(scope, str) for scope in sample.concerns()), name


def findings_of(rule: Rule[Any], history: Sequence[Event], end: RunEnd) -> Sequence[Finding]:
    """All findings of a rule in a history, key by key, those at its end included."""
    states: dict[Any, Any] = {}
    found: list[Finding] = []
    for event in history:
        if type(event.body) in rule.kinds:
            for key in rule.keys(event):
                state = states.get(key, rule.start(key))
                states[key], several = rule.step(state, event)
                found += several
    for state in states.values():
        found += rule.end(state, end)
    return found


def check_rule(
    rule: Rule[Any],
    violation: tuple[Sequence[Event], RunEnd],
    near_miss: tuple[Sequence[Event], RunEnd],
    undecided: tuple[Sequence[Event], RunEnd],
) -> None:
    """A rule passes its three histories: it reports the violation; it counts the near miss as
    exercised and does not report it; it is undecided where the evidence ends."""
    name = type(rule).__name__
    found = findings_of(rule, *violation)
    assert any(isinstance(one, Violated) for one in found), f"{name} misses its violation"
    found = findings_of(rule, *near_miss)
    assert not any(isinstance(one, Violated) for one in found), f"{name} reports its near miss"
    assert any(isinstance(one, Exercised) for one in found), f"{name} is not exercised by it"
    found = findings_of(rule, *undecided)
    assert not any(isinstance(one, Violated) for one in found), (
        f"{name} reports what its history does not decide"
    )
    assert any(isinstance(one, Undecided) for one in found), f"{name} does not say that it is open"


def check_fault(make: Callable[..., Fault], **arguments: object) -> None:
    """A fault is made again from its own arguments, as replay makes it from a recorded schedule."""
    fault = make(**arguments)
    plain = msgspec.json.decode(msgspec.json.encode(dict(fault.arguments())))
    again = make(**plain)
    assert again == fault, f"the fault {fault.name} is another one when made of {plain}"
    assert again.name == fault.name


def check_log_parser(
    parses: ParsesLogs,
    slot: Slot,
    lines: Sequence[str],
    expected: Sequence[Struct],
    *,
    shape: Shape | None = None,
    kinds: tuple[type[Struct], ...] = (),
) -> None:
    """The parser of a slot makes exactly the expected events of recorded lines, in this order.

    A second parser makes the same ones, so parsers share no state. The events are of `kinds`, the
    plugin's own, or of those that every run has. Stamps are nanoseconds since 1970 if `wall` is
    set, and finer than a second. Lines that the system does not print make no event and no error.
    """

    def parser() -> LogParser:
        made = parses.log_parser(slot, shape or Shape())
        assert made is not None, f"{slot.name} has no log parser: it writes its own events"
        return made

    made, again = (_parsed(parser(), lines) for _ in range(2))
    assert made == again, "two parsers make different events of the same lines: they share state"
    bodies = [one.body for one in made]
    for number, (body, wanted) in enumerate(zip(bodies, expected, strict=False)):
        assert body == wanted, f"event {number} of the log is {body!r}, not {wanted!r}"
    assert len(bodies) == len(expected), f"the log makes {len(bodies)} events, not {len(expected)}"
    codec = Codec(kinds)
    for one in made:
        event = Event("run", "node-1#1", 0, one.at_ns, one.body)
        assert type(one.body) in codec.kinds.values(), (
            f"the parser makes {kind_name(type(one.body))}, a kind that was not given in `kinds`"
        )
        assert codec.decode(codec.encode(event)) == event, f"{one.body!r} differs when read back"
        assert not one.wall or one.at_ns > _YEAR_2000_NS, (
            f"the stamp {one.at_ns} of {one.body!r} is no time in nanoseconds since 1970"
        )
    stamps = {one.at_ns for one in made}
    assert len(stamps) < 2 or any(stamp % SECOND for stamp in stamps), (
        "the stamps are whole seconds: events of several processes cannot be ordered by them"
    )
    stray = _parsed(parser(), _NO_LOG)
    assert not stray, f"lines that the system does not print make {stray[0].body!r}"


def _parsed(parser: LogParser, lines: Sequence[str]) -> Sequence[ParsedEvent]:
    made: list[ParsedEvent] = []
    for line in lines:
        try:
            made += parser.parse(line)
        except Exception as error:
            raise AssertionError(f"the parser raises on the line {line!r}: {error!r}") from error
    return made


# ---------------------------------------------------------------------- checks that need a cluster


@contextmanager
def started(
    system: str,
    out: Path,
    *,
    runtime: str = "process",
    shape: Shape | None = None,
    workload: str = "",
    plugins: Plugins | None = None,
) -> Iterator[Run]:
    """A ready cluster of that system, for the checks that take a run; it ends with the block. Its
    files are below `out`. Without a `workload` it is the system's own.

    Raises UsageError for an unknown system, runtime or workload, EnvironmentFailed when the cluster
    does not become ready.
    """
    loaded = plugins or load()
    spec = RunSpec(loaded.system(system), shape or Shape(), runtime, seed=1, workload=workload)
    with Run.start(spec, loaded, RunFolder.create(out / "kit")) as run:
        yield run


def check_links(run: Run) -> None:
    """Every node is at an end of some link, and a probe is answered through each link between live
    processes: the node listens where the layout says."""
    runtime = run.runtime
    layout = runtime.layout
    for slot in layout.nodes():
        assert any(slot.name in (link.source, link.target) for link in layout.links), (
            f"no link of the layout leads to or from {slot.name}: no fault could cut it off"
        )
    view = runtime.view
    occupied = {view.slot_of[process] for process in view.alive}
    for link in layout.links:
        if {link.source, link.target} <= occupied:
            receipt = runtime.set_links([link], HEALTHY)
            assert receipt.true, (
                f"no probe is answered through {_named(link)}: {receipt.evidence}; {_remedy(run)}"
            )


def check_cuts(run: Run) -> None:
    """A node of each role can be cut off from all others in both directions, and the first node in
    either direction alone. Each cut has a receipt. That needs traffic of the node on its links: a
    node that dials others directly, past its links, gets no receipt."""
    names = [node.name for node in run.base.nodes]
    assert len(names) > 1, "the conformance kit needs a cluster of at least two nodes"
    first, *others = names
    for victim in _one_a_role(run, 0):
        _inject(run, "isolate", node=victim.name)
    _inject(run, "cut", sources=first, targets=others)
    _inject(run, "cut", sources=others, targets=first)


def check_deaths(run: Run) -> None:
    """A node of each role is killed, and one is asked to end; each comes back as a new process, and
    the cluster recovers."""
    victims = _one_a_role(run, -1)
    for fault, slot in [*(("kill", slot) for slot in victims), ("terminate", victims[-1])]:
        before = run.runtime.living(slot)
        assert before is not None, f"no process runs in {slot.name}"
        _inject(run, fault, node=slot.name)
        after = run.runtime.living(slot)
        assert after is not None, f"{slot.name} did not come back after {fault}"
        assert after.name != before.name, f"{before.name} outlived {fault}"


def check_injection(run: Run, fault: Fault, *, target_dies: bool = False) -> None:
    """A fault has a receipt, at once or in time, and heals with a receipt. Healing it again does no
    harm, and the cluster recovers.

    With `target_dies` the processes among its targets are killed before it heals: healing then
    raises nothing, and the cluster recovers once all nodes were started again.
    """
    active = run.faults.inject(_HealedTwice(fault, target_dies))
    receipt = active.await_receipt()
    assert receipt.true, f"{fault.name} has no receipt: {receipt.evidence}"
    healed = active.heal()
    assert target_dies or healed.true, f"{fault.name} did not heal: {healed.evidence}"
    for slot in run.runtime.layout.nodes():
        if run.runtime.living(slot) is None:
            assert target_dies, f"{fault.name} healed, and no process runs in {slot.name}"
            run.runtime.start(slot)
    recovery = run.base.await_recovery()
    assert recovery.recovered, (
        f"the cluster does not recover from {fault.name}: {'; '.join(recovery.missing)}"
    )


def check_workload(run: Run, *specs: ClientSpec) -> None:
    """The workers of the run's workload start, complete operations, and end when they are asked to.

    Without `specs` they are those that the workload's own `load` starts. Each records
    `client.started`, work of its own, and `node.stopped`, and exits with code 0. If its events
    record operations, at least one of them is done. Each begins once and ends at most once.
    """
    for spec in specs:
        run.workers.start(spec)
    if not specs:
        run.clients.load()
    workers = [session.process for session in run.workers.running]
    assert workers, (
        f"the workload {run.spec.clients} starts no worker by `load`: give the check a ClientSpec"
    )
    for worker in workers:
        limit_ms = run.base.recovery_bound_ms
        assert run.base.comes_to(_records(worker, "client.started"), limit_ms), (
            f"{worker} does not record client.started: see `run_worker`"
        )
        assert run.base.comes_to(_works(worker), limit_ms), f"{worker} completes no operation"
    run.workers.drain()
    check_workers(workers, run.runtime.events())


def check_workers(workers: Sequence[str], history: Sequence[Event]) -> None:
    """These workers, which were asked to end, ended in order by the events of a history: no
    failure, exit code 0, `node.stopped` last, and operations that begin and end once."""
    for worker in workers:
        _check_end(worker, history)
    _check_operations([event for event in history if event.process in workers])


def check_history(run: Run) -> RunResult:
    """Ends a run and returns its result: it reached its planned end, its history has no gap, the
    cluster has recovered, and every fault has a receipt."""
    result = run.finish()
    assert result.trouble is None, str(result.trouble)
    assert result.end.complete, f"the history has gaps: {result.end.lacks}"
    assert result.recovered is not None
    assert result.recovered.recovered, "; ".join(result.recovered.missing)
    assert not result.missed, f"without a receipt: {'; '.join(result.why_missed())}"
    assert not result.unread, f"not read to the end: {', '.join(result.unread)}"
    return result


def check_system(
    name: str,
    out: Path,
    *,
    runtime: str = "process",
    shape: Shape | None = None,
    plugins: Plugins | None = None,
) -> RunResult:
    """A system starts and becomes ready; its workload runs and ends; then, under load, its links
    answer, cuts are measured, nodes are paused, slowed, die and come back; and its history is
    whole. Returns the result of its run.

    Raises UsageError for an unknown system or runtime, EnvironmentFailed when it does not start.
    """
    with started(name, out, runtime=runtime, shape=shape, plugins=plugins) as run:
        check_workload(run)
        run.clients.load()
        check_links(run)
        check_cuts(run)
        nodes = [node.name for node in run.base.nodes]
        _inject(run, "pause", node=nodes[0])
        # All links between nodes, since two nodes that follow a third one may have no connection.
        _inject(run, "slow_link", sources=nodes, targets=nodes, latency_ms=20)
        check_deaths(run)
        return check_history(run)


@final
@dataclass(frozen=True, slots=True)
class _HealedTwice:
    """A fault whose healing is applied twice, after its targets have died if that is asked for."""

    fault: Fault
    target_dies: bool

    @property
    def name(self) -> str:
        return self.fault.name

    def arguments(self) -> Mapping[str, object]:
        return self.fault.arguments()

    def inject(self, runtime: Runtime) -> Injected:
        injected = self.fault.inject(runtime)
        if isinstance(self.fault, Passing) and self.fault.lasts_ms is not None:
            let_pass_until(runtime, runtime.now_ns() + self.fault.lasts_ms * MS)

        def heal() -> Receipt:
            if self.target_dies:
                _kill(runtime, injected.targets)
            first, second = injected.heal(), injected.heal()
            return Receipt(
                first.true and second.true, f"{first.evidence}; again: {second.evidence}"
            )

        return replace(injected, heal=heal)


def _kill(runtime: Runtime, targets: Sequence[str]) -> None:
    for slot in runtime.layout.nodes():
        process = runtime.living(slot)
        if process is not None and {process.name, slot.name} & {*targets}:
            runtime.signal(process, Signal.KILL)


def _one_a_role(run: Run, place: int) -> Sequence[Slot]:
    """For each role, its slot at that index; a slot with two roles is named once."""
    layout = run.runtime.layout
    return list(dict.fromkeys(layout.of(role)[place] for role in layout.roles))


def _inject(run: Run, fault: str, **arguments: object) -> None:
    check_injection(run, run.plugins.fault(fault, **arguments))


def _named(link: Link) -> str:
    return f"the link {link}"


def _remedy(run: Run) -> str:
    system = run.spec.system
    if isinstance(system, Probed):
        return f"the probe of {system.name} does not fit this port, or nothing listens there"
    return f"{system.name} has no `probe` (fencepost.Probed), so a line of HTTP was sent"


def _records(process: str, kind: str) -> Condition:
    return Condition(f"{kind} of {process}", lambda view: (process, kind) in view.latest)


def _works(process: str) -> Condition:
    """The process has completed an operation or, if its kinds record no operations, any work."""

    def holds(view: View) -> bool:
        bodies = [e.body for (p, kind), e in view.latest.items() if p == process]
        operations = [body for body in bodies if isinstance(body, OperationEvent)]
        done = any(
            one.outcome is OperationOutcome.OK
            for body in operations
            for one in body.client_operations()
        )
        return done or (not operations and len(bodies) > 1)

    return Condition(f"{process} to complete an operation", holds)


def _check_end(worker: str, history: Sequence[Event]) -> None:
    ends = [
        event.body
        for event in history
        if isinstance(event.body, ProcessExited) and event.body.ended == worker
    ]
    assert ends, f"{worker} does not end when it is asked to"
    own = [event.body for event in history if event.process == worker]
    failures = [body.error for body in own if isinstance(body, ClientFailed)]
    assert not failures, f"{worker} failed: {'; '.join(failures)}"
    assert (ends[0].exit_code, ends[0].signal) == (0, 0), (
        f"{worker} ends with exit code {ends[0].exit_code} and signal {ends[0].signal}, not 0"
    )
    assert own, f"{worker} has recorded nothing"
    assert isinstance(own[-1], NodeStopped), (
        f"the last event of {worker} is {kind_name(type(own[-1]))}, not node.stopped"
    )


def _check_operations(history: Sequence[Event]) -> None:
    """No name begins twice or ends twice, or ends before it begins. An operation without a name
    cannot be distinguished from others."""
    begun: set[str] = set()
    ended: set[str] = set()
    for event in history:
        body = event.body
        for one in body.client_operations() if isinstance(body, OperationEvent) else ():
            if not one.name:
                continue
            if one.outcome is None:
                assert one.name not in begun, f"two operations are named {one.name}"
                assert one.name not in ended, f"the operation {one.name} ends before it begins"
                begun.add(one.name)
            else:
                assert one.name not in ended, f"the operation {one.name} ends twice"
                ended.add(one.name)
