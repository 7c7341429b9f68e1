"""The faults in effect, and the processes and links that they act upon."""

from __future__ import annotations

import pytest

from fencepost import Excuses, FaultHealed, FaultInjected, process_scope, slot_scope
from fencepost.testing import HistoryBuilder

B1, B2, B3 = "broker-1#1", "broker-2#4", "broker-3#1"


def faults(*targets: str, cut: tuple[tuple[str, str], ...] = ()) -> Excuses:
    h = HistoryBuilder()
    body = FaultInjected(
        fault_id="f-1",
        fault="f",
        targets=targets,
        receipt=True,
        evidence="",
        directions=tuple(map(" -> ".join, cut)),
    )
    h.add("harness", body)
    found = Excuses()
    found.take(h.events()[0])
    return found


def isolated_third() -> Excuses:
    both = (("broker-3", "broker-1"), ("broker-1", "broker-3"), ("broker-3", "broker-2"))
    return faults("broker-1", "broker-2", "broker-3", cut=both)


def test_the_neighbours_of_an_isolated_node_are_not_affected_among_themselves() -> None:
    found = isolated_third()
    assert not found.on(B1)
    assert not found.on(B1, B2)
    assert found.on(B1, B3)
    assert found.on(B2, B3)


@pytest.mark.parametrize("target", [B2, "broker-2"])
def test_a_fault_of_a_process_affects_it_with_all_its_links(target: str) -> None:
    found = faults(target)
    assert found.on(B2)
    assert found.on(B1, B2)
    assert not found.on(B1, B3)


def test_a_fault_of_links_without_known_directions_affects_all_that_it_names() -> None:
    found = faults("broker-1", "broker-2")
    assert found.on(B1)
    assert found.now["f-1"].between(B1, B2)
    assert not found.now["f-1"].between(B1, B3)


def test_a_link_to_a_slot_that_a_process_needs_affects_it() -> None:
    found = isolated_third()
    assert list(found.among((B1,), "broker-3".__eq__))
    assert not list(found.among((B1,), "broker-2".__eq__))
    assert found.now["f-1"].parts(B2, lambda slot: True) == "broker-3"


def test_an_excuse_names_the_fault_and_what_it_acts_upon() -> None:
    cut, stopped = isolated_third().on(B1, B3), faults("broker-2").on(B1, B2)
    assert cut is not None
    assert stopped is not None
    assert cut.words == "f-1 acted upon the link of broker-1#1 and broker-3"
    assert cut.facts == {
        "fault": "f-1",
        "process": process_scope(B1),
        "other": slot_scope("broker-3"),
    }
    assert stopped.words == "f-1 acted upon broker-2#4"
    assert stopped.facts == {"fault": "f-1", "process": process_scope(B2)}


def test_a_healed_fault_affects_nothing() -> None:
    h = HistoryBuilder()
    h.add("harness", FaultHealed(fault_id="f-1", receipt=True, evidence=""))
    found = isolated_third()
    assert found.take(h.events()[0]) is not None
    assert not found.on(B1, B3)


@pytest.mark.parametrize(("first", "last"), [("slow_link-1", "cut-2"), ("cut-2", "slow_link-1")])
def test_the_end_of_one_of_two_faults_of_a_link_does_not_end_the_other(
    first: str, last: str
) -> None:
    found, h = Excuses(), HistoryBuilder()
    for fault_id in ("slow_link-1", "cut-2"):
        body = FaultInjected(
            fault_id=fault_id,
            fault=fault_id.partition("-")[0],
            targets=("broker-1", "broker-2"),
            receipt=True,
            evidence="",
            directions=("broker-1 -> broker-2", "broker-2 -> broker-1"),
        )
        h.add("harness", body)
    for fault_id in (first, last):
        h.add("harness", FaultHealed(fault_id=fault_id, receipt=True, evidence=""))
    reasons = []
    for event in h.events():
        found.take(event)
        reason = found.on(B1, B2)
        reasons.append(None if reason is None else reason.facts["fault"])
    assert reasons == ["slow_link-1", "slow_link-1", last, None]
