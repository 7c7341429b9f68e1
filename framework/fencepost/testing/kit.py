"""The conformance kit: what a plugin's author points at a system, fault, rule or event kind.

    from fencepost.testing import kit

    def test_my_kind():
        kit.check_event_kind(LampSwitched, LampSwitched("hall", True))

    def test_my_system(tmp_path):
        kit.check_system("acme/lamps", tmp_path)

Each check raises AssertionError, in a sentence that names what does not fit. `check_system` starts
a cluster; the others are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fencepost.events import Codec, Event, kind_name
from fencepost.events.traits import (
    Authority,
    AuthorityChange,
    Concerning,
    Operation,
    OperationEvent,
    Worded,
)
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.rules import Exercised, Finding, Rule, Undecided, Violated
from fencepost.model.cluster import Node
from fencepost.model.errors import UsageError
from fencepost.model.faults import Fault
from fencepost.model.shape import Shape
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunResult, RunSpec

_SCALARS = (str, int, float, bool)


def check_event_kind(kind: type[Struct], sample: Struct) -> None:
    """A kind has a tag `plugin.name`, is frozen and flat, and one of its events is the same after a
    line was written and read; what it says of itself by the traits is of the right types."""
    name = kind_name(kind)
    assert kind.__struct_config__.frozen, f"the event kind {name} is not frozen"
    for field in msgspec.structs.fields(kind):
        value = getattr(sample, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        assert all(isinstance(part, _SCALARS) for part in parts), (
            f"the field {field.name} of {name} is not flat: text, a number, a truth value, or a "
            "tuple of one of them"
        )
    codec = Codec((kind,))
    event = Event("run", "node-1#1", 0, 1, sample)
    assert codec.decode(codec.encode(event)) == event, f"an event {name} is another one when read"
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
    """Everything that a rule finds in a history, key by key, its end included."""
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
    """A rule meets its three histories: it finds the violation, exercises and does not report the
    near miss, and decides nothing where the evidence stops."""
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


def check_system(
    name: str,
    out: Path,
    *,
    runtime: str = "process",
    shape: Shape | None = None,
    plugins: Plugins | None = None,
) -> RunResult:
    """A system starts, becomes ready, is cut off, killed and doubled, each with a receipt, recovers
    every time, and its history is whole. Returns what its run came to.

    Raises UsageError for an unknown system or runtime, EnvironmentFailed when it does not start.
    """
    loaded = plugins or load()
    spec = RunSpec(loaded.system(name), shape or Shape(), runtime, seed=1)
    with Run.start(spec, loaded, RunFolder.create(out / "kit")) as run:
        run.clients.load()
        for fault, arguments in _faults(run.base.nodes, loaded):
            with run.faults.inject_named(fault, arguments) as active:
                assert active.receipt.true, f"{fault} has no receipt: {active.receipt.evidence}"
            healed = active.heal()
            assert healed.true, f"{fault} did not heal: {healed.evidence}"
            assert active.heal() == healed, f"{fault} heals differently when it is healed twice"
            run.base.eventually(run.base.recovered)
        result = run.finish()
    assert result.trouble is None, str(result.trouble)
    assert result.end.complete, f"the history has gaps: {'; '.join(result.end.damage)}"
    assert result.recovered is not None
    assert result.recovered.recovered, "; ".join(result.recovered.missing)
    assert not result.missed, f"without a receipt: {', '.join(result.missed)}"
    return result


def _faults(nodes: Sequence[Node], plugins: Plugins) -> Sequence[tuple[str, Mapping[str, object]]]:
    """One fault of each kind that fits any system, each aimed at another node in turn."""
    if len(nodes) < 2:
        raise UsageError("the conformance kit needs a cluster of at least two nodes")
    names = [node.name for node in nodes]
    wanted: list[tuple[str, Mapping[str, object]]] = [
        ("isolate", {"node": names[0]}),
        ("kill", {"node": names[-1]}),
        ("pause", {"node": names[0]}),
        ("terminate", {"node": names[-1]}),
    ]
    return [(fault, arguments) for fault, arguments in wanted if fault in plugins.faults]
