"""The guard of an attached cluster: it heals when the pipe to it ends, and each step for itself."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fencepost.model.system.attachment import AttachedNode, Attachment
from fencepost.runtimes.attached.guard import Act, Duties, Guard, Report, serve
from fencepost.runtimes.attached.nodes import Found, process_of, started_at

pytestmark = pytest.mark.real


def attachment(tmp_path: Path) -> Attachment:
    pid_file = tmp_path / "pid"
    start = ("/bin/sh", "-c", f"echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; exec cat")
    # `cat` without input ends at once: what is started again has to last.
    lasting = (*start[:2], start[2].replace("exec cat", "exec sleep 60"))
    node = AttachedNode(
        name="node-1", id=1, address="127.0.0.1:1", pid_file=str(pid_file), start=lasting
    )
    return Attachment(may_break=True, bootstrap=("127.0.0.1:1",), nodes=(node,))


def test_a_stopped_process_goes_on_and_an_ended_one_is_started_again(tmp_path: Path) -> None:
    given = attachment(tmp_path)
    process = process_of(given.nodes[0], given)
    found = process.start()
    try:
        guard = Guard(Duties(given, ()), patience_s=5)
        guard.take(Act("node-1", "found", found))
        guard.take(Act("node-1", "stop", found))
        assert process.signal(found, signal.SIGSTOP)
        assert [one.healed for one in guard.heal()] == ["node-1 goes on"]
        assert process.state(found) != "T"
        guard.take(Act("node-1", "end", found))
        assert process.signal(found, signal.SIGKILL)
        assert any("started node-1 again" in one.healed for one in guard.heal())
        later = process_of(given.nodes[0], given).find()
        assert later != found
        found = later
    finally:
        process.signal(found, signal.SIGKILL)


def test_a_step_that_fails_keeps_no_other_from_being_done(tmp_path: Path) -> None:
    given = attachment(tmp_path)
    unstartable = msgspec.structs.replace(given.nodes[0], start=("/nowhere/start",))
    given = msgspec.structs.replace(given, nodes=(unstartable,))
    tidy = (sys.executable, "-c", "print('fencepost-orders')")
    guard = Guard(Duties(given, tidy), patience_s=0.1)
    guard.take(Act("node-1", "end", Found(1 << 22, 1)))
    reports = list(guard.heal())
    assert [bool(one.failed) for one in reports] == [True, False]
    assert reports[1].healed == "removed fencepost-orders"


def test_no_later_process_of_the_same_id_gets_a_signal(tmp_path: Path) -> None:
    given = attachment(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as child:
        started = started_at(child.pid)
        assert started is not None
        process = process_of(given.nodes[0], given)
        assert not process.signal(Found(child.pid, started + 1), signal.SIGKILL)
        assert child.poll() is None
        assert process.signal(Found(child.pid, started), signal.SIGKILL)


def test_half_a_line_of_a_harness_that_was_killed_is_no_act(tmp_path: Path) -> None:
    given = attachment(tmp_path)
    tidy = (sys.executable, "-c", "print('fencepost-orders')")
    told = msgspec.json.encode(Duties(given, tidy)) + b'\n{"node": "node-1", "di'
    out = io.BytesIO()
    serve(io.BytesIO(told), out)
    first, *reports = out.getvalue().splitlines()
    assert first == b""
    assert [msgspec.json.decode(one, type=Report).healed for one in reports] == [
        "removed fencepost-orders"
    ]
    silent = io.BytesIO()
    serve(io.BytesIO(b'{"attach'), silent)
    assert silent.getvalue() == b""
