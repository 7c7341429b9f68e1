"""Which loss of authority explains a failure: ranked candidates, one of which is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from folded_tables import folded
from msgspec import Struct
from msgspec.structs import replace

import fencepost_kafka as k
from fencepost import (
    Authority,
    Change,
    Event,
    Facts,
    NodeStarted,
    ProcessExited,
    Scope,
    process_scope,
    slot_scope,
)
from fencepost.testing import HistoryBuilder
from fencepost_reports.one_run.causes import (
    ASIDE,
    BEFORE,
    BETWEEN,
    BROKE,
    CONCERNED,
    DECIDED,
    GAVE_UP,
    LATER,
    LOST,
    NAMED,
    NOTHING,
    REGAINED,
    RESTARTED,
    SUPERSEDED,
    UNPROVEN,
    Causes,
    Failed,
)
from fencepost_reports.one_run.failures import Reads
from fencepost_reports.one_run.tables import CandidateRow

LEADS = k.PartitionCommitted(
    offset=1, topic="orders", partition=0, leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2)
)

LEADERSHIP = k.LeadershipStarted(
    topic="orders",
    partition=0,
    leader_epoch=0,
    isr=(1, 2),
    log_start=0,
    log_end=0,
    high_watermark=0,
)

ADVANCED = k.HighWatermarkAdvanced(
    topic="orders",
    partition=0,
    high_watermark=1,
    log_end=1,
    leader_epoch=0,
    as_leader=True,
    isr=(1, 2),
    counted=(1, 2),
)


ACKNOWLEDGED = k.ProduceCompleted(
    operation="w", topic="orders", partition=0, acks=-1, outcome="ok", offset=0, error=""
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


ORDERS = Scope("partition", "orders-0")
STORED: Facts = {"process": process_scope("broker-1#1"), "partition": ORDERS}
OTHER: Facts = {"process": process_scope("broker-2#1")}
RESTARTED_BROKER: Facts = {"process": process_scope("broker-1#2")}


def broker(number: int) -> Facts:
    """That a failure is about a broker, by its id."""
    return {"broker": Scope("broker", str(number))}


def causes_of(events: Sequence[Event]) -> Causes:
    """What changed in a history."""
    tables = folded(events)
    return Causes(tables.authority, tables.nodes, events[-1].at_ns - events[0].at_ns)


def candidates(
    events: Sequence[Event],
    facts: Facts = STORED,
    because: Sequence[Event] = (),
    reads: frozenset[str] | None = frozenset({"metadata.partition"}),
    unread: frozenset[str] = frozenset(),
) -> Sequence[CandidateRow]:
    """What may explain that the last event broke a promise."""
    causes = causes_of(events)
    last = len(events) - 1
    return causes.candidates(
        Failed(
            position=last,
            at_ns=events[last].at_ns,
            facts=facts,
            event=events[last],
            because=tuple((events.index(one), one) for one in because),
            reads=reads,
            unread=unread,
        )
    )


def stored(history: HistoryBuilder, broker: int = 1) -> Sequence[Event]:
    """The history, at whose end a broker does something."""
    stopping = k.BrokerStopping(broker_id=broker, state="ACTIVE", global_state="", limit_ms=1)
    history.add(f"broker-{broker}#1", stopping)
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
    first = candidates(history.events(), facts=broker(2))[0]
    assert (first.position, first.how) == (3, BROKE)


def test_a_named_gain_stands_for_the_loss_that_ended_it() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    began = history.events()[-1]
    history.add("controller-1#1", led(1, 2))
    first = candidates(stored(history), {"process": process_scope("broker-2#1")}, because=(began,))[
        0
    ]
    assert (first.position, first.how) == (4, NAMED)


def test_a_named_gain_that_did_not_end_stands_for_the_loss_by_which_it_began() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    began = history.events()[-1]
    first = candidates(stored(history), {"process": process_scope("broker-2#1")}, because=(began,))[
        0
    ]
    assert (first.position, first.how) == (3, NAMED)


def test_a_loss_that_is_rarer_than_its_distance_explains_more_than_nothing_does() -> None:
    near, far = started(), started()
    for history in (near, far):
        for epoch in range(1, 7):
            history.after(1_000).add("controller-1#1", led(1 + epoch % 2, epoch))
    far.after(10_000)
    dropped = {**broker(3), "partition": ORDERS}
    assert candidates(stored(near, broker=3), dropped)[0].how == CONCERNED
    assert candidates(stored(far, broker=3), dropped)[0].how == NOTHING


def test_an_event_that_broke_a_promise_explains_nothing_by_what_else_it_reports() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    first, second = candidates(history.events(), facts={"partition": ORDERS})
    assert (first.how, second.how) == (NOTHING, ASIDE)


def test_a_time_without_a_success_is_explained_by_what_its_leader_lost_meanwhile() -> None:
    history = started()
    lost = k.BrokerStateChanged(
        broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=1, reason="lease_expired"
    )
    gained = k.BrokerStateChanged(
        broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=1, reason="unfenced"
    )
    history.add("broker-1#1", gained)
    began_ns = history.now_ns
    history.after(500).add("broker-1#1", lost)
    history.after(500).add("controller-1#1", led(2, 1))
    ended_ns = history.now_ns
    history.after(9_000).add("controller-1#1", led(1, 2))
    causes = causes_of(history.events())
    position = causes.position(ended_ns)
    silence = Failed(position=position, at_ns=began_ns, facts={"subject": "orders-0"})
    found = causes.candidates(silence)
    assert {(one.scope, one.how) for one in found[:2]} == {
        ("partition orders-0", LOST),
        ("broker 1", LOST),
    }


def test_what_a_proof_by_other_events_does_not_name_explains_less_than_nothing_does() -> None:
    history = started()
    history.add("broker-1#1", ADVANCED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    events = stored(history)
    first, second = candidates(events, because=(proof,))
    assert (first.how, second.how) == (NOTHING, UNPROVEN)
    # Without a proof, it is as likely as ever.
    assert candidates(events)[0].how == LOST


def test_a_proof_by_clients_alone_leaves_a_loss_of_the_server_that_the_failure_states() -> None:
    """Clients report no authority, so their proof says nothing of what a failure depends on."""
    history = started()
    history.add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    history.add("clients/reader#1", ACKNOWLEDGED)
    events = history.events()
    for slot, how in (("broker-1", LOST), ("broker-2", NOTHING)):
        facts = {"server": slot_scope(slot), "partition": ORDERS}
        assert candidates(events, facts, (proof,))[0].how == how, slot
    # What only concerns the failure is as near, or as far, as without a proof.
    found = {one.how for one in candidates(events, {"partition": ORDERS}, (proof,))}
    assert CONCERNED in found
    assert UNPROVEN not in found


def test_a_rule_for_any_system_is_explained_by_the_first_turn_after_its_proof() -> None:
    """It reads of clients alone, and so can name no leadership. One that reads of some authority
    would have read of this."""
    history = started()
    history.add("controller-1#1", led(2, 1))
    history.add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(1, 2))
    first = len(history.events()) - 1
    history.add("controller-1#1", led(2, 3))
    history.after(20_000).add("clients/reader#1", ACKNOWLEDGED)
    reads, events = frozenset({"client.produce_completed"}), history.events()
    facts: Facts = {"partition": ORDERS}
    for unread, expected in (
        (frozenset({"metadata.partition"}), (first, BETWEEN)),
        (frozenset[str](), (-1, NOTHING)),
    ):
        found = candidates(events, facts, (proof,), reads, unread)
        assert (found[0].position, found[0].how) == expected
        # Of several, any may be the cause.
        assert (LATER in {one.how for one in found}) is bool(unread)


def test_a_rule_that_reads_of_authority_for_another_matter_names_none_by_what_no_node_says() -> (
    None
):
    """A rule about lost messages also reads the records of topics, to know which were deleted."""
    history = started()
    leads = history.events()[-1]
    history.add("clients/producer#1", ACKNOWLEDGED)
    history.add("clients/reader#1", ACKNOWLEDGED)
    history.add("clients/observer#1", led(2, 1))
    *_, proof, event, record = history.events()
    kinds = frozenset({"metadata.partition"})
    both, nodes = Reads(kinds, told=kinds), {"broker-1#1", "controller-1#1"}
    assert both.unread(event, [proof], nodes) == kinds
    # So do a disk's content, and the end of a process, which the harness tells.
    ended = replace(
        event,
        process="harness",
        body=ProcessExited(ended="broker-1#1", exit_code=1, signal=0, expected=False),
    )
    assert both.unread(ended, [proof], nodes) == kinds
    # Without a proof nothing began before it; and these name what the authority is.
    assert both.unread(event, [], nodes) == frozenset()
    assert both.unread(event, [proof, record], nodes) == frozenset()
    assert both.unread(leads, [proof], nodes) == frozenset()
    assert Reads(frozenset(), told=kinds).unread(leads, [], nodes) == kinds


def test_what_a_process_lost_first_after_the_proof_is_the_cause_though_it_lost_it_again() -> None:
    history = started()
    history.add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    first = len(history.events()) - 1
    history.add("controller-1#1", led(1, 2))
    history.add("controller-1#1", led(2, 3))
    history.add("clients/reader#1", ACKNOWLEDGED)
    reads, unread = frozenset({"client.produce_completed"}), frozenset({"metadata.partition"})
    facts: Facts = {"partition": ORDERS, "server": slot_scope("broker-1")}
    found = candidates(history.events(), facts, (proof,), reads, unread)
    assert (found[0].position, found[0].how) == (first, BETWEEN)
    assert found[1].how == LATER


def test_of_losses_of_several_scopes_after_the_proof_the_first_is_the_likeliest() -> None:
    """The leadership went to another at once; the broker that is stated lost its id later, and has
    both again."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    first = len(history.events()) - 1
    history.add("broker-1-duplicate#1", registered(65))
    back = k.BrokerCommitted(offset=70, broker_id=1, broker_epoch=66, fenced=False, incarnation="a")
    history.add("controller-1#1", back)
    history.add("controller-1#1", led(1, 2))
    history.add("clients/reader#1", ACKNOWLEDGED)
    kinds = frozenset({"metadata.partition", "metadata.broker", "zookeeper.broker_registered"})
    facts: Facts = {"partition": ORDERS, "owner": Scope("broker", "1")}
    found = candidates(history.events(), facts, (proof,), frozenset(), kinds)
    assert [one.how for one in found if one.sure == found[0].sure] == [BETWEEN, BETWEEN]
    assert found[0].position == first


