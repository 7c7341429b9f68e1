"""AVAIL-readable: no consumer is stuck before messages that were acknowledged."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import (
    CONSUMER,
    HARNESS,
    OTHER,
    STUCK_MS,
    WRITABLE_MS,
    Story,
    ended,
    readable,
)
from tests.suites.partition_histories import stated, why

from fencepost import ClientFailed, Stalled
from fencepost.testing import Outcome


def behind(story: Story | None = None, ms: int = STUCK_MS) -> Story:
    """A consumer has read up to 3; 4 is acknowledged and the leader dies; it gets nothing for so
    long. Another one gets what is there."""
    story = story or Story()
    story.poll(2, 3)
    story.ack(4)
    story.die("broker-1")
    story.after(ms)
    story.poll(4, by=OTHER)
    return story


# --------------------------------------------------------------------------- the three histories


def test_a_consumer_that_gets_nothing_for_too_long_is_stuck() -> None:
    found = readable(behind())
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert stated(found, "client", "partition", "offset") == (CONSUMER, "orders-0", 4)
    assert stated(found, "since_ns", "acknowledged") == (19_002_000_000, 4)


def test_a_consumer_that_goes_on_in_time_exercises_the_promise() -> None:
    story = behind(ms=WRITABLE_MS - 10)
    story.ack(5)
    story.poll(4, 5)
    found = readable(story)
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize(
    ("isr", "excused"), [((1,), True), ((1, 2), False)], ids=["the only member", "one of two"]
)
def test_what_the_isr_has_lost_with_its_disks_is_not_read(
    isr: tuple[int, ...], excused: bool
) -> None:
    story = Story()
    story.poll(2, 3)
    story.partition(1, isr)
    story.fault("wipe_disk-1", "broker-1#1")
    story.spawn("broker-1")
    story.partition(1)
    found = readable(behind(story))
    assert (found.violated, found.excused) == ((0, 1) if excused else (1, 0))
    if excused:
        assert why(found, "partition", "lost") == ("orders-0", ("broker 1",))


@pytest.mark.parametrize("process", [HARNESS, CONSUMER, "broker-2#1"])
def test_a_bound_that_a_stall_ate_is_undecided(process: str) -> None:
    story = behind()
    story.h.add(process, Stalled(stalled_ns=3_000_000_000))
    assert readable(story).verdict is Outcome.UNKNOWN


def test_an_incomplete_history_decides_nothing() -> None:
    assert readable(behind(), complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------- which one is behind


def test_what_it_gets_too_late_is_one_violation_and_no_exercise() -> None:
    story = behind()
    story.ack(5)
    story.poll(4, 5)
    found = readable(story)
    assert (found.violated, found.exercised) == (1, 0)


def test_each_consumer_is_judged_by_itself() -> None:
    story = Story()
    for consumer in (CONSUMER, OTHER):
        story.poll(3, by=consumer)
    story.ack(4)
    story.after(STUCK_MS // 2).poll(4, by=OTHER)
    story.after(STUCK_MS // 2 + 1_000)
    (found,) = readable(story).violations
    assert stated(found, "client") == CONSUMER


def test_a_consumer_that_has_read_all_is_not_behind() -> None:
    story = Story()
    story.ack(3)
    story.poll(2, 3)
    story.after(STUCK_MS).poll(2, 3, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_it_is_behind_from_the_acknowledgement_on() -> None:
    story = Story()
    story.poll(3)
    story.after(STUCK_MS).ack(4)
    story.after(1_000).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_an_older_acknowledgement_changes_nothing() -> None:
    story = Story()
    story.ack(4)
    story.poll(3, 4)
    story.after(1_000).ack(2)
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_a_consumer_that_reads_on_is_not_stuck_though_it_is_behind() -> None:
    story = Story()
    story.ack(9)
    for offset in range(4):
        story.poll(offset)
        story.after(WRITABLE_MS // 2)
    story.poll(9, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("offset", [0, -2])
def test_a_consumer_that_was_positioned_there_gets_what_is_there(offset: int) -> None:
    story = Story()
    story.ack(0)
    story.position(offset)
    story.after(STUCK_MS).poll(0, by=OTHER)
    assert stated(readable(story), "offset") == 0


@pytest.mark.parametrize(
    ("found_ms", "stuck_ms", "violated"),
    [
        (WRITABLE_MS + 1, WRITABLE_MS + 1, 1),
        (WRITABLE_MS, STUCK_MS, 0),
        (STUCK_MS, WRITABLE_MS - 1, 0),
    ],
)
def test_a_consumer_that_was_sent_to_the_end_gets_what_is_written_long_after(
    found_ms: int, stuck_ms: int, violated: int
) -> None:
    """It may take the whole bound to learn where the end is, and then again to get a message."""
    story = Story()
    story.ack(3)
    story.position(-1)
    story.after(found_ms - 1).invoke("op-4")
    story.ack(4)
    story.after(stuck_ms - 1).poll(3, 4, by=OTHER)
    assert readable(story).violated == violated


def test_a_consumer_that_could_not_learn_where_the_end_is_has_missed_nothing() -> None:
    story = Story()
    story.ack(3)
    story.position(-1)
    story.after(STUCK_MS).fault("pause-1", "broker-1#1")
    story.after(STUCK_MS).heal("pause-1")
    story.invoke("op-4")
    story.ack(4)
    story.after(2 * STUCK_MS).poll(3, 4, by=OTHER)
    assert readable(story).violated == 0


@pytest.mark.parametrize("offset", [5, -1])
def test_a_consumer_that_was_positioned_behind_it_does_not(offset: int) -> None:
    story = Story()
    story.ack(4)
    story.position(offset)
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_a_consumer_that_waits_for_the_end_is_not_behind_before_its_first_poll() -> None:
    story = Story()
    story.position(-1)
    story.ack(4)
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("acks", "outcome"), [(1, "ok"), (-1, "unknown")])
def test_what_all_have_not_acknowledged_may_be_missing(acks: int, outcome: str) -> None:
    story = Story()
    story.poll(3)
    story.ack(4, acks, "ok" if outcome == "ok" else "unknown")
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_what_no_reader_finds_is_lost_or_the_reader_is_stuck() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(STUCK_MS).poll(3, by=OTHER)
    assert readable(story).verdict is Outcome.UNKNOWN


def test_the_final_reading_finds_it() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(STUCK_MS).phase("drain")
    story.poll(3, 4, by="clients/reader#1", final=True)
    assert readable(story).violated == 1


def test_the_final_reading_is_no_consumer() -> None:
    story = Story()
    story.ack(4)
    story.poll(3, by="clients/reader#1", final=True)
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_what_the_run_stops_is_not_judged() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.phase("drain")
    story.after(STUCK_MS).poll(4, by=OTHER)
    story.phase("end")
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_a_phase_before_that_stops_nothing() -> None:
    story = Story()
    story.phase("heal")
    assert readable(behind(story)).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("how", ["ended", "failed"])
def test_a_consumer_that_ended_is_not_stuck(how: str) -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    if how == "ended":
        story.h.add(HARNESS, ended(CONSUMER))
    else:
        story.h.add(CONSUMER, ClientFailed(error="_FATAL", fatal=True))
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_a_consumer_that_reports_an_error_goes_on() -> None:
    story = Story()
    story.h.add(CONSUMER, ClientFailed(error="_TRANSPORT", fatal=False))
    behind(story)
    assert readable(story).verdict is Outcome.VIOLATED


def test_an_empty_poll_is_no_progress() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(STUCK_MS - 500).poll()
    story.after(500).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("how", ["delete", "mark"])
def test_a_deleted_topic_is_not_judged(how: str) -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.delete() if how == "delete" else story.mark()
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_without_stated_bounds_nothing_is_judged() -> None:
    story = behind(Story(stated=False))
    story.ack(5)
    story.poll(4, 5)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


# ----------------------------------------------------------------------------- what is exercised


def test_what_was_acknowledged_before_the_leaders_death_exercises_nothing() -> None:
    story = behind(ms=100)
    story.poll(4)
    assert readable(story).exercised == 0
    story.ack(5)
    story.poll(5)
    story.poll(6)
    assert readable(story).exercised == 1


def test_the_death_of_another_broker_exercises_nothing() -> None:
    story = Story()
    story.poll(3)
    story.die("broker-2")
    story.ack(4)
    story.poll(4)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_an_id_of_which_another_process_lives_has_not_died() -> None:
    story = Story()
    story.poll(3)
    story.spawn("broker-1-duplicate")
    story.die("broker-1")
    story.ack(4)
    story.poll(4)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------- the majority


def test_a_fault_upon_the_majority_is_the_excuse_and_printed_once() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.die("broker-1")
    story.fault("pause-2", "broker-2#1")
    story.after(STUCK_MS)
    for number in range(3):
        story.fault(f"slow-{number + 3}", "broker-9")
    story.poll(4, by=OTHER)
    found = readable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "partition", "unaffected") == ("orders-0", 1)


def test_after_the_disturbance_the_bound_is_the_same() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(5_000).fault("pause-2", "controller-1#1")
    story.heal("pause-2")
    story.after(WRITABLE_MS - 1_000).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED
    story.after(2_000)
    assert readable(story).verdict is Outcome.VIOLATED


def test_what_was_stuck_when_a_fault_began_stays_so() -> None:
    story = behind()
    story.after(3_000).fault("pause-2", "broker-2#1", ago_ms=3_000)
    assert readable(story).violated == 1


def test_an_excused_time_exercises_nothing() -> None:
    story = Story()
    story.poll(3)
    story.die("broker-1")
    story.ack(4)
    story.fault("pause-2", "broker-2#1")
    story.after(STUCK_MS).heal("pause-2")
    story.poll(4)
    found = readable(story)
    assert (found.exercised, found.excused) == (0, 1)


def test_a_partition_of_which_nothing_is_committed_is_not_judged() -> None:
    story = Story()
    story.delete()
    story.poll(3)
    story.ack(4)
    story.after(STUCK_MS).poll(4, by=OTHER)
    found = readable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "not-exercised"), (1, "violated")])
def test_the_bound_belongs_to_the_time_allowed(more_ms: int, expected: str) -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.poll(4, by=OTHER)
    story.after(WRITABLE_MS - 2 + more_ms).poll(4)
    assert readable(story).verdict == expected


def test_a_message_that_it_had_got_before_its_acknowledgement_is_not_before_it() -> None:
    story = Story()
    story.poll(3, 4)
    story.ack(4)
    story.after(STUCK_MS).ack(5)
    story.after(1_000).poll(5, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_what_was_not_yet_stuck_when_a_fault_began_is_excused() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(STUCK_MS).fault("pause-2", "broker-2#1", ago_ms=2_000)
    story.poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_an_isr_that_shrank_is_an_excuse() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(1_000).partition(2, (2,))
    story.after(STUCK_MS).poll(4, by=OTHER)
    found = readable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


def test_an_older_record_is_none() -> None:
    story = Story()
    record = next(e.body for e in story.h.events() if e.kind == "metadata.partition")
    story.partition(2, (2,))
    story.poll(3)
    story.ack(4)
    story.h.add("broker-2#1", record)
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.NOT_EXERCISED


def test_a_stall_before_the_disturbance_says_nothing_of_the_time_after_it() -> None:
    story = Story()
    story.poll(3)
    story.ack(4)
    story.after(9_000).h.add(HARNESS, Stalled(stalled_ns=8_000_000_000))
    story.fault("pause-2", "broker-2#1")
    story.heal("pause-2")
    story.after(STUCK_MS).poll(4, by=OTHER)
    assert readable(story).verdict is Outcome.VIOLATED


def test_what_was_disturbed_before_it_was_behind_is_no_excuse_at_the_bound() -> None:
    story = Story()
    story.poll(3)
    story.fault("pause-2", "controller-2#1")
    story.heal("pause-2")
    story.ack(4)
    story.poll(4, by=OTHER)
    story.after(WRITABLE_MS - 2).poll(4)
    assert readable(story).excused == 0
