"""Connections that pass no link, by the sockets of processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost import Link
from fencepost.injection.direct import direct

pytestmark = pytest.mark.real

TARGET, ELSEWHERE = "127.0.0.71", "127.0.0.72"
DIALS = """
import socket, sys
held = [socket.create_connection((address, int(port))) for address, port in
        (one.split(":") for one in sys.argv[1:])]
print("dialled", flush=True)
sys.stdin.read()
"""
LINK = Link("node-1", "node-2", 7)


@pytest.fixture
def listening() -> Iterator[tuple[int, int]]:
    """The ports of a server at the target's own address, and of one where its link listens."""
    with (
        socket.create_server((TARGET, 0)) as own,
        socket.create_server((ELSEWHERE, 0)) as link,
    ):
        yield own.getsockname()[1], link.getsockname()[1]


@contextmanager
def dialling(*ends: str, shell: bool = False) -> Iterator[int]:
    """The process id of a program, the leader of its session, that has dialled these ends."""
    argv = [sys.executable, "-c", DIALS, *ends]
    if shell:  # a child of the process that was started
        argv = ["sh", "-c", '"$@"; true', "sh", *argv]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"dialled\n"
            yield started.pid
        finally:
            os.killpg(started.pid, signal.SIGKILL)


@pytest.mark.parametrize("shell", [False, True], ids=["the process", "its child"])
def test_a_process_that_dials_the_targets_own_address_is_seen(
    listening: tuple[int, int], shell: bool
) -> None:
    own, link = listening
    ends = (f"{TARGET}:{own}", f"{TARGET}:{own}", f"{ELSEWHERE}:{link}")
    with dialling(*ends, shell=shell) as pid:
        assert direct({LINK: (TARGET, own)}, {"node-1": pid}) == {LINK: 2}
        assert direct({LINK: (TARGET, own)}, {"node-3": pid}) == {}


def test_a_process_that_dials_its_link_is_none(listening: tuple[int, int]) -> None:
    own, link = listening
    # This process has one open, as the link's own proxy has.
    with dialling(f"{ELSEWHERE}:{link}") as pid, socket.create_connection((TARGET, own)):
        assert direct({LINK: (TARGET, own)}, {"node-1": pid}) == {}
    assert direct({LINK: (TARGET, own)}, {"node-1": pid}) == {}