@pytest.mark.parametrize(("later_ms", "how"), [(2_000, BEFORE), (20_000, NOTHING)])
def test_a_holder_that_was_deposed_right_before_the_proof_may_have_told_it(
    later_ms: int, how: str
) -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    history.after(later_ms).add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.after(20_000).add("clients/reader#1", ACKNOWLEDGED)
    reads, unread = frozenset({"client.produce_completed"}), frozenset({"metadata.partition"})
    found = candidates(history.events(), {"partition": ORDERS}, (proof,), reads, unread)
    assert found[0].how == how


def test_a_late_report_that_the_stated_server_has_it_is_no_loss_of_it() -> None:
    history = started()
    history.add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    history.add("controller-1#1", led(1, 2))
    last = len(history.events()) - 1
    history.add("clients/reader#1", ACKNOWLEDGED)
    reads, unread = frozenset({"client.produce_completed"}), frozenset({"metadata.partition"})
    facts: Facts = {"partition": ORDERS, "server": slot_scope("broker-2")}
    found = candidates(history.events(), facts, (proof,), reads, unread)[0]
    assert (found.position, found.how) == (last, LOST)


def test_what_the_stated_server_took_after_the_proof_by_its_own_word_is_a_loss() -> None:
    """A server refused what it lacks: it was elected after the proof."""
    history = started()
    history.after(20_000).add("clients/producer#1", ACKNOWLEDGED)
    proof = history.events()[-1]
    history.add("controller-1#1", led(2, 1))
    taken = len(history.events()) - 1
    history.add("broker-2#1", replace(LEADERSHIP, leader_epoch=1))
    history.after(20_000).add("clients/reader#1", ACKNOWLEDGED)
    told = frozenset({"metadata.partition", "replica.leadership_started"})
    facts: Facts = {"partition": ORDERS, "server": Scope("broker", "2")}
    reads = frozenset({"client.produce_completed"})
    found = candidates(history.events(), facts, (proof,), reads, told)[0]
    assert (found.position, found.how) == (taken, BETWEEN)


