"""Explanations follow happens-before and the subjects of events, never the distance in time."""

from __future__ import annotations

import pytest

from fencepost import Cause, Event, Evidence, Fact, FaultHealed, FaultInjected, NodeStarted
from fencepost.judging.explanation import Explanation, explain, explained
from fencepost.judging.relevance import LINES, STEPS
from fencepost.judging.verdicts import Broken, Outcome, Verdict
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    ControllerFollowed,
    FetchServed,
    HeartbeatAnswered,
    HeartbeatSent,
    IsrChangeAsked,
    LeaseExpired,
    LeaseGranted,
    LogAppended,
    PartitionCommitted,
    ProbeCompleted,
)

CONTROLLER, BROKER, OTHER = "controller-1#1", "broker-1#1", "broker-2#1"
ALL3 = (1, 2, 3)


def why(h: HistoryBuilder, at: Event, *because: Event, **facts: Fact) -> Explanation:
    proof = tuple(event.ref for event in because)
    broken = Broken(at.ref, Evidence.SELF, "it broke", proof, facts=facts)
    [found] = explain([broken], h.events())
    assert found is not None
    return found


def steps_of(found: Explanation) -> list[Event]:
    return [step.event for step in found.steps]


def begin(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, NodeStarted(role="controller", node_id=101, incarnation="c", log_end=0))
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="b", log_end=0))
    h.add(OTHER, NodeStarted(role="broker", node_id=2, incarnation="o", log_end=0))


def serve(h: HistoryBuilder, process: str = BROKER) -> Event:
    return h.add(
        process,
        FetchServed(
            topic="orders",
            partition=0,
            client="clients/c#1",
            from_offset=0,
            to_offset=5,
            high_watermark=5,
            leader_epoch=1,
            state="FENCED",
        ),
    )


def inject(h: HistoryBuilder, *targets: str, fault_id: str = "cut-1") -> Event:
    return h.add(
        "harness",
        FaultInjected(
            fault_id=fault_id, fault="cut", targets=targets, receipt=True, evidence="no answer"
        ),
    )


def renew(h: HistoryBuilder, correlation: int) -> tuple[Event, Event, Event]:
    """A heartbeat, its answer, and the lease it brings."""
    sent = h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=correlation,
            target_state="ACTIVE",
            lease_start_ms=0,
            metadata_offset=3,
        ),
    )
    answered = h.add(
        CONTROLLER,
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation="b",
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=True,
        ),
        Cause(BROKER, correlation, True),
    )
    granted = h.add(
        BROKER,
        LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            ends_at_ns=h.now_ns + 3_000_000_000,
            controller_epoch=1,
        ),
    )
    return sent, answered, granted


def test_a_fenced_broker_that_serves_is_explained_by_fault_lease_and_fence() -> None:
    h = HistoryBuilder()
    begin(h)
    elected = h.add(CONTROLLER, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    renew(h, 1)
    *_, granted = renew(h, 2)
    fault = inject(h, "broker-1", "controller-1")
    expired = h.after(3000).add(
        CONTROLLER,
        LeaseExpired(
            broker_id=1,
            broker_epoch=5,
            last_heard_ns=0,
            now_ns=3_000_000_000,
            lease_period_ms=3000,
            controller_epoch=1,
        ),
    )
    fenced = h.add(
        CONTROLLER,
        BrokerCommitted(offset=9, broker_id=1, broker_epoch=5, fenced=True, incarnation="b"),
    )
    moved = h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=10,
            topic="orders",
            partition=0,
            leader=2,
            leader_epoch=1,
            isr=(2, 3),
            replicas=ALL3,
        ),
    )
    lost = h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    served = serve(h)
    found = why(h, served, lost)
    assert steps_of(found) == [elected, granted, fault, expired, fenced, moved, lost]
    unknown = [step.event for step in found.steps if not step.known]
    assert unknown == [expired, fenced, moved], "the cut kept these from the broker"
    lines = found.lines()
    assert lines[-1].endswith("<- this broke it")
    assert "[broker-1#1 may not have known]" in lines[-3]
    assert "+3.0" in lines[-1]


