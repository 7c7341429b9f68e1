"""Recorder: one file for each process, whole events, no gaps, no recorded event lost."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import Struct

from fencepost.events import Cause, Codec, Stalled
from fencepost.history.recorder import Recorder
from fencepost.model.errors import EnvironmentFailed


class Sneezed(Struct, frozen=True, tag="nose.sneezed"):
    """A plugin's own kind."""

    times: int


def test_events_come_back_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "broker-1#1.ndjson"
    recorder = Recorder.open(path, "run-1", "broker-1#1")
    first = recorder.record(Stalled(stalled_ns=5))
    second = recorder.record(Stalled(stalled_ns=6), cause=first.ref, at_ns=77)
    recorder.close()
    assert [Codec().decode(line) for line in path.read_bytes().splitlines()] == [first, second]
    assert (first.node_seq, second.node_seq, second.at_ns) == (0, 1, 77)
    assert second.cause == Cause("broker-1#1", 0)


def test_threads_leave_no_gap_and_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    recorder = Recorder.open(path, "run-1", "p#1")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: recorder.record(Stalled(stalled_ns=n)), range(2000)))
    events = [Codec().decode(line) for line in path.read_bytes().splitlines()]
    assert [event.node_seq for event in events] == list(range(2000))


def test_an_event_that_the_disk_does_not_take_leaves_whole_lines_and_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    recorder = Recorder.open(path, "run-1", "p#1")
    recorder.record(Stalled(stalled_ns=0))
    free, write = 20, os.write

    def fills_up(fd: int, data: bytes) -> int:
        nonlocal free
        if not free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(fd, data[:free])
        free -= taken
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fills_up)
        says = (
            rf"the disk is full: {re.escape(str(path))} needs \d\d+ bytes more, and \d+ bytes are"
        )
        with pytest.raises(EnvironmentFailed, match=says):
            recorder.record(Stalled(stalled_ns=1))
    recorder.record(Stalled(stalled_ns=2))
    events = [Codec().decode(line) for line in path.read_bytes().splitlines()]
    assert [event.node_seq for event in events] == [0, 2]


def test_a_process_name_is_used_once(tmp_path: Path) -> None:
    Recorder.open(tmp_path / "events", "run-1", "p#1").close()
    with pytest.raises(FileExistsError):
        Recorder.open(tmp_path / "events", "run-1", "p#1")


def test_an_undeclared_kind_is_refused_and_leaves_no_gap(tmp_path: Path) -> None:
    recorder = Recorder.open(tmp_path / "events", "run-1", "p#1")
    with pytest.raises(TypeError, match="Sneezed"):
        recorder.record(Sneezed(1))
    assert recorder.record(Stalled(stalled_ns=1)).node_seq == 0


def test_a_plugins_kind_is_recorded_when_declared(tmp_path: Path) -> None:
    path = tmp_path / "events"
    event = Recorder.open(path, "run-1", "p#1", (Sneezed,)).record(Sneezed(3))
    assert Codec((Sneezed,)).decode(path.read_bytes()) == event


def test_a_field_of_another_type_is_named_where_it_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder.open(tmp_path / "events", "run-1", "p#1", (Sneezed,))
    with pytest.raises(TypeError, match=r"does not fit its kind: Expected `int`, got `str` - at"):
        recorder.record(Sneezed("loud"))  # type: ignore[arg-type]
    assert recorder.record(Sneezed(1)).node_seq == 0


def test_recording_after_close_is_an_error(tmp_path: Path) -> None:
    recorder = Recorder.open(tmp_path / "events", "run-1", "p#1")
    recorder.close()
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.record(Stalled(stalled_ns=1))


@pytest.mark.real
def test_recorded_events_survive_sigkill(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from fencepost.events import Stalled\n"
        "from fencepost.history.recorder import Recorder\n"
        "recorder = Recorder.open(pathlib.Path(sys.argv[1]), 'run-1', 'p#1')\n"
        "for n in range(100): recorder.record(Stalled(stalled_ns=n))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = tmp_path / "events"
    ended = subprocess.run([sys.executable, "-c", script, os.fspath(path)], timeout=30, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(path.read_bytes().splitlines()) == 100