class Named(Struct, frozen=True, tag="test.named"):
    """A third party names the leader of an epoch."""

    node: str
    epoch: int

    def authority(self) -> tuple[Authority, ...]:
        return (
            Authority("partition orders-0", Change.GAINED, self.epoch, holder=None, node=self.node),
        )


def test_an_event_that_names_another_holder_of_the_epoch_does_not_report_the_first_one() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    taken = len(history.events()) - 1
    history.add("clients/observer#1", Named("broker 1", 1))
    reads = frozenset({"metadata.partition", "test.named"})
    facts: Facts = {"node": Scope("broker", "1"), "other": Scope("broker", "2")}
    found = candidates(history.events(), facts, (history.events()[taken],), reads)
    assert BROKE not in {one.how for one in found if one.position == taken}


def test_a_loss_that_was_made_good_explains_less_than_nothing_does_beside_a_proof() -> None:
    history = started()
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    history.after(1_000).add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    history.add("broker-1#1", ADVANCED)
    proof = history.events()[-1]
    lost = stored(history)
    reads = frozenset({"broker.state_changed"})
    writes = {**broker(1), "partition": ORDERS}
    assert candidates(lost, writes, (proof,), reads)[0].how == LOST
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    regained = stored(history)
    first, second = candidates(regained, writes, (proof,), reads)
    assert (first.how, second.how) == (NOTHING, UNPROVEN)
    assert candidates(regained, writes, (), reads)[0].how == REGAINED


