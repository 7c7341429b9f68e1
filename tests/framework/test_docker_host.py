"""What containers write on its way into a run's files, and where slots are; no engine is needed."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, Role, Slot
from fencepost.addresses import Addresses
from fencepost.docker_host import DockerAddresses, _Ends, _Output
from fencepost.launcher import Exit

BROKER, OTHER = Slot("broker-1", Role.BROKER, 1, 4), Slot("broker-2", Role.BROKER, 2, 5)
CLIENTS = Slot("clients", Role.CLIENT, -1, 10)


def test_events_are_whole_lines_and_an_unfinished_one_is_none(tmp_path: Path) -> None:
    ends = _Ends()
    events, log = tmp_path / "events", tmp_path / "log"
    output = _Output(events, log, ends)
    for part in (b'{"a"', b":1}\n", b'{"b":2}\n{"c"'):
        output.event(part)
    assert events.read_bytes() == b'{"a":1}\n{"b":2}\n'
    output.end()
    assert events.read_bytes() == b'{"a":1}\n{"b":2}\n'
    assert log.read_bytes() == b'ended while it wrote an event: {"c"\n'
    assert ends.take() == []
    ends.close()


def test_what_cannot_be_kept_is_not_lost_in_silence(tmp_path: Path) -> None:
    ends = _Ends()
    output = _Output(tmp_path / "no folder" / "events", tmp_path / "log", ends)
    output.event(b"{}\n")
    assert select.select([ends], [], [], 0)[0]
    with pytest.raises(EnvironmentFailed, match="events cannot be written: No such file"):
        ends.take()
    assert ends.take() == []
    ends.close()


def test_an_end_wakes_whoever_selects_is_told_once_and_stays_known() -> None:
    ends = _Ends()
    assert not select.select([ends], [], [], 0)[0]
    end = Exit("broker-1#1", 0, 9, 7)
    ends.note(end)
    assert select.select([ends], [], [], 0)[0]
    assert ends.take() == [end]
    assert ends.take() == []
    assert not select.select([ends], [], [], 0)[0]
    assert ends.wait("broker-1#1", 0) == end
    assert ends.wait("broker-1#2", 0.01) is None
    ends.close()


def test_a_pod_sees_its_links_on_loopback_and_clients_see_theirs_on_this_host() -> None:
    addresses = DockerAddresses(Addresses(7))
    assert addresses.own(BROKER) == "198.18.7.4"
    assert addresses.seen(BROKER, BROKER) == "198.18.7.4"
    assert addresses.seen(BROKER, OTHER) == "127.0.1.5"
    assert addresses.seen(CLIENTS, OTHER) == "127.7.10.5"
    assert addresses.outside(BROKER) == "127.7.4.4"