def test_events_about_another_broker_or_partition_are_left_out_even_if_near_in_time() -> None:
    h = HistoryBuilder()
    begin(h)
    h.add(
        CONTROLLER,
        BrokerCommitted(offset=9, broker_id=2, broker_epoch=5, fenced=True, incarnation="o"),
    )
    h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=10,
            topic="payments",
            partition=0,
            leader=2,
            leader_epoch=1,
            isr=(2, 3),
            replicas=ALL3,
        ),
    )
    h.add(
        OTHER,
        BrokerStateChanged(
            broker_id=2, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    inject(h, "broker-2")
    served = serve(h)
    assert steps_of(why(h, served)) == []


def test_a_record_is_explained_by_the_first_replay_of_it() -> None:
    h = HistoryBuilder()
    begin(h)
    first = h.add(
        CONTROLLER,
        BrokerCommitted(offset=9, broker_id=1, broker_epoch=5, fenced=True, incarnation="b"),
    )
    for process in (OTHER, BROKER):
        h.add(
            process,
            BrokerCommitted(offset=9, broker_id=1, broker_epoch=5, fenced=True, incarnation="b"),
        )
    served = serve(h)
    found = why(h, served)
    assert steps_of(found) == [first]
    assert found.steps[-1].known, "the broker has replayed it too"


def test_a_lease_grant_and_its_causes_happened_before_the_holders_events() -> None:
    h = HistoryBuilder()
    begin(h)
    elected = h.add(CONTROLLER, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    before = h.add(
        CONTROLLER,
        BrokerCommitted(offset=9, broker_id=1, broker_epoch=5, fenced=False, incarnation="b"),
    )
    renew(h, 1)
    after = h.add(
        CONTROLLER,
        BrokerCommitted(offset=10, broker_id=1, broker_epoch=5, fenced=True, incarnation="b"),
    )
    found = why(h, serve(h))
    known = {step.event.ref: step.known for step in found.steps}
    assert known[elected.ref]
    assert known[before.ref]
    assert not known[after.ref]


def test_a_follower_of_a_controller_knows_its_election() -> None:
    h = HistoryBuilder()
    begin(h)
    elected = h.add(CONTROLLER, ControllerElected(epoch=4, log_end=0, last_epoch=0))
    unheard = h.add("controller-2#1", ControllerElected(epoch=5, log_end=0, last_epoch=0))
    h.add(BROKER, ControllerFollowed(epoch=4, leader=101))
    known = {step.event.ref: step.known for step in why(h, serve(h)).steps}
    assert (known[elected.ref], known[unheard.ref]) == (True, False)


def test_a_cause_that_names_a_request_leads_to_its_sender() -> None:
    h = HistoryBuilder()
    begin(h)
    changed = h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=5, reason="unfenced"
        ),
    )
    sent, answered, _ = renew(h, 7)
    later = h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    found = why(h, answered)
    assert changed in steps_of(found)
    assert {s.event.ref: s.known for s in found.steps}[changed.ref]
    assert later not in steps_of(found)
    assert sent.node_seq < later.node_seq


def test_a_fault_that_healed_gives_way_to_one_still_on() -> None:
    h = HistoryBuilder()
    begin(h)
    inject(h, "broker-1", fault_id="pause-1")
    h.add("harness", FaultHealed(fault_id="pause-1", receipt=True, evidence=""))
    on = inject(h, "broker-1", fault_id="cut-2")
    h.add(
        "harness",
        FaultInjected(
            fault_id="slow-3", fault="slow", targets=("broker-1",), receipt=True, evidence=""
        ),
    )
    h.add("harness", FaultHealed(fault_id="slow-3", receipt=True, evidence=""))
    faults = [e for e in steps_of(why(h, serve(h))) if isinstance(e.body, FaultInjected)]
    assert faults == [on]


def test_a_clients_observation_is_about_the_slot_it_asked() -> None:
    h = HistoryBuilder()
    begin(h)
    lost = h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    fault = inject(h, "broker-1")
    probed = h.add(
        "clients/probe#1",
        ProbeCompleted(
            operation="p",
            api="Fetch",
            broker=1,
            slot="broker-1",
            topic="orders",
            partition=0,
            outcome="answered",
            error="",
            records=3,
            base_offset=-1,
            sent_at_ns=0,
        ),
    )
    found = why(h, probed, lost)
    assert [lost, fault] == steps_of(found)
    assert found.offender == BROKER


def test_a_long_explanation_is_cut_to_the_most_relevant_events() -> None:
    h = HistoryBuilder()
    begin(h)
    fault = inject(h, "broker-1")
    elections = [
        h.add(CONTROLLER, ControllerElected(epoch=epoch, log_end=0, last_epoch=0))
        for epoch in range(20)
    ]
    for epoch in range(20):
        h.add(
            CONTROLLER,
            BrokerCommitted(
                offset=30 + epoch,
                broker_id=1,
                broker_epoch=epoch,
                fenced=epoch % 2 == 0,
                incarnation="b",
            ),
        )
    lost = h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )
    found = why(h, serve(h), lost)
    assert len(found.steps) == STEPS
    assert len(found.lines()) + 2 == LINES
    assert {fault.ref, lost.ref, elections[-1].ref} <= {e.ref for e in steps_of(found)}
    assert steps_of(found) == sorted(steps_of(found), key=lambda e: e.at_ns)