def test_a_member_that_is_only_listed_is_no_party_by_what_it_has_again() -> None:
    """A failure is about what stands alone in it. A list of members is the background, such as the
    ISR that was answered: what one of them had lost and got back is only near."""
    history = started()
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    history.after(9_000).add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    history.after(900)
    events = stored(history, 2)
    reads = frozenset({"broker.state_changed"})
    alone = candidates(events, {"leader": Scope("broker", "1")}, reads=reads)
    listed = candidates(events, {"isr": (Scope("broker", "2"), Scope("broker", "1"))}, reads=reads)
    assert [one.how for one in alone] == [REGAINED, NOTHING]
    assert [one.how for one in listed] == [NOTHING, CONCERNED]
    # What it has not got back explains what it does, or does not do.
    history.add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    lost = stored(history, 2)
    assert candidates(lost, {"isr": (Scope("broker", "1"),)}, reads=reads)[0].how == LOST


def test_what_a_member_that_is_only_listed_led_once_is_only_near() -> None:
    """It lost the leadership long ago, and follows since."""
    history = started()
    for epoch in range(1, 7):
        history.after(1_000).add("controller-1#1", led(1 + epoch % 2, epoch))
    events = stored(history.after(9_000), 3)
    listed: Facts = {"isr": (Scope("broker", "1"), Scope("broker", "2")), "partition": ORDERS}
    found = candidates(events, listed)
    assert (found[0].how, {one.how for one in found}) == (NOTHING, {NOTHING, CONCERNED})
    assert candidates(events, {**listed, **broker(2)})[0].how == LOST


