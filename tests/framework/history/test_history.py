"""History: happens-before order, and everything that is missing is named."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.events import (
    Cause,
    Codec,
    Event,
    EvidenceMissed,
    EvidenceSupplied,
    FaultInjected,
    LinkFailed,
    NodeStarted,
    NodeStopped,
    ProcessExited,
    ProcessLeft,
    ProcessSpawned,
    RunEnded,
    RunStarted,
    Stalled,
)
from fencepost.history import merge as history
from fencepost.history.merge import Written, in_order
from fencepost.history.recorder import Recorder
from fencepost.history.run_end import DISKS, READ_WITHIN_NS
from fencepost.history.run_folder import RunFolder
from fencepost.model.errors import UsageError
from fencepost_kafka import KINDS

SECOND = 1_000_000_000
STARTED = NodeStarted(role="broker", node_id=1, incarnation="uuid", log_end=0)


def event(process: str, seq: int, at_ns: int, cause: Cause | None = None) -> Event:
    return Event(
        run="run",
        process=process,
        node_seq=seq,
        at_ns=at_ns,
        body=Stalled(stalled_ns=1),
        cause=cause,
    )


def merged(*sources: list[Event]) -> list[tuple[str, int]]:
    written = [[Written(e, b"") for e in source] for source in sources]
    return [(e.process, e.node_seq) for e, _ in in_order(written)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A whole run: one broker that was killed, one that ended by itself."""
    folder = RunFolder.create(tmp_path / "run-1")
    harness = Recorder.open(folder.events_of("harness"), "run-1", "harness", KINDS)
    harness.record(RunStarted(system="echo/mesh", runtime="process", seed=7), at_ns=100)
    for number in (1, 2):
        process = f"broker-{number}#1"
        spawned = ProcessSpawned(
            started=process, slot=f"broker-{number}", role="broker", node_id=number, pid=70 + number
        )
        harness.record(spawned, at_ns=100 + number)
        node = Recorder.open(folder.events_of(process), "run-1", process, KINDS)
        node.record(STARTED, at_ns=200 + number)
        node.record(Stalled(stalled_ns=50), at_ns=300 + number)
        if number == 2:
            node.record(NodeStopped(reason="asked"), at_ns=400)
        node.close()
    harness.record(
        ProcessExited(ended="broker-1#1", exit_code=0, signal=9, expected=True), at_ns=500
    )
    harness.record(
        ProcessExited(ended="broker-2#1", exit_code=0, signal=0, expected=True), at_ns=501
    )
    harness.record(RunEnded(completed=True), at_ns=600)
    harness.close()
    return folder


def cut_events(folder: RunFolder, process: str, keep: slice) -> None:
    path = folder.events_of(process)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[keep]))


def test_a_whole_run_is_complete_and_in_order_of_time(folder: RunFolder) -> None:
    end = history.merge(folder, Codec(KINDS))
    reading = history.read(folder, Codec(KINDS))
    times = [e.at_ns for e in reading]
    assert times == sorted(times)
    assert len(times) == 11
    assert reading.end == end
    assert (end.complete, end.damage, end.ended_at_ns) == (True, (), 600)
    assert end.stalls == (("broker-1#1", 251, 301), ("broker-2#1", 252, 302))


def test_a_history_is_made_when_first_read(folder: RunFolder) -> None:
    assert len(list(history.read(folder, Codec(KINDS)))) == 11
    assert folder.history.exists()


def test_a_history_that_was_read_while_its_run_went_on_is_made_anew(folder: RunFolder) -> None:
    path = folder.events_of("harness")
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    early = history.read(folder, Codec(KINDS))
    assert "the run's end is not recorded" in (list(early), early.end.damage)[1]
    made_ns = folder.history.stat().st_mtime_ns
    path.write_bytes(whole)
    os.utime(path, ns=(made_ns + 1, made_ns + 1))
    reading = history.read(folder, Codec(KINDS))
    assert isinstance(list(reading)[-1].body, RunEnded)
    assert reading.end.complete


def test_the_end_is_known_only_after_the_last_event(folder: RunFolder) -> None:
    reading = history.read(folder, Codec(KINDS))
    with pytest.raises(RuntimeError, match="not been read"):
        _ = reading.end


