"""The rule about brokers and new voters (QC-29): violations, near misses and excuses."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import ended, healed, injected, verdict
from tests.suites.partition_histories import stated, why

from fencepost import Evidence, NodeStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import HeartbeatAnswered, LeaseExpired, QuorumLearned

OLD, NEW, BROKER = "controller-1#1", "controller-4#1", "broker-1#1"
HERE, THERE = "controller-1:9093", "controller-4:9093"
SESSION_MS = 3_000


def learns(h: HistoryBuilder, process: str, voters: tuple[int, ...], *bootstrap: str) -> None:
    endpoints = tuple(f"controller-{one - 100}:9093" for one in voters)
    h.add(process, QuorumLearned(voters=voters, endpoints=endpoints, bootstrap=bootstrap))


def replaced(*bootstrap: str, voters: tuple[int, ...] = (101, 104)) -> HistoryBuilder:
    """Broker 1 was configured with these addresses; controllers 101 and 104 run."""
    h = HistoryBuilder()
    for process, node in ((OLD, 101), (NEW, 104)):
        h.add(process, NodeStarted(role="controller", node_id=node, incarnation="", log_end=-1))
        learns(h, process, voters)
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=-1))
    learns(h, BROKER, voters, *(bootstrap or (HERE,)))
    return h.after(2 * SESSION_MS)


def answers(h: HistoryBuilder, process: str = NEW, error: str = "NONE") -> None:
    body = HeartbeatAnswered(
        client="",
        broker_id=1,
        incarnation="",
        request_epoch=5,
        broker_epoch=5,
        error=error,
        next_state="ACTIVE",
        lease_start_ms=0,
        lease_end_ms=0,
        lease_period_ms=SESSION_MS,
        controller_epoch=2,
        active_controller=-1,
        active=True,
    )
    h.add(process, body)


def expires(h: HistoryBuilder, process: str = NEW) -> None:
    body = LeaseExpired(
        broker_id=1,
        broker_epoch=5,
        last_heard_ns=-1,
        now_ns=h.now_ns,
        lease_period_ms=SESSION_MS,
        controller_epoch=2,
    )
    h.add(process, body)


def test_a_session_that_a_strange_controller_ends_breaks_kr_35() -> None:
    h = replaced()
    expires(h)
    found = verdict(h, "QC-29")
    assert (found.verdict, found.violations[0].evidence) == (Outcome.VIOLATED, Evidence.PEER)
    assert stated(found, "controller") == "controller 104"


def test_an_answer_of_a_strange_controller_exercises_kr_35_once_for_each_broker() -> None:
    h = replaced()
    answers(h)
    answers(h)
    found = verdict(h, "QC-29")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


def test_an_error_exercises_nothing() -> None:
    h = replaced()
    answers(h, error="NOT_CONTROLLER")
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


def test_a_controller_at_a_configured_address_is_not_strange() -> None:
    h = replaced()
    answers(h, OLD)
    expires(h, OLD)
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED
    h = replaced(HERE, THERE)
    answers(h)
    expires(h)
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


def test_a_dead_broker_has_no_session_to_keep() -> None:
    h = replaced()
    ended(h, BROKER)
    expires(h.after(SESSION_MS))
    assert verdict(h, "QC-29").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("healed_ms", [None, SESSION_MS - 100])
def test_a_fault_upon_the_broker_within_the_session_is_an_excuse(healed_ms: int | None) -> None:
    h = replaced()
    injected(h, "pause", BROKER)
    if healed_ms is not None:
        healed(h, "pause")
        h.after(healed_ms)
    expires(h)
    found = verdict(h, "QC-29")
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "fault") == "pause-1"


def test_a_fault_upon_its_link_to_a_controller_is_an_excuse_and_upon_others_none() -> None:
    h = replaced()
    injected(h, "cut", "broker-1", "controller-4", cut=[("broker-1", "controller-4")])
    expires(h)
    assert verdict(h, "QC-29").excused == 1
    h = replaced()
    injected(h, "cut", "broker-2", "controller-4", cut=[("broker-2", "controller-4")])
    expires(h)
    assert verdict(h, "QC-29").verdict is Outcome.VIOLATED


def test_a_fault_upon_another_broker_or_the_link_to_one_is_no_excuse() -> None:
    for target, cut in (("broker-2", ()), ("broker-1", [("broker-1", "broker-2")])):
        h = replaced()
        injected(h, "trouble", target, cut=cut)
        if not cut:
            healed(h, "trouble")
        expires(h)
        assert verdict(h, "QC-29").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("ago_ms", "excused"), [(SESSION_MS, 1), (SESSION_MS + 1, 0)])
def test_a_fault_that_was_healed_before_the_session_is_no_excuse(ago_ms: int, excused: int) -> None:
    h = replaced()
    injected(h, "pause", BROKER)
    healed(h, "pause")
    expires(h.after(ago_ms - 1))
    found = verdict(h, "QC-29")
    assert (found.excused, found.violated) == (excused, 1 - excused)


def test_without_a_voter_that_it_was_configured_with_a_broker_may_find_none() -> None:
    """Kafka's nodes ask the configured controllers alone, and these know what voters know."""
    gone = replaced()
    learns(gone, NEW, (104,))
    dead = replaced()
    ended(dead, OLD)
    for h in (gone, dead):
        expires(h.after(2 * SESSION_MS))
        found = verdict(h, "QC-29")
        assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
        assert found.excuses[0].why == {}, "no fault is the reason"


def test_a_voter_that_came_within_the_session_is_no_guide_yet() -> None:
    for ago_ms, excused in ((SESSION_MS - 1, 1), (SESSION_MS, 0)):
        h = replaced()
        learns(h, NEW, (104,))
        learns(h.after(SESSION_MS), NEW, (101, 104))
        expires(h.after(ago_ms - 1))
        found = verdict(h, "QC-29")
        assert (found.excused, found.violated) == (excused, 1 - excused)


@pytest.mark.parametrize(("ago_ms", "excused"), [(SESSION_MS - 1, 1), (SESSION_MS, 0)])
def test_a_voter_that_began_within_the_session_is_no_guide_yet(ago_ms: int, excused: int) -> None:
    h = replaced()
    anew = NodeStarted(role="controller", node_id=101, incarnation="", log_end=-1)
    h.add("controller-1#2", anew)
    expires(h.after(ago_ms - 1))
    found = verdict(h, "QC-29")
    assert (found.excused, found.violated) == (excused, 1 - excused)


def test_a_stall_leaves_kr_35_open() -> None:
    h = replaced()
    h.add(NEW, Stalled(stalled_ns=2_000_000_000))
    expires(h)
    assert verdict(h, "QC-29").verdict is Outcome.UNKNOWN
