"""The frame of a worker's program: its first and last events, and its failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fencepost import (
    ClientFailed,
    ClientStarted,
    NodeStopped,
    Recorder,
    Stalled,
    WorkerConfig,
    run_worker,
)
from fencepost.events import Codec
from fencepost.model.clock import SECOND, STALL_NS, now_ns, poll


class Options(msgspec.Struct, frozen=True):
    """How often it is to fail."""

    failures: int


STARTED = ClientStarted(kind="a client", library="a library")


def about(options: Options) -> ClientStarted:
    return STARTED


def work(config: WorkerConfig, options: Options, recorder: Recorder) -> str:
    if options.failures:
        raise OSError("no route to host")
    return "done"


def started_with(tmp_path: Path, options: bytes) -> list[str]:
    events = tmp_path / "clients.a-1#1.ndjson"
    config = WorkerConfig(
        run="run",
        process="clients/a-1#1",
        events=str(events),
        bootstrap=(),
        hosts={},
        client_port=1,
        options=msgspec.Raw(options),
    )
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(config))
    return ["worker", str(path)]


def recorded(tmp_path: Path) -> list[object]:
    codec = Codec()
    lines = (tmp_path / "clients.a-1#1.ndjson").read_bytes().splitlines()
    return [codec.decode(line).body for line in lines]


def test_a_worker_records_what_it_is_and_why_it_ended(tmp_path: Path) -> None:
    argv = started_with(tmp_path, b'{"failures":0}')
    assert run_worker(argv, Options, about, work) == 0
    assert recorded(tmp_path) == [STARTED, NodeStopped(reason="done")]


def test_an_exception_of_a_worker_is_its_own_failure(tmp_path: Path) -> None:
    argv = started_with(tmp_path, b'{"failures":1}')
    with pytest.raises(OSError, match="no route"):
        run_worker(argv, Options, about, work)
    failed = ClientFailed(error="OSError: no route to host", fatal=True)
    assert recorded(tmp_path) == [STARTED, failed, NodeStopped(reason="failed")]


def test_a_configuration_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = started_with(tmp_path, b'{"failures":"often"}')
    for wrong in (argv, [str(tmp_path / "nowhere.json")]):
        assert run_worker(wrong, Options, about, work) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("the worker's configuration cannot be read: ")


STOPPED_PROGRAM = """
import sys
from fencepost import run_worker
from tests.framework.workloads.test_worker import Options, about

def work(config, options, recorder):
    print("working", flush=True)
    sys.stdin.read()
    return "done"

sys.exit(run_worker(sys.argv, Options, about, work))
"""


@pytest.mark.tool
def test_a_worker_that_was_stopped_for_a_while_records_how_long(tmp_path: Path) -> None:
    argv = started_with(tmp_path, b'{"failures":0}')
    worker = subprocess.Popen(
        [sys.executable, "-c", STOPPED_PROGRAM, argv[-1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    stopped_ns = now_ns()
    assert poll(lambda: now_ns() - stopped_ns > SECOND, limit_s=5)
    worker.send_signal(signal.SIGCONT)
    path = tmp_path / "clients.a-1#1.ndjson"
    assert poll(lambda: b"process.stalled" in path.read_bytes(), limit_s=10)
    worker.communicate()
    stalls = [body.stalled_ns for body in recorded(tmp_path) if isinstance(body, Stalled)]
    assert sum(stalls) > SECOND - STALL_NS
    assert recorded(tmp_path)[-1] == NodeStopped(reason="done")
