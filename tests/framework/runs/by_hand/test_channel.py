"""The socket of a cluster in the hand: its owner's alone, found by itself, and its end is told."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, UsageError
from fencepost.runs.by_hand.channel import (
    Channel,
    Meeting,
    ask,
    meeting_folder,
    meeting_for,
    meeting_of,
)
from fencepost.runs.by_hand.messages import (
    MOST_BYTES,
    Answer,
    AskStatus,
    Healed,
    HealFaults,
    InjectFault,
    Refused,
    answer_from,
    line_of,
    request_from,
)

NOTHING = Healed(faults=())


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this test alone."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "20261129-cluster"
    folder.mkdir()
    return folder


@pytest.fixture
def channel(run_folder: Path) -> Iterator[Channel]:
    with Channel.open(meeting_of(run_folder)) as opened:
        yield opened


def left_by_a_dead_cluster(run_folder: Path) -> Meeting:
    """What a killed process leaves: its files, and nobody who listens."""
    meeting = meeting_of(run_folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(meeting.socket))
    meeting.link.symlink_to(run_folder)
    return meeting


def test_only_the_owner_may_ask(channel: Channel, run_folder: Path) -> None:
    path = meeting_of(run_folder).socket
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_open_is_refused() -> None:
    folder = meeting_folder()
    folder.chmod(0o750)
    with pytest.raises(EnvironmentFailed, match="only you can open"):
        meeting_folder()
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(EnvironmentFailed, match="only you can open"):
        meeting_folder()


def test_a_path_that_is_too_long_for_a_socket_is_refused(
    temporary: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EnvironmentFailed, match=r"too long for a socket.*TMPDIR"):
        meeting_of(run_folder)


def test_a_request_gets_its_answer(channel: Channel, run_folder: Path) -> None:
    answers: list[Answer | None] = []

    def second_terminal() -> None:
        answers.append(ask(meeting_for(run_folder), HealFaults(fault_id="isolate-1")))

    terminal = threading.Thread(target=second_terminal)
    terminal.start()
    (asked,) = next(found for _ in range(100) if (found := channel.take(1)))
    assert asked.request == HealFaults(fault_id="isolate-1")
    asked.answer(NOTHING)
    terminal.join()
    assert answers == [NOTHING]


def test_a_request_is_taken_once_its_line_is_whole(channel: Channel, run_folder: Path) -> None:
    line = line_of(AskStatus())
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(os.fspath(meeting_of(run_folder).socket))
        slow.sendall(line[:5])
        assert [channel.take(0.2), channel.take(0.2), channel.take(0)] == [[], [], []]
        slow.sendall(line[5:])
        (asked,) = channel.take(1)
        asked.answer(NOTHING)
        assert answer_from(slow.recv(MOST_BYTES)) == NOTHING


@pytest.mark.parametrize("line", [b"{}\n", b"no json\n", b"x" * (MOST_BYTES + 1)])
def test_what_is_no_request_is_refused_and_the_channel_goes_on(
    channel: Channel, run_folder: Path, line: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as strange:
        strange.connect(os.fspath(meeting_of(run_folder).socket))
        strange.sendall(line)
        for _ in range(4):
            assert channel.take(0.2) == []
        refused = answer_from(strange.recv(MOST_BYTES))
    assert isinstance(refused, Refused)
    assert refused.exit_code == 2


def test_one_who_has_gone_gets_no_answer(channel: Channel, run_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(os.fspath(meeting_of(run_folder).socket))
        gone.sendall(line_of(AskStatus()))
    (asked,) = next(found for _ in range(100) if (found := channel.take(1)))
    asked.answer(Healed(faults=()))


def test_the_only_running_cluster_is_found_by_itself(channel: Channel, run_folder: Path) -> None:
    assert meeting_for(None).folder == run_folder
    assert meeting_for(run_folder) == meeting_for(None)


def test_of_several_one_must_be_named(channel: Channel, run_folder: Path) -> None:
    other = run_folder.with_name("other")
    other.mkdir()
    with Channel.open(meeting_of(other)):
        with pytest.raises(UsageError, match="2 clusters run: name one by --run"):
            meeting_for(None)
        assert meeting_for(other).folder == other


def test_where_none_runs_that_is_said(run_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"^no cluster runs: `fencepost cluster up` starts one$"):
        meeting_for(None)
    with pytest.raises(UsageError, match=r"^no cluster runs for .*20261129-cluster"):
        meeting_for(run_folder)
    with Channel.open(meeting_of(run_folder)):
        pass
    with pytest.raises(UsageError, match=r"^no cluster runs: `fencepost cluster up` starts one$"):
        meeting_for(None)
    assert list(meeting_folder().iterdir()) == []


def test_a_killed_cluster_is_told_from_one_that_has_ended(run_folder: Path) -> None:
    left_by_a_dead_cluster(run_folder)
    for named in (None, run_folder):
        with pytest.raises(UsageError, match=f"`fencepost report {run_folder}` judges"):
            meeting_for(named)


def test_the_next_cluster_removes_what_a_killed_one_left(run_folder: Path) -> None:
    dead = run_folder.with_name("dead")
    dead.mkdir()
    left = left_by_a_dead_cluster(dead)
    with Channel.open(meeting_of(run_folder)):
        assert meeting_for(None).folder == run_folder
        assert not left.socket.exists()
        assert not left.link.is_symlink()


def test_a_cluster_that_ends_before_it_answers_is_told(run_folder: Path) -> None:
    with Channel.open(meeting_of(run_folder)) as channel:
        meeting = meeting_for(run_folder)

        def end() -> None:
            (asked,) = next(found for _ in range(100) if (found := channel.take(1)))
            asked.drop()

        ending = threading.Thread(target=end)
        ending.start()
        assert ask(meeting, AskStatus()) is None
        ending.join()
    assert ask(meeting, AskStatus()) is None


@pytest.mark.parametrize(
    "request_", [InjectFault(fault="kill", for_ms=-1), AskStatus(after_ms=1 << 40)]
)
def test_absurd_times_are_refused(request_: InjectFault | AskStatus) -> None:
    with pytest.raises(UsageError, match="24 hours"):
        request_from(line_of(request_))