def test_so_far_reads_a_run_that_goes_on(folder: RunFolder) -> None:
    cut_events(folder, "harness", slice(0, 2))
    assert len(history.so_far(folder, Codec(KINDS))) == 7
    assert not folder.history.exists()


def test_a_skipped_number_is_named(folder: RunFolder) -> None:
    cut_events(folder, "broker-2#1", slice(1, None))
    end = history.merge(folder, Codec(KINDS))
    assert not end.complete
    assert end.damage == ("broker-2#1: an event is missing before number 1",)


def test_a_number_used_twice_is_named(folder: RunFolder) -> None:
    path = folder.events_of("broker-2#1")
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[1])
    assert history.merge(folder, Codec(KINDS)).damage == ("broker-2#1 numbers an event 1 after 2",)


def test_a_torn_last_line_is_named_and_all_other_lines_are_read(folder: RunFolder) -> None:
    path = folder.events_of("broker-1#1")
    path.write_bytes(path.read_bytes()[:-10])
    end = history.merge(folder, Codec(KINDS))
    assert end.damage == ("broker-1#1 ends in the middle of an event, in line 2",)
    assert not end.complete
    assert len(list(history.read(folder, Codec(KINDS)))) == 10


def test_damage_that_merging_found_is_stored(folder: RunFolder) -> None:
    path = folder.events_of("broker-1#1")
    path.write_bytes(path.read_bytes()[:-10])
    end = history.merge(folder, Codec(KINDS))
    reading = history.read(folder, Codec(KINDS))
    list(reading)
    assert reading.end.damage == end.damage
    assert not reading.end.complete


def test_a_line_that_is_not_an_event_is_named(folder: RunFolder) -> None:
    path = folder.events_of("broker-1#1")
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"garbage\n" + second)
    (sentence,) = history.merge(folder, Codec(KINDS)).damage
    assert sentence.startswith("broker-1#1, line 2 is not an event")


def test_much_damage_is_named_briefly(folder: RunFolder) -> None:
    path = folder.events_of("broker-1#1")
    path.write_bytes(b"garbage\n" * 5000 + path.read_bytes())
    damage = history.merge(folder, Codec(KINDS)).damage
    assert len(damage) == 11
    assert damage[-1] == "broker-1#1: 4990 more lines are not events"


def test_a_process_whose_end_was_not_recorded_is_named(folder: RunFolder) -> None:
    cut_events(folder, "harness", slice(0, 3))  # neither exits nor the run's end
    end = history.merge(folder, Codec(KINDS))
    assert end.damage == ("how broker-1#1 ended is not recorded", "the run's end is not recorded")


def test_a_link_that_failed_puts_nothing_in_doubt_that_was_seen_long_before() -> None:
    """A link that failed at second 630 took back a violation of second 30."""
    examined = history.Examiner()
    failed = LinkFailed(link="clients -> broker-3", what="refused", since_ns=60 * SECOND)
    for one in (
        Event("run", "broker-1#1", 0, 0, STARTED),
        Event("run", "harness", 0, 61 * SECOND, failed),
        Event("run", "broker-1#1", 1, 90 * SECOND, NodeStopped(reason="asked")),
        Event("run", "harness", 1, 90 * SECOND, RunEnded(completed=True)),
    ):
        examined.step(one)
    end = examined.end()
    assert not end.complete
    assert end.whole_until(60 * SECOND - READ_WITHIN_NS)
    assert not end.whole_until(61 * SECOND - READ_WITHIN_NS)


def test_what_only_the_harness_can_know_is_damage_from_anybody_else() -> None:
    examined = history.Examiner()
    struck = FaultInjected(
        fault_id="mine-1", fault="pause", targets=("broker-1#1",), receipt=True, evidence="I was"
    )
    examined.step(Event("run", "broker-1#1", 0, 0, struck))
    assert examined.end().damage[0] == (
        "broker-1#1 wrote fault.injected, which only the harness can know"
    )


def test_a_process_that_was_left_to_its_owner_has_no_end_to_miss() -> None:
    examined = history.Examiner()
    began = ProcessSpawned(started="broker-1#1", slot="broker-1", role="broker", node_id=1, pid=7)
    examined.step(Event("run", "harness", 0, 0, began))
    examined.step(Event("run", "harness", 1, 1, ProcessLeft(left="broker-1#1")))
    assert examined.end().damage == ("the run's end is not recorded",)


