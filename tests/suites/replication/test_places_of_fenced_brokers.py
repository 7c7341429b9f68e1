"""QC-30 to the millisecond, and which record takes a place or gives one."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import ALL3, CONTROLLER, partition, record, stated, verdict

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, BrokerDeleted, TopicCommitted


def broker(h: HistoryBuilder, offset: int, number: int, fenced: bool) -> None:
    body = BrokerCommitted(
        offset=offset,
        broker_id=number,
        broker_epoch=offset,
        fenced=fenced,
        incarnation=f"u{number}",
    )
    h.add(CONTROLLER, body)


def fenced_leader(isr: tuple[int, ...] = ALL3, leader: int = 1) -> HistoryBuilder:
    """The leader of a partition with that ISR is fenced."""
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=leader, epoch=1, isr=isr)
    broker(h, 5, 1, fenced=True)
    return h


# ------------------------------------------------------------------------------- to the millisecond


@pytest.mark.parametrize(("more_ms", "expected"), [(0, Outcome.HOLDS), (1, Outcome.VIOLATED)])
def test_a_fenced_broker_may_keep_its_places_for_five_seconds(
    more_ms: int, expected: Outcome
) -> None:
    h = fenced_leader()
    h.after(5_000 - 1 + more_ms)
    partition(h, 6, leader=2, epoch=2, isr=(2, 3))
    assert verdict(h, "QC-30").verdict is expected


@pytest.mark.parametrize(("more_ms", "expected"), [(0, Outcome.UNKNOWN), (1, Outcome.VIOLATED)])
def test_so_it_may_to_the_end_of_the_run(more_ms: int, expected: Outcome) -> None:
    h = fenced_leader()
    h.after(5_000 - 1 + more_ms)
    assert verdict(h, "QC-30").verdict is expected


def test_a_second_fencing_starts_no_new_time() -> None:
    h = fenced_leader()
    h.after(3_000)
    broker(h, 6, 1, fenced=True)
    h.after(3_000)
    assert verdict(h, "QC-30").verdict is Outcome.VIOLATED


# ----------------------------------------------------------------------------- the places it keeps


def test_a_leader_that_becomes_a_follower_keeps_its_place_in_the_isr() -> None:
    h = fenced_leader()
    partition(h, 6, leader=2, epoch=2)
    h.after(6_000)
    found = verdict(h, "QC-30")
    assert (found.violated, found.exercised) == (1, 0)


def test_a_fenced_broker_has_no_place_in_a_topic_that_is_deleted() -> None:
    h = fenced_leader()
    gone = TopicCommitted(offset=6, topic="orders", topic_id="t", deleted=True)
    h.add(CONTROLLER, gone)
    h.after(6_000)
    assert verdict(h, "QC-30").verdict is Outcome.NOT_EXERCISED


def test_the_last_member_of_a_partition_without_a_leader_owes_nothing() -> None:
    h = fenced_leader(isr=(1,), leader=-1)
    h.after(6_000)
    assert verdict(h, "QC-30").verdict is Outcome.NOT_EXERCISED


def test_a_broker_without_a_place_may_be_unfenced() -> None:
    h = fenced_leader(isr=(2, 3), leader=2)
    broker(h, 6, 1, fenced=False)
    assert verdict(h, "QC-30").verdict is Outcome.NOT_EXERCISED


def test_the_fencing_is_the_proof_of_a_place_that_is_kept_until_it_ends() -> None:
    h = fenced_leader()
    fencing = h.events()[-1]
    broker(h, 6, 1, fenced=False)
    h.after(5_000)
    violation = verdict(h, "QC-30").violations[0]
    assert (violation.at, violation.because) == (h.events()[-1].ref, (fencing.ref,))


@pytest.mark.parametrize(("more_ms", "expected"), [(0, Outcome.HOLDS), (1, Outcome.VIOLATED)])
def test_a_broker_that_comes_back_may_keep_its_places_for_no_longer(
    more_ms: int, expected: Outcome
) -> None:
    h = fenced_leader()
    broker(h, 6, 1, fenced=False)
    h.after(5_000 - 2 + more_ms)
    partition(h, 7, leader=2, epoch=2, isr=(2, 3))
    assert verdict(h, "QC-30").verdict is expected


@pytest.mark.parametrize("complete", [True, False])
def test_what_an_incomplete_history_lacks_may_have_taken_the_place(complete: bool) -> None:
    h = fenced_leader()
    h.after(60_000)
    expected = Outcome.VIOLATED if complete else Outcome.UNKNOWN
    assert verdict(h, "QC-30", complete=complete).verdict is expected


# --------------------------------------------------------------- a leadership that goes to nobody


@pytest.mark.parametrize("fencing_last", [False, True])
def test_a_leadership_goes_to_nobody_only_if_no_member_of_the_isr_is_live(
    fencing_last: bool,
) -> None:
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1)
    if fencing_last:
        partition(h, 5, leader=-1, epoch=2, isr=(2, 3))
        broker(h, 6, 1, fenced=True)
    else:
        broker(h, 5, 1, fenced=True)
        partition(h, 6, leader=-1, epoch=2, isr=(2, 3))
    h.after(6_000)
    found = verdict(h, "QC-30")
    assert (found.violated, found.exercised) == (1, 0)
    assert stated(found, "broker", "places") == ("broker 1", ("orders-0",))


def test_a_leadership_that_went_to_nobody_goes_to_a_live_member_in_time() -> None:
    h = fenced_leader()
    partition(h, 6, leader=-1, epoch=2, isr=(2, 3))
    partition(h, 7, leader=3, epoch=3, isr=(2, 3))
    h.after(6_000)
    found = verdict(h, "QC-30")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_a_leadership_is_owed_to_nobody_once_no_member_of_the_isr_is_live() -> None:
    h = fenced_leader()
    partition(h, 6, leader=-1, epoch=2, isr=(2,))
    broker(h, 7, 2, fenced=True)
    h.after(6_000)
    assert verdict(h, "QC-30").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("later", "exercised"), [(1, 1), (2, 0)])
def test_places_that_are_taken_by_the_record_right_before_the_fencing_exercise_qc_30(
    later: int, exercised: int
) -> None:
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1)
    partition(h, 5, leader=2, epoch=2, isr=(2, 3))
    broker(h, 5 + later, 1, fenced=True)
    assert verdict(h, "QC-30").exercised == exercised


# ------------------------------------------------------------------- what a record takes and gives


def test_a_leadership_that_goes_to_the_broker_0_from_outside_the_isr_breaks_qc_30() -> None:
    h = HistoryBuilder()
    for number in (0, 1, 2):
        broker(h, 1 + number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1, 2), replicas=(0, 1, 2))
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=0, epoch=2, isr=(0,), replicas=(0, 1, 2))
    found = verdict(h, "QC-30").violations[0]
    assert stated(found, "former", "leader", "fenced") == ("broker 1", "broker 0", False)
    assert stated(found, "isr") == (1, 2)


def test_a_fenced_successor_is_named_as_such() -> None:
    h = fenced_leader()
    broker(h, 6, 2, fenced=True)
    partition(h, 7, leader=2, epoch=2, isr=(2, 3))
    found = verdict(h, "QC-30")
    assert stated(found, "former", "leader", "fenced") == ("broker 1", "broker 2", True)


def in_log(before: int, leader: int, isr: tuple[int, ...], now: int) -> HistoryBuilder:
    """A fencing of the leader `before`, and the next record of its partition, both by the log."""
    replicas = (0, 1, 2, 3)
    h = HistoryBuilder()
    for number in replicas:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=before, epoch=1, isr=(before, 2), replicas=replicas)
    record(h, 5)
    broker(h, 5, now if before == leader else before, fenced=True)
    record(h, 6)
    partition(h, 6, leader=leader, epoch=2, isr=isr, replicas=replicas)
    return h


def test_a_fenced_leader_that_a_record_leaves_is_not_made_leader() -> None:
    h = in_log(before=1, leader=1, isr=(1,), now=1)
    assert verdict(h, "QC-30").verdict is Outcome.UNKNOWN


def test_a_clean_election_after_a_fencing_keeps_qc_30() -> None:
    h = in_log(before=1, leader=2, isr=(2,), now=1)
    assert verdict(h, "QC-30").verdict is Outcome.HOLDS


@pytest.mark.parametrize("before", [0, 1])
def test_a_leader_that_joins_the_isr_of_a_fenced_leader_breaks_qc_30_whatever_its_id(
    before: int,
) -> None:
    h = in_log(before=before, leader=3, isr=(before, 2, 3), now=3)
    assert any({"former", "offset"} <= one.facts.keys() for one in verdict(h, "QC-30").violations)


@pytest.mark.parametrize("leader", [0, 3])
def test_a_fenced_broker_that_is_made_leader_breaks_qc_30_whatever_its_id(leader: int) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, leader), replicas=(0, 1, 3))
    record(h, 5)
    broker(h, 5, leader, fenced=True)
    record(h, 6)
    partition(h, 6, leader=leader, epoch=2, isr=(1, leader), replicas=(0, 1, 3))
    (found,) = verdict(h, "QC-30").violations
    assert stated(found, "broker", "leads", "offset") == (f"broker {leader}", True, 6)


@pytest.mark.parametrize(("offset", "broken"), [(7, True), (8, False)])
def test_a_leader_that_joins_the_isr_right_before_the_fencing_of_the_former_breaks_qc_30(
    offset: int, broken: bool
) -> None:
    """A record later, the former leader may have asked for the change before."""
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    record(h, 6)
    partition(h, 6, leader=3, epoch=2, isr=ALL3)
    record(h, offset)
    broker(h, offset, 1, fenced=True)
    assert (verdict(h, "QC-30").verdict is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(("ms", "broken"), [(999, True), (1_001, False)])
def test_a_fencing_of_another_decision_did_not_cause_the_change_before_it(
    ms: int, broken: bool
) -> None:
    """The former leader asked for the change by which a reassignment ends, and dies later."""
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    record(h, 6)
    partition(h, 6, leader=3, epoch=2, isr=ALL3)
    record(h.after(ms - 1), 7)
    broker(h, 7, 1, fenced=True)
    partition(h, 8, leader=3, epoch=3, isr=(2, 3))
    assert (verdict(h, "QC-30").verdict is Outcome.VIOLATED) is broken


def test_a_broker_that_was_deleted_and_is_taken_into_an_isr_breaks_qc_30() -> None:
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    h.add(CONTROLLER, BrokerDeleted(offset=5, broker_id=3))
    deletion = h.events()[-1]
    record(h, 6)
    partition(h, 6, leader=1, epoch=1, isr=ALL3)
    (found,) = verdict(h, "QC-30").violations
    assert found.because == (deletion.ref,)


# ----------------------------------------------------------------------------------- new partitions


def created(
    leader: int, isr: tuple[int, ...], *, epoch: int = 0, skipped: int = 0, names: bool = True
) -> HistoryBuilder:
    """Broker 1 is fenced at offset 5, and a partition is made at 6; broker 2 is fenced at 7."""
    h = HistoryBuilder()
    for number in ALL3:
        record(h, number)
        broker(h, number, number, fenced=False)
    record(h, 5)
    broker(h, 5, 1, fenced=True)
    if names:
        record(h, 6)
    partition(h, 6, leader=leader, epoch=epoch, isr=isr, skipped=skipped)
    record(h, 7)
    broker(h, 7, 2, fenced=True)
    return h


@pytest.mark.parametrize(("leader", "isr"), [(1, (1, 2)), (3, (3, 1))], ids=["leads", "joins"])
def test_a_new_partition_that_gives_a_place_to_a_fenced_broker_breaks_qc_30(
    leader: int, isr: tuple[int, ...]
) -> None:
    (found,) = verdict(created(leader, isr), "QC-30").violations
    assert stated(found, "broker", "leads") == ("broker 1", leader == 1)
    assert stated(found, "partition", "offset") == ("orders-0", 6)


def test_a_new_partition_that_is_led_by_the_fenced_members_of_its_isr_breaks_rp_29() -> None:
    found = verdict(created(1, (1,)), "RP-29")
    assert stated(found, "leader", "partition", "isr") == ("broker 1", "orders-0", (1,))


@pytest.mark.parametrize("clause", ["QC-30", "RP-29"])
@pytest.mark.parametrize(("leader", "isr"), [(2, (2, 3)), (2, (2,)), (-1, ())])
def test_a_new_partition_of_brokers_that_are_fenced_later_or_never_breaks_neither(
    leader: int, isr: tuple[int, ...], clause: str
) -> None:
    assert verdict(created(leader, isr), clause).violated == 0


def test_a_new_partition_without_a_leader_keeps_rp_29_whatever_its_isr() -> None:
    assert verdict(created(-1, (1,)), "RP-29").violated == 0


def test_a_new_partition_with_a_live_member_of_its_isr_keeps_rp_29() -> None:
    assert verdict(created(1, (1, 2)), "RP-29").violated == 0


@pytest.mark.parametrize("clause", ["QC-30", "RP-29"])
@pytest.mark.parametrize(("epoch", "skipped", "names"), [(1, 0, True), (0, 1, True), (0, 0, False)])
def test_a_partition_whose_first_record_is_not_known_is_not_new(
    epoch: int, skipped: int, names: bool, clause: str
) -> None:
    h = created(1, (1,), epoch=epoch, skipped=skipped, names=names)
    assert verdict(h, clause).violated == 0
