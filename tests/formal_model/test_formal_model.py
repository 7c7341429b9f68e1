"""Kept behaviours of the formal model, judged without Java; and what TLC prints.

`./dev bench model --examples tests/formal_model/kept` makes new ones.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost.judging.folder import Promises
from fencepost.plugins.manager import load
from formal_model import tlc
from formal_model.behaviours import Behaviour, Step, printed, read, read_all, written
from formal_model.histories import CONTROLLER, history
from formal_model.judged import Judged, Wrong, judged, smallest
from formal_model.variants import VARIANTS

KEPT = [*read_all(Path(__file__).parent / "kept")]
LEAST = 8
"""How many variants must do harm."""


@pytest.fixture(scope="module")
def promises() -> Promises:
    return load().promises


def test_a_kept_behaviour_of_the_model_as_it_is_accuses_nobody(promises: Promises) -> None:
    (as_it_is,) = [one for one in KEPT if not one.broken]
    assert len(as_it_is.steps) > 100
    assert judged(as_it_is, promises) == Judged({}, frozenset())


@pytest.mark.parametrize(
    "behaviour", [one for one in KEPT if one.broken], ids=lambda one: one.broken
)
def test_the_harm_that_a_variant_does_is_noticed(behaviour: Behaviour, promises: Promises) -> None:
    assert behaviour.harm
    found = judged(behaviour, promises)
    assert found.wrong(behaviour.broken) is None, found


def test_enough_variants_do_harm() -> None:
    broken = {one.broken for one in KEPT if one.harm}
    assert broken <= {*VARIANTS}
    assert len(broken) >= LEAST


def test_the_model_has_a_check_that_each_variant_leaves_out() -> None:
    named = re.findall(r'Broken [=#] "([^"]+)"', tlc.MODEL.read_text())
    assert {*named} == {*VARIANTS}


def test_a_behaviour_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    for behaviour in KEPT:
        path.write_bytes(written(behaviour))
        assert read(path) == behaviour


def test_what_is_wrong_is_kept_with_no_step_behind_it(promises: Promises) -> None:
    silent = Behaviour("x", [Step(()), Step((), ("lost",)), Step((), ("lost",))])
    assert judged(silent, promises).wrong("x") is Wrong.MISSED
    assert smallest(silent, promises) == silent.upto(2)
    assert silent.until_harm() == silent.upto(2)


PRINTED = """\
---------------- MODULE behaviour_0_0 -----------------
STATE_1 ==
/\\ said = <<>>
/\\ written = 0
/\\ harm = {}


STATE_2 ==
/\\ node = << [ log |-> <<>>, said |-> 1 ] >>
/\\ said = << [ k |-> "follows",
       b |-> 2,
       leader |-> 1,
       epoch |-> 0,
       end |-> 0,
       hw |-> 0 ],
   [k |-> "marks", isr |-> {1, 3}, none |-> {}, leads |-> TRUE] >>
/\\ harm = {}


STATE_3 ==
/\\ said = <<>>
/\\ harm = {"lost", "at risk"}
=============================================================================
"""


def test_what_tlc_prints_is_read() -> None:
    follows = {"k": "follows", "b": 2, "leader": 1, "epoch": 0, "end": 0, "hw": 0}
    marks = {"k": "marks", "isr": [1, 3], "none": [], "leads": True}
    harm = ("at risk", "lost")
    steps = [Step([]), Step([follows, marks], harm), Step([], harm)]
    assert printed("x", PRINTED) == Behaviour("x", steps)


def test_a_behaviour_becomes_the_events_of_one_process_for_each_life_of_a_broker() -> None:
    ends = [Step([{"k": "killed", "b": 2}]), Step([{"k": "started", "b": 2}])]
    flushes = Step([{"k": "flushes", "b": 2, "hw": 0, "end": 0}])
    events = history(Behaviour("", [flushes, *ends, flushes])).events()
    brokers = [one.process for one in events if one.kind == "replica.checkpointed"]
    assert brokers == ["broker-2#1", "broker-2#2"]
    assert events[0].process == CONTROLLER
    assert all(one.at_ns < other.at_ns for one, other in pairwise(events))


def test_without_tlc_the_reason_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvironmentFailed, match="TLC needs Java 17 or newer") as failed:
        tlc.installed()
    assert "\n" not in str(failed.value)
