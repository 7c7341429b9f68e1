"""The rules of fencing, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.brokers.fencing_histories import (
    BROKER,
    CONTROLLER,
    DUPLICATE,
    LEADER,
    MS,
    active,
    beat,
    change,
    count,
    probe,
    refuse,
    serve,
    store,
    taken_over,
    verdict,
)
from tests.suites.partition_histories import stated
from tests.suites.replication.replication_histories import acknowledge

from fencepost import Evidence, NodeStarted, ProcessExited, ProcessSpawned, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    ChangeAnswered,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    RequestRefused,
)

# ------------------------------------------------------------------------------------------ QC-17


def test_a_write_stored_after_the_fence_breaks_qc_17() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    store(h)
    found = verdict(h, "QC-17").violations[0]
    assert [str(ref) for ref in found.because] == [f"{BROKER}@3"]


@pytest.mark.parametrize("clause", ["QC-17", "HB-07"])
def test_a_fenced_process_was_active_by_its_events_whatever_it_says_that_it_was(
    clause: str,
) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "INITIAL", "FENCED")
    store(h)
    plane = "quorum" if clause == "QC-17" else "legacy"
    assert verdict(h, clause, plane=plane).verdict is Outcome.VIOLATED


def test_a_fetch_served_long_after_the_fence_breaks_qc_17() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(1000)
    serve(h)
    assert verdict(h, "QC-17").verdict is Outcome.VIOLATED


def test_a_broker_that_is_silent_about_its_start_breaks_qc_17_all_the_same() -> None:
    h = HistoryBuilder()
    spawned = ProcessSpawned(started=BROKER, slot="broker-1", role="broker", node_id=1, pid=1)
    h.add("harness", spawned)
    change(h, "ACTIVE", "FENCED")
    store(h)
    assert verdict(h, "QC-17").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("stalled_ms", "outcome"), [(950, Outcome.UNKNOWN), (500, Outcome.VIOLATED)]
)
def test_a_fetch_that_may_have_come_before_a_stall_leaves_qc_17_undecided(
    stalled_ms: int, outcome: Outcome
) -> None:
    """A broker that waits for messages is paused right after it fenced itself."""
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(1000)
    h.add(BROKER, Stalled(stalled_ns=stalled_ms * MS))
    serve(h)
    assert verdict(h, "QC-17").verdict is outcome


@pytest.mark.parametrize("api", ["Fetch", "Produce", "Metadata"])
def test_a_probe_answered_after_the_fence_breaks_qc_17(api: str) -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(10)
    probe(h, "answered", sent_ms=8, api=api)
    assert verdict(h, "QC-17").violations[0].evidence is Evidence.CLIENT


def test_a_probe_of_the_next_process_breaks_nothing_though_that_tells_nothing_of_itself() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    again = BROKER.replace("#1", "#2")
    spawned = ProcessSpawned(started=again, slot="broker-1", role="broker", node_id=1, pid=2)
    h.add("harness", spawned)
    probe(h.after(20), "answered", sent_ms=12, api="Metadata")
    assert verdict(h, "QC-17").violated == 0


def test_a_broker_that_does_not_notice_the_end_of_its_lease_breaks_qc_17() -> None:
    h = HistoryBuilder()
    active(h)
    h.after(3200)
    store(h)
    assert stated(verdict(h, "QC-17"), "fenced") is False


def test_requests_refused_after_the_fence_keep_qc_17() -> None:
    h = HistoryBuilder()
    active(h)
    store(h)
    change(h, "ACTIVE", "FENCED")
    store(h, as_leader=False)
    h.after(10)
    refuse(h)
    probe(h, "refused", sent_ms=13)
    change(h, "FENCED", "ACTIVE")
    store(h)
    found = verdict(h, "QC-17")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_request_from_before_the_fence_may_be_answered_after_it() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    serve(h)
    probe(h, "answered", sent_ms=2)
    assert verdict(h, "QC-17").verdict is Outcome.NOT_EXERCISED


def test_a_probe_refused_for_another_reason_does_not_exercise_qc_17() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    h.after(10)
    refuse(h, reason="not_leader")
    probe(h, "refused", sent_ms=11)
    assert verdict(h, "QC-17").verdict is Outcome.NOT_EXERCISED


def test_a_stall_between_the_lease_and_the_write_leaves_qc_17_undecided() -> None:
    h = HistoryBuilder()
    active(h)
    h.after(3200)
    h.add(BROKER, Stalled(stalled_ns=250 * MS))
    store(h)
    assert verdict(h, "QC-17").verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-05


def test_a_metadata_request_answered_before_the_first_activity_breaks_reg_05() -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    probe(h, "answered", sent_ms=1, api="Metadata")
    assert verdict(h, "REG-05").violations[0].evidence is Evidence.CLIENT


def test_a_write_stored_before_the_first_activity_breaks_reg_05() -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    change(h, "INITIAL", "FENCED")
    store(h)
    assert verdict(h, "REG-05").violations[0].evidence is Evidence.SELF


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [("NONE", Outcome.VIOLATED), ("NOT_LEADER_OR_FOLLOWER", Outcome.NOT_EXERCISED)],
)
def test_a_write_acknowledged_before_the_first_activity_breaks_reg_05(
    registered: bool, error: str, outcome: Outcome
) -> None:
    """Though nobody says that it was stored: the answer calls it a duplicate."""
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    if registered:
        change(h, "INITIAL", "FENCED")
    acknowledge(h, 7, (7,), 7, duplicate=True, process=BROKER, error=error)
    assert verdict(h, "REG-05").verdict is outcome


def test_a_broker_that_is_silent_about_its_start_breaks_reg_05_all_the_same() -> None:
    h = HistoryBuilder()
    spawned = ProcessSpawned(started=BROKER, slot="broker-1", role="broker", node_id=1, pid=1)
    h.add("harness", spawned)
    store(h)
    probe(h, "answered", sent_ms=1, api="Metadata")
    found = [one.evidence for one in verdict(h, "REG-05").violations]
    assert found == [Evidence.SELF, Evidence.CLIENT]


@pytest.mark.parametrize("spawned", [False, True])
def test_a_broker_that_tells_late_that_it_began_was_active_before(spawned: bool) -> None:
    h = HistoryBuilder()
    if spawned:
        body = ProcessSpawned(started=BROKER, slot="broker-1", role="broker", node_id=1, pid=1)
        h.add("harness", body)
    change(h, "FENCED", "ACTIVE")
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="a", log_end=0))
    store(h)
    assert verdict(h, "REG-05").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("outcome", ["refused", "closed"])
def test_a_starting_broker_that_refuses_keeps_reg_05(outcome: str) -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    change(h, "INITIAL", "FENCED")
    refuse(h, api="Metadata")
    probe(h, outcome, sent_ms=1)
    change(h, "FENCED", "ACTIVE")
    store(h)
    serve(h)
    found = verdict(h, "REG-05")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_connection_closed_by_a_link_does_not_exercise_reg_05() -> None:
    """A link without a listener behind it closes connections, too."""
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    probe(h, "closed", sent_ms=1)
    assert verdict(h, "REG-05").verdict is Outcome.NOT_EXERCISED


def test_reg_05_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    refuse(h)
    assert verdict(h, "REG-05", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-19


def test_a_loser_whose_heartbeat_is_accepted_breaks_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    beat(h, "old")
    found = verdict(h, "QC-19").violations[0]
    assert stated(found, "api", "other") == ("heartbeat", DUPLICATE)
    assert [str(ref) for ref in found.because] == [f"{CONTROLLER}@1"]


def test_a_loser_whose_fetch_counts_breaks_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, LEADER)
    count(h, BROKER)
    found = verdict(h, "QC-19")
    assert stated(found, "process", "partition", "client") == (LEADER, "orders-0", BROKER)


def starts(h: HistoryBuilder, process: str, incarnation: str) -> None:
    h.add(process, NodeStarted(role="broker", node_id=1, incarnation=incarnation, log_end=0))


def replays(h: HistoryBuilder, node: str, incarnation: str, offset: int) -> None:
    """A node replays the registration of broker 1."""
    body = BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=offset, fenced=False, incarnation=incarnation
    )
    h.add(node, body)


@pytest.mark.parametrize(
    ("epoch", "known", "broken"), [(5, True, 1), (-1, False, 1), (5, False, 0)]
)
def test_a_process_that_was_never_given_the_id_counts_for_nothing(
    epoch: int, known: bool, broken: int
) -> None:
    """The second process is refused, and fetches all the same."""
    h = HistoryBuilder()
    starts(h, BROKER, "old")
    if known:
        starts(h, DUPLICATE, "new")
    replays(h, LEADER, "old", 5)
    count(h, DUPLICATE, epoch)
    count(h, BROKER)
    found = verdict(h, "QC-19")
    assert found.violated == broken
    if broken:
        assert stated(found, "process", "client", "broker") == (LEADER, DUPLICATE, "broker 1")


def test_a_leader_may_replay_a_registration_later_than_its_first_fetch() -> None:
    h = HistoryBuilder()
    starts(h, BROKER, "old")
    starts(h, DUPLICATE, "new")
    replays(h, LEADER, "old", 5)
    count(h, DUPLICATE, 9)
    assert verdict(h, "QC-19", complete=False).verdict is Outcome.UNKNOWN
    replays(h, LEADER, "new", 9)
    assert verdict(h, "QC-19").violated == 0


def test_a_loser_whose_isr_change_is_accepted_breaks_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    h.add(
        CONTROLLER,
        ChangeAnswered(
            api="AlterIsr",
            client=BROKER,
            error="NONE",
            offset=12,
            high_watermark=13,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-19").verdict is Outcome.VIOLATED


def test_an_isr_change_made_before_the_takeover_may_be_answered_after_it() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    h.add(
        CONTROLLER,
        ChangeAnswered(
            api="AlterIsr",
            client=BROKER,
            error="NONE",
            offset=5,
            high_watermark=13,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-19").verdict is not Outcome.VIOLATED


def claim(h: HistoryBuilder) -> None:
    """A second process starts with the id of a live one."""
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    h.add(
        CONTROLLER,
        BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="old"),
    )
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))


def keep_out(h: HistoryBuilder, error: str = "DUPLICATE_BROKER_REGISTRATION") -> None:
    body = HeartbeatAnswered(
        client=DUPLICATE,
        broker_id=1,
        incarnation="new",
        request_epoch=-1,
        broker_epoch=-1,
        error=error,
        next_state="FENCED",
        lease_start_ms=0,
        lease_end_ms=-1,
        lease_period_ms=3000,
        controller_epoch=1,
        active_controller=101,
        active=error != "NOT_CONTROLLER",
    )
    h.add(CONTROLLER, body)


def say_refused(h: HistoryBuilder) -> None:
    error = "DUPLICATE_BROKER_REGISTRATION"
    h.add(DUPLICATE, HeartbeatRefused(broker_id=1, broker_epoch=-1, error=error, controller=101))


def test_a_newer_process_that_is_refused_its_id_breaks_qc_19() -> None:
    h = HistoryBuilder()
    claim(h)
    keep_out(h)
    found = verdict(h, "QC-19")
    assert stated(found, "process", "other") == (DUPLICATE, BROKER)
    assert found.violations[0].evidence is Evidence.SELF


@pytest.mark.parametrize("answers", [False, True])
def test_what_a_newer_process_tells_of_its_refusal_counts_if_no_controller_answers(
    answers: bool,
) -> None:
    h = HistoryBuilder()
    claim(h)
    if answers:
        beat(h, "old")
    say_refused(h)
    assert verdict(h, "QC-19").violated == (0 if answers else 1)
    assert verdict(h, "QC-19", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "why", ["another error", "it lost the id", "the older one is dead", "a third process"]
)
def test_a_newer_process_may_be_refused_for_another_reason(why: str) -> None:
    h = HistoryBuilder()
    claim(h)
    if why == "it lost the id":
        for offset, incarnation in ((9, "new"), (12, "old, again")):
            h.add(
                CONTROLLER,
                BrokerCommitted(
                    offset=offset,
                    broker_id=1,
                    broker_epoch=offset,
                    fenced=True,
                    incarnation=incarnation,
                ),
            )
    if why == "the older one is dead":
        h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    if why == "a third process":
        h.add("broker-1#3", NodeStarted(role="broker", node_id=1, incarnation="z", log_end=0))
    keep_out(h, "NOT_CONTROLLER" if why == "another error" else "DUPLICATE_BROKER_REGISTRATION")
    assert verdict(h, "QC-19").violated == 0


def test_a_loser_that_stays_active_once_it_was_refused_breaks_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    h.add(
        BROKER,
        HeartbeatRefused(
            broker_id=1, broker_epoch=5, error="DUPLICATE_BROKER_REGISTRATION", controller=101
        ),
    )
    h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=7,
            target_state="ACTIVE",
            lease_start_ms=0,
            metadata_offset=3,
        ),
    )
    assert stated(verdict(h, "QC-19"), "process") == BROKER


def test_a_loser_refused_everywhere_keeps_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER, LEADER)
    beat(h, "old", "DUPLICATE_BROKER_REGISTRATION")
    h.add(
        BROKER,
        HeartbeatRefused(
            broker_id=1, broker_epoch=5, error="DUPLICATE_BROKER_REGISTRATION", controller=101
        ),
    )
    change(h, "ACTIVE", "FENCED")
    h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=7,
            target_state="ACTIVE",
            lease_start_ms=0,
            metadata_offset=3,
        ),
    )
    refused = RequestRefused(
        api="Fetch",
        topic="",
        partition=-1,
        client=BROKER,
        requester=1,
        error="STALE_BROKER_EPOCH",
        reason="x",
        state="ACTIVE",
    )
    h.add(LEADER, refused)
    beat(h, "new")
    count(h, DUPLICATE)
    found = verdict(h, "QC-19")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 3, Evidence.PEER)


def test_an_id_given_back_to_its_loser_breaks_qc_19() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER, LEADER)
    for process in (CONTROLLER, LEADER):
        h.add(
            process,
            BrokerCommitted(
                offset=14, broker_id=1, broker_epoch=14, fenced=True, incarnation="old"
            ),
        )
    found = verdict(h, "QC-19")
    assert found.violated == 1
    assert stated(found, "incarnation", "other_incarnation") == ("old", "new")


@pytest.mark.parametrize("later", [True, False])
def test_a_node_that_misquotes_a_record_gives_no_id_to_another_process(later: bool) -> None:
    """Others told of the record at that offset before; whether nodes differ, QC-06 judges."""
    h = HistoryBuilder()
    taken_over(h)
    for process, incarnation in ((LEADER, "old"), (CONTROLLER, "new")):
        h.add(
            process,
            BrokerCommitted(
                offset=7, broker_id=1, broker_epoch=5, fenced=True, incarnation=incarnation
            ),
        )
    if later:
        h.add(
            CONTROLLER,
            BrokerCommitted(offset=9, broker_id=1, broker_epoch=9, fenced=True, incarnation="old"),
        )
    beat(h, "old")
    assert verdict(h, "QC-19").verdict is Outcome.NOT_EXERCISED


def test_an_old_record_replayed_late_gives_no_id_back() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER, LEADER)
    h.add(
        "broker-3#1",
        BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="old"),
    )
    h.add(
        "broker-3#1",
        BrokerCommitted(offset=8, broker_id=1, broker_epoch=5, fenced=True, incarnation="old"),
    )
    assert verdict(h, "QC-19").verdict is not Outcome.VIOLATED


def test_a_node_that_has_not_replayed_the_takeover_may_still_count_the_old_one() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    count(h, BROKER)
    assert verdict(h, "QC-19").verdict is Outcome.NOT_EXERCISED


def test_qc_19_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    taken_over(h, CONTROLLER)
    beat(h, "old", "DUPLICATE_BROKER_REGISTRATION")
    assert verdict(h, "QC-19", complete=False).verdict is Outcome.UNKNOWN
