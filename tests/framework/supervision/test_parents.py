"""A process that ends with the one that made it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tool

PROGRAM = """
import os, sys, time
from fencepost.supervision.parents import end_with

maker = os.getpid()
if os.fork() == 0:
    if sys.argv[1] == "before":
        maker += 1
    end_with(maker)
    os.write(1, b"lives ")
    time.sleep(60)
sys.stdin.read()
os.kill(maker, 9)
"""


@pytest.mark.parametrize(("ended", "said"), [("after", b"lives "), ("before", b"")])
def test_it_ends_with_its_parent_and_at_once_if_that_has_ended(ended: str, said: bytes) -> None:
    """It holds the pipe on which its maker prints: the pipe ends with the last of both."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, ended],
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as maker:
        assert maker.stdout is not None
        assert maker.stdin is not None
        assert maker.stdout.read(len(said)) == said
        maker.stdin.close()
        assert maker.stdout.read() == b""
        assert maker.wait() == -9
