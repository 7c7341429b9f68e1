"""The conformance kit: it accepts what fits, and names what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from tests.kafka.test_sentences import made

from fencepost import Cause, Evidence, Exercised, Undecided, Violated
from fencepost.events import KINDS as FRAMEWORK_KINDS
from fencepost.events import Stalled
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, kit
from fencepost_kafka import KINDS as KAFKA_KINDS
from fencepost_plugins.bounce import kill
from fencepost_plugins.partition import cut, isolate_role


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


class Calm:
    """A stall of 10 ms is a violation; one that is the last event of its process is open."""

    clause = "X-1"
    kinds = frozenset({Stalled})

    def __init__(self, limit_ns: int = 10_000_000) -> None:
        self.limit_ns = limit_ns

    def keys(self, event: Any) -> Any:
        return [(event.process,)]

    def start(self, key: Any) -> Any:
        return 0

    def step(self, state: Any, event: Any) -> Any:
        if event.body.stalled_ns > self.limit_ns:
            return state, [Violated(event.ref, Evidence.SELF, "too long")]
        return event.body.stalled_ns, [Exercised(event.ref, Evidence.SELF)]

    def end(self, state: Any, end: Any) -> Any:
        return [] if end.complete else [Undecided("cut short", Cause("p#1", 0))]


def histories() -> list[Any]:
    made_histories = []
    for stalled_ms, complete in ((11, True), (9, True), (9, False)):
        builder = HistoryBuilder()
        builder.add("p#1", Stalled(stalled_ms * 1_000_000))
        made_histories.append((builder.events(), builder.end(complete)))
    return made_histories


def test_a_rule_meets_its_three_histories() -> None:
    kit.check_rule(Calm(), *histories())


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


def test_the_reference_cluster_conforms_in_the_simulator(tmp_path: Path) -> None:
    result = kit.check_system("reference/quorum", tmp_path, runtime="simulated")
    assert result.injected == 4


@pytest.mark.real
def test_etcd_conforms_on_processes(tmp_path: Path) -> None:
    assert "etcd/cluster" in load().systems
    assert kit.check_system("etcd/cluster", tmp_path).injected == 4