def test_what_a_decision_took_from_a_member_that_is_only_listed_explains_nothing() -> None:
    history = HistoryBuilder("run")
    history.add("broker-1#1", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    history.add("controller-1#1", LEADS)
    history.add("controller-1#1", led(2, 1))
    events = stored(history, 3)
    listed: Facts = {"before": (Scope("broker", "1"), Scope("broker", "2")), "partition": ORDERS}
    first, second = candidates(events, listed)
    assert (first.how, second.how) == (NOTHING, GAVE_UP)
    # Nor is it more than near that such a member took it.
    taken = candidates(events, {**listed, "before": (Scope("broker", "2"),)})
    assert [one.how for one in taken if one.position >= 0] == [CONCERNED]
    assert candidates(events, {"partition": ORDERS, **broker(1)})[0].how == LOST


def test_what_the_new_leader_had_lost_is_no_cause_of_its_election() -> None:
    """It has it again. What the leader before it lost is."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("broker-2#1", active(2, "ACTIVE", "FENCED"))
    history.after(7_000).add("broker-2#1", active(2, "FENCED", "ACTIVE"))
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", registered(65))
    back = k.BrokerCommitted(offset=66, broker_id=1, broker_epoch=65, fenced=False, incarnation="b")
    history.after(200).add("controller-1#1", back)
    history.add("broker-2#1", active(2, "ACTIVE", "FENCED"))
    history.add("controller-1#1", led(1, 1))
    history.add("controller-1#1", led(2, 2))
    kinds = (
        *("zookeeper.broker_registered", "broker.state_changed"),
        *("metadata.partition", "metadata.broker"),
    )
    facts: Facts = {"leader": Scope("broker", "2"), "former": Scope("broker", "1")}
    found = candidates(history.events(), facts, reads=frozenset(kinds))
    hows = {one.scope: one.how for one in found if one.scope.startswith("broker")}
    assert (found[0].scope, hows) == ("broker 1", {"broker 1": REGAINED, "broker 2": CONCERNED})


def test_of_two_losses_the_one_whose_holder_goes_on_by_the_failing_event_comes_last() -> None:
    history = started()
    # The leader is the last to be fenced: newest first would blame it.
    told = ((1, False), (2, False), (2, True), (1, True))
    for offset, (number, fenced) in enumerate(told, start=2):
        record = k.BrokerCommitted(
            offset=offset, broker_id=number, broker_epoch=number, fenced=fenced, incarnation="a"
        )
        history.add("controller-1#1", record)
    history.add("controller-1#1", replace(led(1, 1), isr=(1,)))
    facts = {"leader": Scope("broker", "1"), "gone": (Scope("broker", "2"),), "partition": ORDERS}
    first, second, *_ = candidates(
        history.events(), facts, reads=frozenset({"metadata.partition", "metadata.broker"})
    )
    assert (first.how, first.scope) == (LOST, "broker 2")
    assert (second.how, second.scope) == (LOST, "broker 1")


def test_a_leadership_that_its_holder_gave_up_is_a_decision_and_explains_nothing() -> None:
    ended = k.LeadershipEnded(topic="orders", partition=0, leader_epoch=0, reason="unassigned")
    given_up, taken = HistoryBuilder("run"), HistoryBuilder("run")
    for history in (given_up, taken):
        history.add("broker-1#1", NodeStarted(role="broker", node_id=1))
        history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
        history.add("controller-1#1", LEADS)
    taken.add("controller-1#1", led(2, 1))
    for history in (given_up, taken):
        history.add("broker-1#1", ended)
    events = stored(given_up)
    assert [one.how for one in candidates(events)] == [NOTHING, GAVE_UP]
    assert candidates(stored(taken))[0].how == LOST
    # A client finds no leader then.
    assert candidates(events, reads=None)[0].how == LOST


def test_a_scopes_name_in_that_of_a_process_does_not_name_the_scope() -> None:
    history = started()
    for process in ("controller-1#1", "controller-2#1"):
        epoch = int(process[11])
        history.add(process, NodeStarted(role="controller", node_id=100 + epoch))
        history.add(process, k.ControllerElected(epoch=epoch, log_end=epoch, last_epoch=0))
    history.add("broker-1#1", k.BrokerStopping(broker_id=1, state="", global_state="", limit_ms=1))
    proof = history.events()[-1]
    events = stored(history)
    reads = frozenset({"quorum.controller_elected"})
    acting, controller = process_scope("controller-1#1"), Scope("controller", "")
    of_process = candidates(events, {"process": acting}, (proof,), reads)
    of_scope = candidates(events, {"process": acting, "controller": controller}, (proof,), reads)
    assert (of_process[0].how, of_scope[0].how) == (NOTHING, LOST)


def registered(epoch: int) -> k.BrokerRegistered:
    """A process of broker 1 registers."""
    return k.BrokerRegistered(
        broker_id=1, broker_epoch=epoch, session=epoch, version=5, overwrote=True
    )


def restarted() -> HistoryBuilder:
    """Broker 1, which was started anew and registered at once; much later it does something."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", registered(65))
    return history


