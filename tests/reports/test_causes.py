"""Which loss of authority explains a failure: ranked candidates, one of which is none."""

from __future__ import annotations

from collections.abc import Sequence

import fencepost_kafka as k
from fencepost import Event, NodeStarted
from fencepost.testing import HistoryBuilder
from fencepost_reports.one_run.authority import AuthorityFold
from fencepost_reports.one_run.causes import BROKE, LOST, NAMED, NOTHING, Causes, Failed
from fencepost_reports.one_run.tables import CandidateRow

LEADS = k.PartitionCommitted(
    offset=1, topic="orders", partition=0, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2)
)


def led(leader: int, epoch: int) -> k.PartitionCommitted:
    """The record that makes a broker the leader of orders-0."""
    return k.PartitionCommitted(
        offset=10 + epoch,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        isr=(1, 2),
        replicas=(1, 2),
    )


def started() -> HistoryBuilder:
    """Two brokers, of which the first leads orders-0."""
    history = HistoryBuilder("run")
    for number in (1, 2):
        history.add(f"broker-{number}#1", NodeStarted(role="broker", node_id=number))
    history.add("controller-1#1", LEADS)
    return history


def candidates(
    events: Sequence[Event],
    says: str = "broker-1#1 stored a write of orders-0",
    because: Sequence[Event] = (),
    reads: frozenset[str] | None = frozenset({"metadata.partition"}),
) -> Sequence[CandidateRow]:
    """What may explain that the last event broke a promise."""
    fold = AuthorityFold()
    for position, event in enumerate(events):
        fold.apply(position, event)
    causes = Causes(fold.rows, fold.nodes, events[-1].at_ns - events[0].at_ns)
    return causes.candidates(Failed(len(events) - 1, events[-1], tuple(because), says, reads))


def stored(history: HistoryBuilder) -> Sequence[Event]:
    """The history, at whose end broker 1 does something."""
    stopping = k.BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1)
    history.add("broker-1#1", stopping)
    return history.events()


def test_a_first_election_takes_nothing() -> None:
    (only,) = candidates(stored(started()))
    assert (only.position, only.how) == (-1, NOTHING)


def test_a_leadership_that_was_lost_and_not_got_back_explains_what_its_former_holder_does() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    first, second = candidates(stored(history))
    assert (first.scope, first.how) == ("partition orders-0", LOST)
    assert second.how == NOTHING


def test_what_the_rule_names_comes_first() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    named = history.events()[-1]
    history.add("controller-1#1", led(1, 2))
    history.add("controller-1#1", led(2, 3))
    found = candidates(stored(history), because=(named,))
    assert (found[0].position, found[0].how) == (3, NAMED)
    assert {one.how for one in found} >= {LOST, NOTHING}


def test_a_scope_of_which_the_rules_read_nothing_explains_nothing() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    (only,) = candidates(stored(history), reads=frozenset({"client.polled"}))
    assert only.how == NOTHING


def test_an_election_that_broke_a_promise_took_the_authority_itself() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    first = candidates(history.events(), says="broker 2 was elected from outside the ISR")[0]
    assert (first.position, first.how) == (3, BROKE)
