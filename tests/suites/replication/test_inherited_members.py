"""A new process of a broker with a session inherits no membership of an ISR (RP-10)."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import ALL3, CLAUSES, CONTROLLER, partition, stated

from fencepost import FaultHealed, FaultInjected, PhaseStarted, ProcessExited, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import TopicMarked
from fencepost_suites import rules


def verdict(h: HistoryBuilder, plane: str = "classic") -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == "RP-10"]
    return judge(h.events(), chosen, CLAUSES, h.end(), plane).verdicts["RP-10"]


def spawn(h: HistoryBuilder, broker: int, number: int = 1, slot: str = "") -> None:
    slot = slot or f"broker-{broker}"
    body = ProcessSpawned(
        started=f"{slot}#{number}", slot=slot, role="broker", node_id=broker, pid=broker
    )
    h.add("harness", body)


def ends(h: HistoryBuilder, process: str) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-1, signal=9, expected=True))


def strikes(h: HistoryBuilder, effect: str, where: str, fault_id: str = "f") -> None:
    links = (where,) if "->" in where else ()
    body = FaultInjected(
        fault_id=fault_id,
        fault="some",
        targets=tuple(where.split(" -> ")),
        receipt=True,
        evidence="",
        directions=links,
        effects=(f"{effect} {where}",),
    )
    h.add("harness", body)


def bounced(member: int = 2, isr: tuple[int, ...] = ALL3) -> HistoryBuilder:
    """A member of the ISR, of which broker 1 is the leader, has a new process."""
    h = HistoryBuilder()
    for broker in ALL3:
        spawn(h, broker)
    partition(h, 10, leader=1, epoch=1, isr=isr)
    ends(h, f"broker-{member}#1")
    strikes(h, "ends", f"broker-{member}")
    spawn(h, member, 2)
    return h


def over(h: HistoryBuilder) -> HistoryBuilder:
    h.add("harness", PhaseStarted(phase="end"))
    for broker in ALL3:
        ends(h, f"broker-{broker}#{1 + (broker == 2)}")
    return h


@pytest.mark.parametrize("plane", ["classic", "legacy"])
@pytest.mark.parametrize(("later_ms", "broken"), [(29_999, 0), (30_000, 1)])
def test_a_new_process_that_stays_a_member_breaks_rp_10(
    plane: str, later_ms: int, broken: int
) -> None:
    found = verdict(over(bounced().after(later_ms)), plane)
    assert found.violated == broken
    if broken:
        assert stated(found, "process", "partition") == ("broker-2#2", "orders-0")


def test_it_breaks_rp_10_though_a_record_takes_it_out_in_the_end() -> None:
    h = bounced().after(60_000)
    partition(h, 11, leader=1, epoch=1, isr=(1, 3))
    assert verdict(over(h)).violated == 1


def test_a_record_that_is_stored_anew_keeps_rp_10() -> None:
    h = bounced()
    partition(h, 11, leader=1, epoch=1)
    assert verdict(over(h.after(60_000))).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("h", [bounced(1), bounced(3, isr=(1, 2))], ids=["the leader", "no member"])
def test_who_is_no_such_member_keeps_rp_10(h: HistoryBuilder) -> None:
    assert verdict(h.after(60_000)).violated == 0


def test_a_controllers_quorum_knows_a_new_process_by_its_registration() -> None:
    assert verdict(over(bounced().after(60_000)), "quorum").violated == 0


@pytest.mark.parametrize(
    ("where", "broken"),
    [("broker-1 -> zookeeper-1", 0), ("zookeeper-1", 0), ("clients -> broker-3", 1)],
)
def test_the_time_counts_from_the_end_of_the_last_fault(where: str, broken: int) -> None:
    h = bounced()
    strikes(h, "severs" if "->" in where else "stops", where, "cut")
    h.after(60_000)
    h.add("harness", FaultHealed(fault_id="cut", receipt=True, evidence=""))
    assert verdict(over(h.after(20_000))).violated == broken
    h = bounced()
    strikes(h, "severs" if "->" in where else "stops", where, "cut")
    h.add("harness", FaultHealed(fault_id="cut", receipt=True, evidence=""))
    assert verdict(over(h.after(60_000))).violated == 1


def test_a_topic_in_deletion_keeps_its_members() -> None:
    h = bounced()
    h.add(CONTROLLER, TopicMarked(offset=11, topic="orders", topic_id="t"))
    assert verdict(over(h.after(60_000))).violated == 0


def test_of_two_processes_with_an_id_no_record_says_which_is_the_member() -> None:
    h = bounced()
    spawn(h, 2, slot="broker-2-duplicate")
    assert verdict(over(h.after(60_000))).violated == 0