def restarted_broker(facts: Facts, because: Sequence[Event] = ()) -> CandidateRow:
    """What explains a failure of the new process."""
    history = restarted()
    stopping = k.BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1)
    history.after(1).add("broker-1#2", stopping)
    reads = frozenset({"zookeeper.broker_registered"})
    return candidates(history.events(), facts, because, reads)[0]


def test_a_process_that_starts_anew_explains_no_failure_of_its_own() -> None:
    assert restarted_broker(RESTARTED_BROKER).how == NOTHING
    history = restarted()
    history.add("broker-1#2", k.BrokerStopping(broker_id=1, state="", global_state="", limit_ms=1))
    reads = frozenset({"zookeeper.broker_registered"})
    found = candidates(history.events(), RESTARTED_BROKER, reads=reads)
    assert [one.how for one in found] == [NOTHING, RESTARTED]


def test_what_a_stated_node_lost_and_has_again_with_its_next_process_is_no_loss_any_more() -> None:
    history = restarted()
    history.add("controller-1#1", led(2, 1))
    reads = frozenset({"zookeeper.broker_registered"})
    of_node = candidates(history.events(), broker(1), reads=reads)
    assert LOST not in {one.how for one in of_node if one.scope == "broker 1"}
    # What its former process does is another matter.
    former: Facts = {**broker(1), "process": process_scope("broker-1#1")}
    of_process = candidates(history.events(), former, reads=reads)
    assert LOST in {one.how for one in of_process if one.scope == "broker 1"}


def test_a_registration_that_breaks_a_promise_is_explained_by_no_restart() -> None:
    """The new process registered in a wrong way, and its node is stated: what the process before it
    lost explains nothing of that."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", registered(65))
    facts = {**RESTARTED_BROKER, **broker(1)}
    reads = frozenset({"zookeeper.broker_registered", "broker.state_changed"})
    found = candidates(history.events(), facts, reads=reads)
    assert [one.how for one in found] == [NOTHING, RESTARTED]


def test_what_came_before_the_registration_that_proves_a_failure_explains_nothing() -> None:
    """The failure is about the epoch that began then. A third party tells of it, too, which knows
    the node alone: so the node has it again."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", registered(65))
    began = history.events()[-1]
    record = k.BrokerCommitted(
        offset=65, broker_id=1, broker_epoch=65, fenced=False, incarnation="b"
    )
    history.add("controller-1#1", record)
    facts = {"process": process_scope("controller-1#1"), **broker(1), "epoch": 65}
    reads = frozenset({"zookeeper.broker_registered", "broker.state_changed", "metadata.broker"})
    found = candidates(stored(history, 2), facts, (began,), reads)
    assert [one.how for one in found] == [NOTHING, RESTARTED]
    # One that states the epoch before, too, is about what ended it.
    found = candidates(stored(history, 2), {**facts, "asked": 36}, (began,), reads)
    assert found[0].how == NAMED


def test_a_gain_that_a_rule_names_stands_for_the_restart_if_the_failure_names_both_epochs() -> None:
    gain = restarted().events()[-1]
    both = restarted_broker({**RESTARTED_BROKER, "asked": 36, "epoch": 65}, (gain,))
    own = restarted_broker({**RESTARTED_BROKER, "epoch": 65}, (gain,))
    assert (both.how, both.scope, own.how) == (NAMED, "broker 1", NOTHING)