def test_a_spawned_process_that_wrote_nothing_counts_too(folder: RunFolder) -> None:
    folder.events_of("broker-1#1").unlink()
    cut_events(folder, "harness", slice(0, 3))
    assert "how broker-1#1 ended is not recorded" in history.merge(folder, Codec(KINDS)).damage


def test_a_run_cut_short_on_purpose_is_whole_but_not_complete(folder: RunFolder) -> None:
    path = folder.events_of("harness")
    path.write_bytes(path.read_bytes().replace(b'"completed":true', b'"completed":false'))
    end = history.merge(folder, Codec(KINDS))
    assert (end.complete, end.damage) == (False, ())


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_truncated_history_is_read_as_far_as_it_goes(folder: RunFolder, part: float) -> None:
    history.merge(folder, Codec(KINDS))
    text = folder.history.read_bytes()
    folder.history.write_bytes(text[: int(len(text) * part)])
    reading = history.read(folder, Codec(KINDS))
    whole = text[: int(len(text) * part)].count(b"\n")
    assert len(list(reading)) == whole
    assert not reading.end.complete
    assert "the run's end is not recorded" in reading.end.damage


def test_evidence_that_was_missed_is_named(folder: RunFolder) -> None:
    recorder = Recorder.open(folder.events_of("clients/one#1"), "run-1", "clients/one#1", KINDS)
    recorder.record(EvidenceMissed(what="records 3 to 8 were not read"), at_ns=450)
    recorder.record(NodeStopped(reason="stopped"), at_ns=500)
    recorder.close()
    reading = history.read(folder, Codec(KINDS))
    assert any(isinstance(event.body, EvidenceMissed) for event in list(reading))
    assert not reading.end.complete
    assert reading.end.damage == ("records 3 to 8 were not read",)


def test_missing_evidence_of_one_kind_is_a_gap_and_no_damage(folder: RunFolder) -> None:
    recorder = Recorder.open(folder.events_of("clients/one#1"), "run-1", "clients/one#1", KINDS)
    recorder.record(EvidenceMissed(what="a state was replaced", kinds=("test.state",)), at_ns=450)
    recorder.record(NodeStopped(reason="stopped"), at_ns=500)
    recorder.close()
    reading = history.read(folder, Codec(KINDS))
    list(reading)
    assert reading.end.complete
    assert reading.end.gaps == (("test.state", "a state was replaced"),)
    assert reading.end.as_read({"test.word"}) is reading.end
    assert reading.end.as_read({"test.state"}).lacks == "a state was replaced"


@pytest.mark.parametrize("closed", [0, 1])
def test_a_gap_that_a_disk_has_filled_is_closed(closed: int, folder: RunFolder) -> None:
    client = "clients/one#1"
    recorder = Recorder.open(folder.events_of(client), "run-1", client, KINDS)
    for number in range(2):
        what = f"the state {number} was replaced"
        recorder.record(EvidenceMissed(what=what, kinds=("test.state",)), at_ns=450)
    recorder.record(NodeStopped(reason="stopped"), at_ns=500)
    recorder.close()
    recorder = Recorder.open(folder.events_of(DISKS), "run-1", DISKS, KINDS)
    recorder.record(EvidenceSupplied(what="a state"), Cause(client, closed), at_ns=449)
    recorder.close()
    reading = history.read(folder, Codec(KINDS))
    kinds = [type(event.body) for event in reading]
    assert kinds.index(EvidenceSupplied) > kinds.index(EvidenceMissed)
    assert reading.end.complete
    assert reading.end.gaps == (("test.state", f"the state {1 - closed} was replaced"),)


def test_a_hole_in_a_history_is_named(folder: RunFolder) -> None:
    history.merge(folder, Codec(KINDS))
    lines = folder.history.read_bytes().splitlines(keepends=True)
    lost = next(n for n, text in enumerate(lines) if b'"broker-2#1","node_seq":0' in text)
    folder.history.write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    reading = history.read(folder, Codec(KINDS))
    list(reading)
    assert reading.end.damage == ("broker-2#1: an event is missing before number 1",)


def test_an_empty_history_is_damaged(folder: RunFolder) -> None:
    folder.history.write_bytes(b"")
    reading = history.read(folder, Codec(KINDS))
    assert list(reading) == []
    assert reading.end.damage == ("the run's end is not recorded",)