def test_a_violation_whose_event_is_not_there_is_not_explained() -> None:
    h = HistoryBuilder()
    begin(h)
    broken = Broken(Cause("unknown#1", 4), Evidence.SELF, "it broke")
    assert explain([broken], h.events()) == [None]


def test_verdicts_carry_the_explanation_of_their_first_violations() -> None:
    h = HistoryBuilder()
    begin(h)
    stored = [
        h.add(
            BROKER,
            LogAppended(
                topic="orders",
                partition=0,
                base_offset=n,
                log_end=n + 1,
                expected_base=n,
                batch_epoch=1,
                leader_epoch=1,
                as_leader=True,
                digest="d",
                producer_id=-1,
                base_sequence=-1,
            ),
        )
        for n in range(5)
    ]
    broken = tuple(Broken(event.ref, Evidence.SELF, "it broke") for event in stored)
    verdicts = {
        "X-1": Verdict(
            verdict=Outcome.VIOLATED,
            exercised=0,
            evidence=Evidence.SELF,
            sentence="It holds.",
            reason="",
            violated=5,
            violations=broken,
        ),
        "X-2": Verdict(Outcome.HOLDS, 3, Evidence.SELF, "So does this."),
    }
    found = explained(verdicts, h.events())
    assert [bool(one.explanation) for one in found["X-1"].violations] == [True] * 3 + [False] * 2
    assert (
        "stored a client's write in orders-0 at offset 1"
        in (found["X-1"].violations[1].explanation[-1])
    )
    assert found["X-2"] == verdicts["X-2"]


def test_without_a_violation_the_history_is_not_read() -> None:
    verdicts = {"X-2": Verdict(Outcome.HOLDS, 3, Evidence.SELF, "It holds.")}

    def unread() -> Event:
        pytest.fail("read")

    assert explained(verdicts, (unread() for _ in range(1))) is verdicts


def test_a_repeated_request_is_shown_once() -> None:
    h = HistoryBuilder()
    begin(h)
    asked = [
        h.add(
            OTHER,
            IsrChangeAsked(
                topic="orders",
                partition=0,
                leader_epoch=1,
                broker_epoch=5,
                old_isr=ALL3,
                new_isr=(1, 2),
                ends=(5, 5),
                high_watermark=5,
                epoch_start=0,
                lag_ns=1,
            ),
        )
        for _ in range(6)
    ]
    steps = steps_of(why(h, serve(h)))
    assert [event for event in steps if event in asked] == asked[-1:]


def led(topic: str, offset: int) -> PartitionCommitted:
    return PartitionCommitted(
        offset=offset,
        topic=topic,
        partition=0,
        leader=1,
        leader_epoch=offset,
        isr=ALL3,
        replicas=ALL3,
    )


@pytest.mark.parametrize("horizon", [4, 10, 1_000])
def test_beyond_the_horizon_faults_restarts_and_holders_are_known(horizon: int) -> None:
    h = HistoryBuilder("run")
    begin(h)
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    h.add(CONTROLLER, led("orders", 1))
    h.add(
        "harness",
        FaultInjected(
            fault_id="fault-1", fault="pause", targets=("broker-1",), receipt=True, evidence="it is"
        ),
    )
    early = serve(h)
    for offset in range(2, 60):
        h.add(CONTROLLER, led("others", offset))
    late = serve(h)
    violations = [Broken(event.ref, Evidence.SELF, "it broke") for event in (early, late)]
    assert explain(violations, h.events(), horizon) == explain(violations, h.events())


def test_beyond_the_horizon_a_former_holder_is_forgotten() -> None:
    h = HistoryBuilder("run")
    begin(h)
    former = h.add(CONTROLLER, led("orders", 1))
    h.add(CONTROLLER, led("orders", 2))
    for offset in range(3, 60):
        h.add(CONTROLLER, led("others", offset))
    late = Broken(serve(h).ref, Evidence.SELF, "it broke")
    [whole] = explain([late], h.events())
    [bounded] = explain([late], h.events(), 10)
    assert whole is not None
    assert bounded is not None
    assert former in steps_of(whole)
    assert former not in steps_of(bounded)
