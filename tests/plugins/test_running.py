"""AVAIL-running: a node ends only when it is asked to, or says why it may."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost import (
    Effect,
    FaultHealed,
    FaultInjected,
    NodeStopped,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    process_scope,
)
from fencepost.judging.verdicts import Verdict
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_plugins.running import EndsOnlyWhenAsked, fencepost_clauses

HARNESS, NODE, RIVAL = "harness", "server-1#1", "server-1-duplicate#1"
CRASH = ProcessExited(ended=NODE, exit_code=1, signal=0, expected=False, said="out of ideas")


def spawned(process: str, role: str = "server") -> ProcessSpawned:
    slot = process.partition("#")[0]
    return ProcessSpawned(
        started=process, slot=slot, role=role, node_id=int(slot.split("-")[1]), pid=7
    )


def history(*, role: str = "server", ready: bool = True) -> HistoryBuilder:
    """A cluster with a node that has run for a minute."""
    built = HistoryBuilder()
    built.add(HARNESS, spawned(NODE, role))
    built.after(60_000)
    if ready:
        built.add(HARNESS, PhaseStarted(phase="load"))
    return built


def fault(slot: str, *, receipt: bool = True, effect: Effect = Effect.STOPS) -> FaultInjected:
    return FaultInjected(
        fault_id="harm-1",
        fault="harm",
        targets=(slot,),
        effects=(f"{effect} {slot}",),
        receipt=receipt,
        evidence="seen",
    )


def verdict(built: HistoryBuilder) -> Verdict:
    clauses = {one.id: one for one in fencepost_clauses()}
    rules = [EndsOnlyWhenAsked()]
    return judge(built.events(), rules, clauses, built.end(), "any").verdicts["AVAIL-running"]


def test_a_crash_breaks_it_and_is_said_in_the_node_s_words() -> None:
    built = history()
    built.add(HARNESS, CRASH)
    found = verdict(built)
    assert found.verdict is Outcome.VIOLATED
    (broken,) = found.violations
    assert broken.facts["process"] == process_scope(NODE)
    assert (broken.facts["exit_code"], broken.facts["said"]) == (1, "out of ideas")


def test_how_a_process_of_somebody_else_s_ended_is_not_known() -> None:
    built = history()
    built.add(HARNESS, replace(CRASH, exit_code=-1, said=""))
    found = verdict(built)
    assert found.verdict is Outcome.UNKNOWN


def test_an_end_that_the_run_caused_exercises_it() -> None:
    built = history()
    built.add(HARNESS, ProcessExited(ended=NODE, exit_code=0, signal=9, expected=True))
    assert (verdict(built).verdict, verdict(built).exercised) == (Outcome.HOLDS, 1)


def test_a_node_that_says_why_and_ends_in_order_is_excused_in_its_words() -> None:
    built = history()
    built.add(NODE, NodeStopped(reason="it was removed"))
    built.add(HARNESS, ProcessExited(ended=NODE, exit_code=0, signal=0, expected=False))
    assert (verdict(built).verdict, verdict(built).excused) == (Outcome.NOT_EXERCISED, 1)
    assert verdict(built).excuses[0].why["said"] == "it was removed"


@pytest.mark.parametrize("rivalled", [True, False])
def test_a_node_that_says_why_it_fails_is_excused_only_beside_a_rival(rivalled: bool) -> None:
    built = history()
    if rivalled:
        built.add(HARNESS, spawned(RIVAL))
        built.add(HARNESS, ProcessExited(ended=RIVAL, exit_code=0, signal=9, expected=True))
    built.add(NODE, NodeStopped(reason="my id is taken"))
    built.add(HARNESS, replace(CRASH, said=""))
    assert verdict(built).violated == (0 if rivalled else 1)


@pytest.mark.parametrize(("said", "violated"), [("the id is taken", 0), ("", 1)])
def test_a_rival_excuses_no_node_that_says_nothing(said: str, violated: int) -> None:
    built = history()
    built.add(HARNESS, spawned(RIVAL))
    built.add(HARNESS, replace(CRASH, said=said))
    assert verdict(built).violated == violated


@pytest.mark.parametrize(
    ("effect", "slot", "receipt", "violated"),
    [
        (Effect.DAMAGES_DISK, "server-1", True, 0),
        (Effect.EMPTIES_DISK, "server-1", True, 0),
        (Effect.LOSES_UNFLUSHED, "server-1", True, 0),
        (Effect.DAMAGES_DISK, "server-1", False, 1),
        (Effect.DAMAGES_DISK, "server-2", True, 1),
        (Effect.ENDS, "server-1", True, 1),
    ],
)
def test_only_harm_to_its_own_disk_is_an_excuse(
    effect: Effect, slot: str, receipt: bool, violated: int
) -> None:
    built = history()
    built.add(HARNESS, fault(slot, receipt=receipt, effect=effect))
    built.add(HARNESS, CRASH)
    assert verdict(built).violated == violated


@pytest.mark.parametrize(
    ("slot", "healed", "after_ms", "violated"),
    [
        ("server-2", False, 29_000, 0),
        ("server-2", False, 31_000, 1),
        ("server-2", True, 29_000, 1),
        ("server-1", False, 29_000, 1),
    ],
)
def test_a_node_that_starts_may_need_what_a_fault_took(
    slot: str, healed: bool, after_ms: int, violated: int
) -> None:
    built = history()
    built.add(HARNESS, ProcessExited(ended=NODE, exit_code=0, signal=9, expected=True))
    built.add(HARNESS, fault(slot))
    if healed:
        built.add(HARNESS, FaultHealed(fault_id="harm-1", receipt=True, evidence="seen"))
    built.add(HARNESS, spawned("server-1#2"))
    built.after(after_ms)
    built.add(HARNESS, replace(CRASH, ended="server-1#2"))
    assert verdict(built).violated == violated


def test_a_node_of_a_cluster_that_was_ready_is_not_starting() -> None:
    built = HistoryBuilder()
    built.add(HARNESS, spawned(NODE))
    built.add(HARNESS, PhaseStarted(phase="load"))
    built.add(HARNESS, fault("server-2"))
    built.add(HARNESS, CRASH)
    assert verdict(built).violated == 1


def test_a_fault_that_began_while_it_started_is_an_excuse_too() -> None:
    built = history()
    built.add(HARNESS, spawned("server-2#1"))
    built.add(HARNESS, fault("server-1"))
    built.add(HARNESS, replace(CRASH, ended="server-2#1"))
    assert verdict(built).excuses[0].why["fault"] == "harm-1"


@pytest.mark.parametrize("signal", [9, 15])
def test_a_node_that_somebody_else_ended_says_nothing(signal: int) -> None:
    built = history()
    built.add(HARNESS, ProcessExited(ended=NODE, exit_code=0, signal=signal, expected=False))
    assert verdict(built).verdict is Outcome.UNKNOWN


def test_a_node_that_fails_by_a_signal_of_its_own_breaks_it() -> None:
    built = history()
    built.add(HARNESS, ProcessExited(ended=NODE, exit_code=0, signal=11, expected=False))
    assert verdict(built).violations[0].facts["signal"] == 11


def test_a_machine_without_space_proves_nothing() -> None:
    built = history()
    full = "the disk is full"
    ended = ProcessExited(ended=NODE, exit_code=1, signal=0, expected=False, lacked=full)
    built.add(HARNESS, ended)
    assert verdict(built).verdict is Outcome.UNKNOWN
    assert verdict(built).undecided[0].why["lacked"] == full


def test_a_failed_start_is_no_broken_promise() -> None:
    built = history(ready=False)
    built.add(HARNESS, CRASH)
    assert verdict(built).verdict is Outcome.UNKNOWN


def test_a_client_is_no_node() -> None:
    built = history(role="client")
    built.add(HARNESS, CRASH)
    assert verdict(built).verdict is Outcome.NOT_EXERCISED