def test_a_folder_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no history"):
        history.read(RunFolder(tmp_path), Codec(KINDS))


def test_an_event_of_an_unknown_kind_is_kept_as_it_was_written(folder: RunFolder) -> None:
    path = folder.events_of("broker-2#1")
    text = path.read_bytes().replace(b'"type":"process.stalled"', b'"type":"nose.sneezed"')
    path.write_bytes(text)
    assert history.merge(folder, Codec(KINDS)).complete
    assert text.splitlines()[1] in folder.history.read_bytes().splitlines()


def test_more_processes_than_open_files_are_allowed(folder: RunFolder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(200):
        process = f"clients/a#{number}"
        recorder = Recorder.open(folder.events_of(process), "run-1", process, KINDS)
        recorder.record(NodeStopped(reason="done"), at_ns=700 + number)
        recorder.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        end = history.merge(folder, Codec(KINDS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert end.complete
    assert len(list(history.read(folder, Codec(KINDS)))) == 211


def test_damage_is_readable_json(folder: RunFolder) -> None:
    path = folder.events_of("broker-1#1")
    path.write_bytes(path.read_bytes()[:-10])
    history.merge(folder, Codec(KINDS))
    assert json.loads(folder.damage.read_text()) == [
        "broker-1#1 ends in the middle of an event, in line 2"
    ]


def test_a_cause_comes_before_its_effect_whatever_the_clock_shows() -> None:
    effects = [event("a", 0, 10, cause=Cause("b", 1)), event("a", 1, 11)]
    assert merged(effects, [event("b", 0, 20), event("b", 1, 21)]) == [
        ("b", 0),
        ("b", 1),
        ("a", 0),
        ("a", 1),
    ]


def test_a_cause_that_was_never_written_holds_nothing_up() -> None:
    assert merged([event("a", 0, 10, Cause("b", 9)), event("a", 1, 40)], [event("b", 0, 20)]) == [
        ("b", 0),
        ("a", 0),
        ("a", 1),
    ]
    assert merged([event("a", 0, 10, Cause("missing", 3))]) == [("a", 0)]


def test_the_end_of_a_process_comes_after_its_last_events_of_that_instant() -> None:
    exited = ProcessExited(ended="broker-1#1", exit_code=0, signal=9, expected=True)
    harness = [
        event("harness", 0, 200),
        msgspec.structs.replace(event("harness", 1, 200), body=exited),
    ]
    assert merged(harness, [event("broker-1#1", 0, 200), event("broker-1#1", 1, 200)]) == [
        ("harness", 0),
        ("broker-1#1", 0),
        ("broker-1#1", 1),
        ("harness", 1),
    ]


def test_causes_in_a_circle_are_taken_in_order_of_time() -> None:
    one = [event("a", 0, 30, Cause("b", 0))]
    other = [event("b", 0, 20, Cause("a", 0))]
    assert merged(one, other) == [("b", 0), ("a", 0)]


def test_a_request_as_a_cause_orders_nothing_by_itself() -> None:
    assert merged(
        [event("a", 0, 10, Cause("b", 5, request=True))], [event("b", 0, 20), event("b", 6, 30)]
    )[0] == ("a", 0)


@given(st.data())
def test_any_merge_keeps_each_process_in_order_and_causes_first(data: st.DataObject) -> None:
    """By the definition: for any clocks, an event's cause comes before it."""
    processes = ["a", "b", "c"]
    written: dict[str, list[Event]] = {name: [] for name in processes}
    for _ in range(data.draw(st.integers(0, 25))):
        process = data.draw(st.sampled_from(processes))
        past = [e for other in processes for e in written[other]]
        cause = data.draw(st.none() | st.sampled_from(past)) if past else None
        at_ns = data.draw(st.integers(0, 50))
        seq = len(written[process])
        written[process].append(event(process, seq, at_ns, cause and cause.ref))
    order = merged(*written.values())
    place = {ref: number for number, ref in enumerate(order)}
    assert len(place) == sum(map(len, written.values()))
    for events in written.values():
        for e in events:
            if e.node_seq:
                assert place[e.process, e.node_seq - 1] < place[e.process, e.node_seq]
            if e.cause:
                assert place[e.cause.process, e.cause.seq] < place[e.process, e.node_seq]