@pytest.mark.parametrize(("leads_on", "how"), [(True, SUPERSEDED), (False, NOTHING)])
def test_a_process_that_leads_after_another_took_its_nodes_authority_is_the_cause(
    leads_on: bool, how: str
) -> None:
    """The former process of the node did not end: it leads beside the other one. What its rules
    read does not matter then."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("broker-1-duplicate#1", NodeStarted(role="broker", node_id=1))
    history.add("broker-1-duplicate#1", registered(65))
    history.add("broker-1-duplicate#1", replace(LEADERSHIP, leader_epoch=1))
    by = "broker-1#1" if leads_on else "broker-1-duplicate#1"
    history.add(by, replace(LEADERSHIP, leader_epoch=1))
    events = stored(history)
    facts = {**STORED, "other": process_scope("broker-1-duplicate#1")}
    first = candidates(events, facts, (), frozenset({"replica.leadership_started"}))[0]
    assert first.how == how
    assert first.scope == ("broker 1" if leads_on else "")


@pytest.mark.parametrize(("after", "how"), [(True, NAMED), (False, NOTHING)])
def test_an_election_of_the_same_node_after_the_proof_began_is_a_loss_that_a_rule_names(
    after: bool, how: str
) -> None:
    """The new process knows nothing of what its former one had begun to wait for."""
    history = started()
    for number in (1, 2):
        process = f"controller-1#{number}"
        history.add(process, NodeStarted(role="controller", node_id=101))
        if (number == 2) is after:
            history.add(
                "harness",
                ProcessExited(ended="broker-2#1", exit_code=0, signal=9, expected=True),
            )
            death = history.events()[-1]
        history.add(process, k.ControllerElected(epoch=number, log_end=0, last_epoch=0))
    election = history.events()[-1]
    reads = frozenset({"quorum.controller_elected"})
    events = stored(history)
    found = candidates(events, broker(2), (death, election) if after else (election,), reads)
    assert found[0].how == how


@pytest.mark.parametrize(("by", "how"), [(1, NOTHING), (2, LOST)])
def test_what_a_process_gives_up_as_it_ends_is_not_why_it_ends(by: int, how: str) -> None:
    history = started()
    for number in (1, 2):
        node = NodeStarted(role="controller", node_id=100 + number)
        history.add(f"controller-{number}#1", node)
    history.add("controller-1#1", k.ControllerElected(epoch=1, log_end=0, last_epoch=0))
    taken = k.ControllerElected(epoch=2, log_end=0, last_epoch=0)
    given_up = k.ControllerResigned(epoch=1, reason="failed")
    history.after(60_000).add(f"controller-{by}#1", given_up if by == 1 else taken)
    exited = ProcessExited(ended="controller-1#1", exit_code=1, signal=0, expected=False)
    history.add("harness", exited)
    reads = frozenset({"quorum.controller_resigned", "quorum.controller_elected"})
    facts: Facts = {"process": process_scope("controller-1#1")}
    found = candidates(history.events(), facts, reads=reads)
    assert (found[0].how, len(found)) == (how, 2)


def active(broker: int, new: str, old: str) -> k.BrokerStateChanged:
    """A broker becomes active, or fences itself."""
    return k.BrokerStateChanged(
        broker_id=broker,
        old=old,  # type: ignore[arg-type]
        new=new,  # type: ignore[arg-type]
        broker_epoch=1,
        reason="unfenced",
    )


def test_an_election_by_a_decision_alone_is_the_failure_and_not_its_cause() -> None:
    elected = broker(2)
    healthy = HistoryBuilder("run")
    healthy.add("broker-1#1", NodeStarted(role="broker", node_id=1))
    healthy.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    healthy.add("controller-1#1", LEADS)
    fenced = HistoryBuilder("run")
    for event in healthy.events():
        fenced.add(event.process, event.body)
    fenced.add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    late = HistoryBuilder("run")
    late.add("broker-1#1", NodeStarted(role="broker", node_id=1))
    late.add("controller-1#1", LEADS)
    late.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    for history in (healthy, fenced, late):
        history.add("controller-1#1", led(2, 1))
    first, second = candidates(healthy.events(), elected)
    assert (first.how, second.how) == (NOTHING, DECIDED)
    assert candidates(fenced.events(), elected)[0].how == BROKE
    # It got the leadership before it was active: then it is not known to have been well.
    assert candidates(late.events(), elected)[0].how == BROKE


def test_a_leader_that_tells_of_its_election_later_than_the_record_took_no_more_than_that() -> None:
    """The broker was started anew and elected again: the record names its node, and its new process
    says that it leads. So the leadership was lost when the process before it lost it."""
    history = started()
    leads = k.LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=0,
        isr=(1, 2),
        log_start=0,
        log_end=5,
        high_watermark=5,
    )
    history.add("broker-1#1", active(1, "ACTIVE", "FENCED"))
    history.add("broker-1#1", leads)
    history.add("broker-1#1", active(1, "FENCED", "ACTIVE"))
    ended = k.LeadershipEnded(topic="orders", partition=0, leader_epoch=0, reason="metadata")
    history.add("broker-1#1", ended)
    lost = len(history.events()) - 1
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", active(1, "ACTIVE", "FENCED"))
    history.add("controller-1#1", led(1, 1))
    history.add("broker-1#2", replace(leads, leader_epoch=1, log_end=0))
    reads = frozenset({"replica.leadership_started", "metadata.partition"})
    facts: Facts = {**RESTARTED_BROKER, "partition": ORDERS}
    first = candidates(history.events(), facts, reads=reads)[0]
    assert (first.position, first.how) == (lost, BROKE)


def test_a_process_that_does_not_know_its_epoch_took_no_more_than_a_third_party_tells() -> None:
    """A broker of Kafka over ZooKeeper prints that it runs again, and an observer knows the epoch:
    what the process before it lost is one loss, and comes first."""
    history = started()
    gone = k.BrokerCommitted(offset=9, broker_id=1, broker_epoch=36, fenced=True, incarnation="a")
    history.add("broker-1#1", replace(active(1, "ACTIVE", "FENCED"), broker_epoch=36))
    history.add("clients/observer#1", gone)
    lost = len(history.events()) - 1
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    back = replace(gone, offset=66, broker_epoch=65, fenced=False)
    history.add("clients/observer#1", back)
    history.add("broker-1#2", replace(active(1, "ACTIVE", "FENCED"), broker_epoch=-1))
    reads = frozenset({"metadata.broker", "broker.state_changed"})
    first = candidates(stored(history, 3), broker(1), reads=reads)[0]
    assert (first.position, first.how) == (lost, LOST)


def test_a_leader_whose_process_was_replaced_had_lost_something_before_another_was_elected() -> (
    None
):
    """The registration of its next process is a gain, and takes from the process before."""
    history = started()
    history.add("broker-1#1", registered(36))
    history.add("controller-1#1", led(1, 1))
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", registered(65))
    history.add("controller-1#1", led(2, 2))
    first = candidates(history.events(), broker(2))[0]
    assert (first.position, first.how) == (len(history.events()) - 1, BROKE)


def test_an_election_of_the_former_leader_anew_broke_the_promise_by_what_it_had_lost() -> None:
    """All brokers were killed, and the next process of the one that had led leads again."""
    history = started()
    leads = k.LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=2,
        isr=(1,),
        log_start=0,
        log_end=0,
        high_watermark=0,
    )
    history.add("broker-1#1", ADVANCED)
    proof = history.events()[-1]
    history.add("clients/observer#1", led(-1, 1))
    lost = len(history.events()) - 1
    history.add("broker-1#2", NodeStarted(role="broker", node_id=1))
    history.add("broker-1#2", leads)
    reads = frozenset({"replica.leadership_started", "metadata.partition"})
    facts: Facts = {**RESTARTED_BROKER, "partition": ORDERS}
    first = candidates(history.events(), facts, (proof,), reads)[0]
    assert (first.position, first.how) == (lost, BROKE)


def test_a_later_record_of_the_same_epoch_is_not_the_election() -> None:
    history = started()
    history.add("controller-1#1", led(2, 1))
    again = k.PartitionCommitted(
        offset=30,
        topic="orders",
        partition=0,
        leader=2,
        leader_epoch=1,
        isr=(2,),
        replicas=(1, 2),
    )
    assert candidates(history.events(), facts=broker(2))[0].how == BROKE
    history.after(1_000).add("controller-1#1", again)
    assert candidates(history.events(), facts=broker(2))[0].how != BROKE
