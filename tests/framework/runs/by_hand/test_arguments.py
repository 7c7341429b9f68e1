"""The arguments of a fault as words: by the fault's own signature, or one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost import Fault, FaultFactory, UsageError
from fencepost.runs.by_hand.arguments import arguments_from, usage_of
from fencepost_kafka.faults.hold import hold
from fencepost_plugins.bounce import bounce, kill
from fencepost_plugins.partition import cut, isolate
from fencepost_plugins.slow_link import slow_link


def stretch(node: str, share: float, hard: bool = False, most: int | None = None) -> Fault:
    raise NotImplementedError


def untyped(what, *rest, **more) -> Any:  # type: ignore[no-untyped-def]
    raise NotImplementedError


@pytest.mark.parametrize(
    ("factory", "words", "arguments"),
    [
        (kill, ["broker-1"], {"node": "broker-1"}),
        (kill, ["--node", "broker-1"], {"node": "broker-1"}),
        (kill, ["--node=broker-1"], {"node": "broker-1"}),
        (bounce, ["broker-1", "200"], {"node": "broker-1", "after_ms": 200}),
        (isolate, ["broker-1,broker-2"], {"node": ["broker-1", "broker-2"]}),
        (isolate, ["@leader/orders/0"], {"node": "@leader/orders/0"}),
        (cut, ["--targets", "b", "a"], {"targets": "b", "sources": "a"}),
        (
            slow_link,
            ["a", "--latency-ms", "20", "b", "--jitter_ms=3"],
            {"sources": "a", "targets": "b", "latency_ms": 20, "jitter_ms": 3},
        ),
        (hold, ["a", "b", "56,Fetch"], {"sources": "a", "targets": "b", "apis": [56, "Fetch"]}),
        (hold, ["a", "b", "56", "--overtake"], {"apis": 56, "overtake": True}),
        (hold, ["a", "b", "x", "--outlives=false", "--skip", "2"], {"outlives": False, "skip": 2}),
        (hold, ["a", "b", "x", "--overtake", "false"], {"overtake": False}),
        (stretch, ["a", "0.5", "--hard"], {"node": "a", "share": 0.5, "hard": True}),
        (stretch, ["a", "1", "--most", "3"], {"share": 1.0, "most": 3}),
        (untyped, ['{"a": [1]}'], {"what": {"a": [1]}}),
        (untyped, ["plain"], {"what": "plain"}),
        (kill, [], {}),
    ],
)
def test_words_are_arguments_by_the_signature(
    factory: FaultFactory, words: Sequence[str], arguments: dict[str, object]
) -> None:
    found = arguments_from("it", factory, words)
    assert {name: found[name] for name in arguments} == arguments
    if len(words) < 3:
        assert found == arguments


@pytest.mark.parametrize(
    ("factory", "words", "says"),
    [
        (kill, ["a", "b"], "the fault 'it' takes no 'b'; it takes: node"),
        (kill, ["a", "--node", "b"], "node of the fault 'it' is given twice"),
        (kill, ["--nod", "b"], "no argument of the fault 'it' named 'nod'; did you mean 'node'?"),
        (kill, ["--node"], "--node of the fault 'it' needs a value"),
        (bounce, ["a", "soon"], "after_ms of the fault 'it' is a whole number, not 'soon'"),
        (stretch, ["a", "much"], "share of the fault 'it' is a number, not 'much'"),
        (stretch, ["a", "1", "--hard=1"], "hard of the fault 'it' is true or false, not '1'"),
    ],
)
def test_other_words_are_refused_in_a_sentence(
    factory: FaultFactory, words: Sequence[str], says: str
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(says)}$"):
        arguments_from("it", factory, words)


def test_a_fault_says_how_it_is_written() -> None:
    assert usage_of("isolate", isolate) == "isolate NODE"
    assert usage_of("bounce", bounce) == "bounce NODE AFTER_MS [--signal SIGKILL]"
    assert usage_of("stretch", stretch) == "stretch NODE SHARE [--hard] [--most None]"
