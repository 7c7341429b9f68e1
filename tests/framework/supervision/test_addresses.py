"""Addresses: no two slots, links or runs ever share one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from fencepost import EnvironmentFailed, Layout, Link, Slot, UsageError
from fencepost.supervision.addresses import RUNS, Addresses, check_layout, claim
from fencepost_kafka import Role

ONE = Slot("broker-1", Role.BROKER, 1, 1)
TWO = Slot("broker-2", Role.BROKER, 2, 2)
LINK = Link("broker-1", "broker-2", 9092)


def test_addresses_name_run_slot_and_peer() -> None:
    addresses = Addresses(7)
    assert addresses.own(TWO) == "127.7.2.2"
    assert addresses.seen(ONE, TWO) == "127.7.1.2"


def test_a_claimed_run_is_passed_over_until_it_is_given_up() -> None:
    pair = range(240, 242)
    first = claim(240, pair)
    second = claim(240, pair)
    assert (first.run, second.run) == (240, 241)
    first.close()
    first.close()
    third = claim(241, pair)  # the search wraps round
    assert third.run == 240
    with pytest.raises(EnvironmentFailed, match="all 2 address ranges are claimed"):
        claim(240, pair)
    second.close()
    third.close()


@pytest.mark.real
def test_a_claim_lasts_as_long_as_any_process_that_inherited_it() -> None:
    only = range(242, 243)
    mine = claim(242, only)
    inheritor = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[mine.fileno()],
    )
    mine.close()
    with pytest.raises(EnvironmentFailed):
        claim(242, only)
    os.kill(inheritor.pid, signal.SIGKILL)
    inheritor.communicate()
    claim(242, only).close()


def test_the_claim_is_in_the_range_it_stands_for() -> None:
    mine = claim()
    assert mine.run in RUNS
    with socket.socket(fileno=os.dup(mine.fileno())) as held:
        assert held.getsockname()[0].startswith(f"127.{mine.run}.")
    mine.close()


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout((ONE, replace(TWO, name="Broker 2")), ()), "'Broker 2' is not lower-case"),
        (Layout((ONE, replace(TWO, name="../2")), ()), "is not lower-case"),
        (Layout((ONE, replace(TWO, index=251)), ()), "index 251"),
        (Layout((ONE, replace(TWO, index=1)), ()), "two slots have index 1"),
        (Layout((ONE, replace(TWO, name="broker-1")), ()), "two slots are named broker-1"),
        (Layout((ONE, TWO), (replace(LINK, target="broker-3"),)), "does not join two slots"),
        (Layout((ONE, TWO), (replace(LINK, target="broker-1"),)), "does not join two slots"),
        (Layout((ONE, TWO), (replace(LINK, port=40000),)), "a port below 32768"),
        (Layout((ONE, TWO), (replace(LINK, port=8473),)), "that Fencepost does not use itself"),
        (Layout((ONE, TWO), (LINK, LINK)), "laid out twice"),
    ],
)
def test_a_layout_that_fits_no_loopback_network_is_refused(layout: Layout, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_layout(layout)


def test_a_sound_layout_passes() -> None:
    check_layout(Layout((ONE, TWO), (LINK, Link("broker-2", "broker-1", 9092))))
