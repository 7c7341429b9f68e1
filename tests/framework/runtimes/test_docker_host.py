"""The output of containers and pods, the addresses of slots, and the owners of leftovers; no engine
is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import time
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, Slot
from fencepost.model.clock import SECOND
from fencepost.runtimes.docker.engine import Leftover, owner
from fencepost.runtimes.docker.host import DockerAddresses, DockerHost, _Ends, _Output
from fencepost.runtimes.docker.pod_agent import Agent, unpack
from fencepost.runtimes.docker.pods import Pod
from fencepost.supervision.addresses import Addresses
from fencepost.supervision.launcher import Exit
from fencepost_kafka import Role

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


def test_output_that_cannot_be_written_raises_an_error(tmp_path: Path) -> None:
    ends = _Ends()
    output = _Output(tmp_path / "no folder" / "events", tmp_path / "log", ends)
    output.event(b"{}\n")
    assert select.select([ends], [], [], 0)[0]
    with pytest.raises(EnvironmentFailed, match="events cannot be written: No such file"):
        ends.take()
    assert ends.take() == []
    ends.close()


def test_an_end_wakes_a_select_is_yielded_once_and_stays_known() -> None:
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


def test_a_runs_leftovers_are_not_those_of_one_whose_number_begins_alike() -> None:
    host = object.__new__(DockerHost)
    host._prefix = "fencepost-1"
    ours = ("fencepost-1", "fencepost-1-broker-1", "fencepost-1-broker-1.2")
    for name in (*ours, "fencepost-12", "fencepost-12-broker-1", "fencepost"):
        for user in (owner(), "another user"):
            left = Leftover("pod", "id", name, "run", user)
            assert host._is_ours(left) == (name in ours and user == owner())


# ------------------------------------------------------------------------------------------ pods


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """A pod with an agent that records requests and returns the answers that the test gives it."""
    made = Pod(BROKER, "container", "volume", tmp_path / "log")
    made.opened(lambda data: None)
    return made


def test_an_agents_answers_come_in_parts_of_any_size(pod: Pod) -> None:
    for part in (b'{"id": 1, "text"', b':"', b'a"}', b'\n{"id": 2, "text": "b"}\n', b'{"id": 3}\n'):
        pod.received(part)
    assert [pod.ask("sockets").get("text") for _ in range(3)] == ["a", "b", None]


def test_an_answer_as_large_as_a_disk_is_put_together_once(pod: Pod) -> None:
    text = "x" * (24 << 20)
    packet = json.dumps({"id": 1, "tar": text}).encode() + b"\n"
    began = time.thread_time_ns()  # its processor time, however long the machine makes it wait
    for at in range(0, len(packet), 4096):
        pod.received(packet[at : at + 4096])
    cost_ns = time.thread_time_ns() - began
    assert cost_ns < 3 * SECOND  # ten times that, if each part copied all before it
    assert pod.ask("pack")["tar"] == text


def test_a_folder_that_vanishes_while_its_disk_is_packed_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    for name in ("gone", "kept"):
        (disk / name).mkdir(parents=True)
        (disk / name / "log").write_text(name)

    for name in ("listdir", "scandir"):
        look = getattr(os, name)

        def vanishing(path: object, look: object = look) -> object:
            if str(path).endswith("gone"):
                shutil.rmtree(str(path))
            return look(path)  # type: ignore[operator]

        monkeypatch.setattr(os, name, vanishing)
    packed = Agent().do_pack({"folder": str(disk)})["tar"]
    monkeypatch.undo()
    unpack(base64.b64decode(packed), copy)
    assert [path.name for path in sorted(copy.rglob("*"))] == ["gone", "kept", "log"]
