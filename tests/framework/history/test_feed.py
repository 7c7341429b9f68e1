"""Feed: whole events as they come, damage named, and a descriptor that wakes its reader."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.events import Codec, Event, Stalled
from fencepost.history.feed import Feed
from fencepost.history.recorder import Recorder
from fencepost.model.errors import EnvironmentFailed


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(tmp_path, Codec(), own=tmp_path / "harness.ndjson")
    yield feed
    feed.close()
    feed.close()


def wakes(feed: Feed, limit_s: float) -> bool:
    return bool(select.select([feed], [], [], limit_s)[0])


def line(process: str, seq: int, at_ns: int) -> bytes:
    return Codec().encode(Event("run", process, seq, at_ns, Stalled(stalled_ns=seq)))


def test_an_event_wakes_the_reader_and_is_read_once(tmp_path: Path, feed: Feed) -> None:
    assert not wakes(feed, 0)
    recorder = Recorder.open(tmp_path / "a#1.ndjson", "run", "a#1")
    first = recorder.record(Stalled(stalled_ns=1))
    assert wakes(feed, 5)
    assert feed.read() == [first]
    assert feed.read() == []
    second = recorder.record(Stalled(stalled_ns=2))
    assert wakes(feed, 5)
    assert feed.read() == [second]


def test_a_partial_line_waits_for_its_end(tmp_path: Path, feed: Feed) -> None:
    text = line("a#1", 0, 5)
    with (tmp_path / "a#1.ndjson").open("wb", buffering=0) as file:
        file.write(text[:20])
        assert wakes(feed, 5)
        assert feed.read() == []
        file.write(text[20:])
        assert wakes(feed, 5)
        assert [event.node_seq for event in feed.read()] == [0]
    assert feed.damage == []


def test_events_written_between_readings_are_interleaved_by_time(
    tmp_path: Path, feed: Feed
) -> None:
    (tmp_path / "a#1.ndjson").write_bytes(line("a#1", 0, 10) + line("a#1", 1, 30))
    (tmp_path / "b#1.ndjson").write_bytes(line("b#1", 0, 20) + line("b#1", 1, 40))
    assert [(e.process, e.node_seq) for e in feed.read()] == [
        ("a#1", 0),
        ("b#1", 0),
        ("a#1", 1),
        ("b#1", 1),
    ]


def test_a_process_whose_times_run_backwards_keeps_its_order(tmp_path: Path, feed: Feed) -> None:
    (tmp_path / "a#1.ndjson").write_bytes(line("a#1", 0, 30) + line("a#1", 1, 10))
    assert [event.node_seq for event in feed.read()] == [0, 1]


def test_a_damaged_line_is_named_and_the_next_one_is_read(tmp_path: Path, feed: Feed) -> None:
    broken = b'{"run":"run","process":"a#1"}\n' + b"\xff\xfe garbage\n"
    (tmp_path / "a#1.ndjson").write_bytes(line("a#1", 0, 1) + broken + line("a#1", 1, 2))
    assert [event.node_seq for event in feed.read()] == [0, 1]
    assert len(feed.damage) == 2
    assert feed.damage[0].startswith("a#1, line 2 is not an event")
    assert feed.damage[1].startswith("a#1, line 3 is not an event")


def test_the_readers_own_file_is_left_out(tmp_path: Path, feed: Feed) -> None:
    Recorder.open(tmp_path / "harness.ndjson", "run", "harness").record(Stalled(stalled_ns=1))
    assert feed.read() == []


def test_a_kernel_without_another_inotify_instance_is_an_environment_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(**options: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("fencepost.history.feed.INotify", none_left)
    with pytest.raises(EnvironmentFailed, match="max_user_instances"):
        Feed(tmp_path, Codec(), own=tmp_path / "harness.ndjson")


def test_an_overflown_notice_queue_loses_nothing(tmp_path: Path, feed: Feed) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    fds = [os.open(tmp_path / f"{n}#1.ndjson", os.O_WRONLY | os.O_CREAT) for n in range(2)]
    text = [line("0#1", 0, 1), line("1#1", 0, 2)]
    for _ in range(limit // 2 + 10):  # alternating, since equal notices in a row are merged
        for fd, content in zip(fds, text, strict=True):
            os.pwrite(fd, content, 0)
    late = Recorder.open(tmp_path / "late#1.ndjson", "run", "late#1").record(Stalled(stalled_ns=1))
    got = feed.read()
    assert late in got
    assert len(got) == 3
    for fd in fds:
        os.close(fd)
