"""Which controllers may be a majority of the voters, by all sets of voters that nodes have read."""

from __future__ import annotations

import pytest

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder
from fencepost_kafka import QuorumLearned
from fencepost_kafka.voter_sets import VoterSets

SLOTS = ("controller-1", "controller-2", "controller-3", "controller-4")


def read(*sets: tuple[int, ...]) -> VoterSets:
    """Four controllers run, and these sets of voters were read."""
    h = HistoryBuilder()
    for number, slot in enumerate(SLOTS, 101):
        h.add(f"{slot}#1", NodeStarted(role="controller", node_id=number))
    for voters in sets:
        endpoints = tuple(map(str, voters))
        h.add("broker-1#1", QuorumLearned(voters=voters, endpoints=endpoints, bootstrap=("x",)))
    found = VoterSets()
    for event in h.events():
        found.take(event)
    return found


@pytest.mark.parametrize(
    ("sets", "having", "decides"),
    [
        ((), SLOTS[:3], True),
        ((), SLOTS[:2], False),
        (((101, 102, 103),), SLOTS[:2], True),
        (((101, 102, 103),), (SLOTS[0], SLOTS[3]), False),
        (((101, 102, 103), (101, 104)), (SLOTS[0], SLOTS[3]), True),
        (((101, 104),), SLOTS[:3], False),
        (((101,),), SLOTS[:1], True),
    ],
)
def test_a_majority_of_any_set_may_decide(
    sets: tuple[tuple[int, ...], ...], having: tuple[str, ...], decides: bool
) -> None:
    assert read(*sets).may_decide(having, SLOTS) is decides


def test_only_voters_among_those_that_are_known_count() -> None:
    assert read((101, 102, 103)).may_decide(SLOTS[:1], SLOTS[:1])
    assert not read((101, 102, 103)).may_decide(SLOTS[:1], SLOTS[:2])


def test_a_set_lacks_a_majority_for_the_process_that_has_read_it_last() -> None:
    found = read((101, 102, 103), (101, 104))
    assert found.may_lack(SLOTS[:3], ["broker-1#1"])
    assert not found.may_lack((SLOTS[0], SLOTS[3]), ["broker-1#1"])
    assert not found.may_lack((), ["broker-2#1"])


def test_a_broker_before_it_has_read_the_voters_names_none() -> None:
    assert not read(()).may_decide(SLOTS[:2], SLOTS)
