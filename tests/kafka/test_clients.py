"""Requests about topics that got no answer: pure, with a scripted administrator."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import Struct
from tests.kafka.kafka_views import kafka_view

from fencepost import (
    ClientSpec,
    Cluster,
    Condition,
    Layout,
    Runtime,
    Shape,
    Slot,
    Violation,
    Workers,
)
from fencepost.events import Event
from fencepost_kafka import AdminCompleted, Role, Timing, TopicCommitted
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode

MS = 1_000_000
LAYOUT = Layout((Slot("broker-1", Role.BROKER, 1, 1), Slot("clients", Role.CLIENT, 0, 2)), ())
OPEN = ("unknown", "_TRANSPORT")
REFUSED = ("failed", "UNKNOWN_TOPIC_OR_PART")
DONE = ("ok", "")
ADMIN = "clients/admin-1#1"
THERE = TopicCommitted(offset=5, topic="orders", topic_id="id", deleted=False)
GONE = TopicCommitted(offset=6, topic="orders", topic_id="id", deleted=True)


class Administered:
    """A run in which an administrator gives scripted answers; time passes only in waiting."""

    layout = LAYOUT
    process = ADMIN

    def __init__(self, *answers: tuple[str, str], then: Struct | None = None) -> None:
        self.view = kafka_view()
        self.asked: list[str] = []
        self._answers = deque(answers)
        self._then = then
        self._coming: deque[Event] = deque()
        self._now_ns = 0
        self._take(Event("run", "broker-1#1", 0, 0, THERE))

    def client(self, spec: ClientSpec) -> Administered:
        return self

    def tell(self, command: Mapping[str, Any]) -> None:
        self.asked.append(command["operation"])
        outcome, error = self._answers.popleft()
        body = AdminCompleted(
            operation=command["operation"],
            api=command["do"],
            subject="orders",
            outcome=outcome,
            error=error,
        )
        self._coming.append(Event("run", ADMIN, len(self.asked), self._now_ns, body))
        if not self._answers and self._then is not None:
            self._coming.append(Event("run", "broker-1#1", 1, self._now_ns, self._then))

    def now_ns(self) -> int:
        return self._now_ns

    def events(self) -> tuple[Event, ...]:
        return ()

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        last = self.view.last
        while not until.holds(self.view):
            if not self._coming:
                self._now_ns = deadline_ns
                return None
            last = self._take(self._coming.popleft())
        return last

    def _take(self, event: Event) -> Event:
        self.view.apply(event)
        return event


def clients_of(run: Administered) -> KafkaClients:
    timing = Timing(300, 2_000, 500, 9_000)
    base = Cluster(cast(Runtime, run), lambda view: (), timing.recovery_bound_ms, Shape())
    return KafkaClients(Workers(base, "scripted"), KafkaCluster(base, timing))


def delete(run: Administered) -> None:
    clients_of(run).delete_topic("orders")


def test_a_request_without_an_answer_is_repeated_as_an_operation_of_its_own() -> None:
    run = Administered(OPEN, OPEN, DONE, then=GONE)
    delete(run)
    assert run.asked == ["op-1", "op-2", "op-3"]


def test_a_change_that_succeeded_without_an_answer_is_not_repeated() -> None:
    run = Administered(OPEN, then=GONE)
    delete(run)
    assert run.asked == ["op-1"]


def test_a_refusal_after_an_open_outcome_may_mean_that_it_was_done() -> None:
    run = Administered(OPEN, REFUSED, then=GONE)
    delete(run)
    assert run.asked == ["op-1", "op-2"]


def test_a_change_that_no_event_shows_is_repeated_until_it_is_answered() -> None:
    run = Administered(OPEN, OPEN, DONE)
    clients_of(run).reassign("orders", 0, [1])
    assert run.asked == ["op-1", "op-2", "op-3"]


def test_a_refusal_of_a_change_that_no_event_shows_is_raised_at_once_too() -> None:
    run = Administered(OPEN, REFUSED, DONE)
    with pytest.raises(Violation, match="ended as failed"):
        clients_of(run).reassign("orders", 0, [1])
    assert run.asked == ["op-1", "op-2"]


def test_an_error_of_a_change_already_made_means_that_an_unknown_try_succeeded() -> None:
    broker = KafkaNode(LAYOUT.slots[0])
    for error, ask in (
        ("NO_REASSIGNMENT_IN_PROGRESS", lambda clients: clients.reassign("orders", 0, [])),
        ("BROKER_ID_NOT_REGISTERED", lambda clients: clients.delete_broker(broker)),
    ):
        run = Administered(OPEN, ("failed", error))
        ask(clients_of(run))
        assert run.asked == ["op-1", "op-2"]
        with pytest.raises(Violation, match=f"ended as failed: {error}"):
            ask(clients_of(Administered(("failed", error))))


def test_an_election_by_hand_is_asked_for_until_it_is_answered() -> None:
    run = Administered(OPEN, DONE)
    assert clients_of(run).elect_preferred("orders").outcome == "ok"
    assert run.asked == ["op-1", "op-2"]


def test_a_refusal_alone_is_raised_at_once() -> None:
    run = Administered(REFUSED, DONE)
    with pytest.raises(Violation, match="ended as failed: UNKNOWN_TOPIC_OR_PART"):
        delete(run)
    assert run.asked == ["op-1"]


def test_an_outcome_that_stays_unknown_is_raised_in_the_end() -> None:
    run = Administered(*[OPEN] * 100)
    with pytest.raises(Violation, match="ended as unknown: _TRANSPORT"):
        delete(run)
    assert run.now_ns() >= 15_000 * MS
