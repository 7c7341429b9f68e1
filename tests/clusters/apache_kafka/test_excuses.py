"""The faults that excuse a broker of Apache Kafka, and those that do not."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    BOUND_MS,
    BROKERS,
    CONTROLLERS,
    DUPLICATE,
    FIRST,
    SESSION_MS,
    begun,
    claimed,
    ended,
    healed,
    injected,
    intruded,
    isolated,
    led,
    record,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import FaultHealed, NodeStarted
from fencepost.testing import Outcome
from fencepost_kafka import ControllerElected, ControllerResigned


def test_the_isolation_of_another_broker_excuses_no_holder_of_an_id() -> None:
    h = claimed()
    isolated(h, "broker-3")
    record(h, 20, fenced=True, incarnation="two")
    assert stated(verdict(h, "KR-01"), "process") == DUPLICATE


@pytest.mark.parametrize("node", ["broker-1", "controller-1"])
def test_a_cut_link_to_a_controller_excuses_the_holder_of_an_id(node: str) -> None:
    h = claimed()
    isolated(h, node)
    record(h, 20, fenced=True, incarnation="two")
    found = verdict(h, "KR-01")
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    names = ("fault", "process", "other")
    assert why(found, *names) == ("isolate-1", "broker-1#1", "controller-1")


BOTH = (("broker-1", "controller-1"), ("controller-1", "broker-1"))
STANDBY = (("broker-1", "controller-2"), ("controller-2", "broker-1"))
FRESH, SETTLED = 0, 2 * SESSION_MS + 100
"""How long ago the active controller was elected."""


@pytest.mark.parametrize(
    ("fault", "ways", "arguments", "after_ms", "excused"),
    [
        ("slow_link", BOTH[1:], "", FRESH, 0),
        ("slow_link", BOTH, "", FRESH, 1),
        ("slow_link", BOTH, '{"latency_ms":200,"jitter_ms":100,"rate_kb":0}', FRESH, 0),
        ("slow_link", BOTH, '{"latency_ms":200,"jitter_ms":175,"rate_kb":0}', FRESH, 1),
        ("slow_link", BOTH, '{"latency_ms":20,"jitter_ms":0,"rate_kb":1}', FRESH, 1),
        ("slow_link", STANDBY, "", FRESH, 1),
        ("slow_link", STANDBY, "", SETTLED, 0),
        ("cut", BOTH[1:], "", SETTLED, 1),
        ("cut", BOTH[:1], "", SETTLED, 1),
        ("cut", STANDBY[1:], "", FRESH, 1),
        ("cut", STANDBY, "", SETTLED, 0),
        ("hold", BOTH[:1], '{"apis":[1]}', FRESH, 0),
        ("hold", BOTH[:1], '{"apis":[1,63]}', FRESH, 1),
        ("hold", BOTH[:1], '{"apis":[]}', FRESH, 1),
    ],
)
def test_only_what_can_end_its_session_excuses_the_holder_of_an_id(
    fault: str, ways: tuple[tuple[str, str], ...], arguments: str, after_ms: int, excused: int
) -> None:
    h = claimed()
    h.after(after_ms)
    injected(h, fault, *ways[0], cut=ways, arguments=arguments)
    record(h, 20, fenced=True, incarnation="two")
    found = verdict(h, "KR-01")
    assert (found.excused, found.violated) == (excused, 1 - excused)


def test_a_slow_link_that_ends_no_session_excuses_no_loss_of_a_leadership() -> None:
    h = intruded()
    injected(h, "slow_link", *BOTH[0], cut=BOTH, arguments='{"latency_ms":20}')
    led(h, 20, 2, 2, 3)
    assert verdict(h, "KR-06").violated == 1


def test_within_two_sessions_of_an_election_a_link_to_any_controller_counts() -> None:
    h = claimed()
    h.after(SETTLED)
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=12, last_epoch=-1))
    injected(h, "cut", *BOTH[0], cut=BOTH)
    h.after(2 * SESSION_MS - 10)
    record(h, 20, fenced=True, incarnation="two")
    assert verdict(h, "KR-01").excused == 1


def test_a_cut_between_brokers_does_not_excuse_the_loss_of_a_leadership() -> None:
    h = intruded()
    injected(h, "cut", "broker-1", "broker-2", cut=[("broker-2", "broker-1")])
    led(h, 20, 2, 2, 3)
    assert verdict(h, "KR-06").violated == 1


def test_a_paused_holder_is_excused_by_name() -> None:
    h = intruded()
    injected(h, "pause", FIRST)
    led(h, 20, 2, 2, 3)
    found = verdict(h, "KR-06")
    assert (found.violated, found.excused) == (0, 1)
    assert stated(found.excuses[0], "offset") == 20
    assert why(found, "fault", "process") == ("pause-1", "broker-1#1")


def test_an_isolated_broker_that_is_fenced_too_late_breaks_kr_02() -> None:
    h = begun()
    isolated(h, "broker-1")
    h.after(BOUND_MS + 1)
    record(h, 20, fenced=True)
    assert stated(verdict(h, "KR-02"), "silent_ns", "why") == (4_752_000_000, "isolate-1")


@pytest.mark.parametrize(("heals", "stays"), [("isolate", "partition"), ("partition", "isolate")])
def test_the_end_of_one_of_two_cuts_does_not_end_a_silence(heals: str, stays: str) -> None:
    """Each of them keeps every controller from hearing the broker."""
    h = begun()
    isolated(h, "broker-1")
    cut = [pair for one in CONTROLLERS for pair in ((one, "broker-1"), ("broker-1", one))]
    injected(h, "partition", "broker-1", *CONTROLLERS, cut=cut)
    h.after(SESSION_MS)
    healed(h, heals)
    h.after(BOUND_MS - SESSION_MS + 1)
    record(h, 20, fenced=True)
    assert stated(verdict(h, "KR-02"), "silent_ns", "why") == (4_754_000_000, f"{stays}-1")


def test_the_end_of_both_cuts_ends_a_silence() -> None:
    h = begun()
    isolated(h, "broker-1")
    cut = [pair for one in CONTROLLERS for pair in ((one, "broker-1"), ("broker-1", one))]
    injected(h, "partition", "broker-1", *CONTROLLERS, cut=cut)
    h.after(SESSION_MS)
    healed(h, "isolate")
    healed(h, "partition")
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_a_pause_of_a_process_does_not_keep_the_next_one_silent() -> None:
    h = begun()
    injected(h, "pause", FIRST)
    ended(h, FIRST)
    h.add("broker-1#2", NodeStarted(role="broker", node_id=1, incarnation="two", log_end=-1))
    record(h, 20, fenced=False, incarnation="two")
    isolated(h, "broker-1")
    h.after(SESSION_MS)
    healed(h, "isolate")
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_a_cut_of_one_controller_under_a_cut_of_all_causes_no_silence() -> None:
    h = begun()
    isolated(h, "broker-1")
    both = ("broker-1", CONTROLLERS[0]), (CONTROLLERS[0], "broker-1")
    injected(h, "partition", "broker-1", CONTROLLERS[0], cut=both)
    h.after(SESSION_MS)
    healed(h, "isolate")
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_the_isolation_of_another_broker_gives_no_time_to_fence_a_dead_one() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(2_000)
    isolated(h, "broker-3")
    h.after(BOUND_MS)
    record(h, 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED


def test_a_broker_that_reaches_one_controller_is_not_silent() -> None:
    h = begun()
    both = ("broker-1", CONTROLLERS[0]), (CONTROLLERS[0], "broker-1")
    injected(h, "partition", "broker-1", CONTROLLERS[0], cut=both)
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_a_slow_link_to_every_controller_is_no_silence() -> None:
    h = begun()
    ways = [(one, other) for one in BROKERS for other in CONTROLLERS]
    injected(h, "slow_link", *BROKERS, *CONTROLLERS, cut=ways)
    h.after(60_000)
    assert verdict(h, "KR-02").verdict is Outcome.NOT_EXERCISED


def test_the_end_of_a_cut_does_not_end_the_silence_of_a_broker_that_died_meanwhile() -> None:
    h = begun()
    isolated(h, "broker-1")
    h.after(1_000)
    ended(h, FIRST)
    h.add("harness", FaultHealed(fault_id="isolate-1", receipt=True, evidence="undone"))
    h.after(BOUND_MS)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED


def test_a_new_controller_does_not_excuse_a_fencing_that_was_late_before() -> None:
    h = begun()
    ended(h, FIRST)
    h.after(BOUND_MS + 1)
    h.add("controller-1#1", ControllerResigned(epoch=1, reason="no_majority"))
    h.add("controller-2#1", ControllerElected(epoch=2, log_end=12, last_epoch=-1))
    h.after(1_000)
    record(h, 20, fenced=True)
    assert verdict(h, "KR-02").verdict is Outcome.VIOLATED
