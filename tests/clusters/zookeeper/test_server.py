"""How a server is configured, when it is ready, and that real ones start: alone, and three."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from zookeeper_clients import Client
from zookeeper_servers import NOT_DURABLE, RunningServer, available, standalone

from fencepost.model.clock import poll
from fencepost.supervision.addresses import claim
from fencepost_clusters.zookeeper import kafka_probe
from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Connected,
    Create,
    Created,
    Exists,
    Found,
    Unknown,
    Unsent,
)
from fencepost_clusters.zookeeper.distribution import installed
from fencepost_clusters.zookeeper.probe import server_probe, zookeeper_probe
from fencepost_clusters.zookeeper.server import CLIENT_PORT, ELECTION_PORT, Server, config, mode
from fencepost_kafka.layout import Ports

NAMES = {1: "zookeeper-1.fencepost", 2: "zookeeper-2.fencepost", 3: "zookeeper-3.fencepost"}


def test_a_server_alone_listens_at_its_address_only() -> None:
    lines = config(Server("127.0.0.1", "/data", 2200)).splitlines()
    assert {"clientPort=2200", "clientPortAddress=127.0.0.1", "dataDir=/data"} <= set(lines)
    assert not [line for line in lines if line.startswith("server.")]


def test_the_shortest_session_is_set() -> None:
    """ZooKeeper would silently raise the requested timeout to two ticks."""
    assert "minSessionTimeout=1000" in config(Server("127.0.0.1", "/data")).splitlines()


def test_members_know_each_other_by_name() -> None:
    lines = config(Server("127.0.0.1", "/data", number=2, members=NAMES)).splitlines()
    assert (
        "server.3=zookeeper-3.fencepost:2888:3888:participant;zookeeper-3.fencepost:2181" in lines
    )
    assert not [line for line in lines if line.startswith("clientPort")]


def test_a_number_that_is_no_members_is_refused() -> None:
    with pytest.raises(ValueError, match=r"4 is none of \[1, 2, 3\]"):
        config(Server("127.0.0.1", "/data", number=4, members=NAMES))


def test_only_a_mode_is_readiness() -> None:
    assert mode("Zxid: 0x0\nMode: standalone\nNode count: 5\n") == "standalone"
    assert mode("This ZooKeeper instance is not currently serving requests\n") is None
    assert mode("imok") is None


@available
@pytest.mark.real
def test_a_real_server_serves_and_its_probe_makes_no_transaction(tmp_path: Path) -> None:
    server = standalone(tmp_path)
    address, port = server.server.address, server.server.port
    try:
        assert server.mode() == "standalone"
        # Java starts without an archive that does not fit, and does not say so.
        assert server.has_mapped(installed(os.environ).archive)
        before = re.search("Zxid: .*", server.said("srvr"))
        for size in (0, 20_000):
            assert zookeeper_probe(address, port, 5.0, size)
        after = re.search("Zxid: .*", server.said("srvr"))
        assert before is not None
        assert after is not None
        assert before[0] == after[0]
    finally:
        server.end()
    assert not zookeeper_probe(address, port, 1.0)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[dict[int, RunningServer]]:
    network = claim()
    addresses = {number: f"127.{network.run}.{number}.{number}" for number in NAMES}
    hosts = {NAMES[number]: address for number, address in addresses.items()}
    running: dict[int, RunningServer] = {}
    try:
        for number, address in addresses.items():
            folder = tmp_path / str(number)
            server = Server(
                address, str(folder / "data"), number=number, members=NAMES, hosts=hosts,
                settings=NOT_DURABLE,
            )  # fmt: skip
            running[number] = RunningServer(server, folder)
        yield running
    finally:
        for one in running.values():
            one.end()
        network.close()


@available
@pytest.mark.real
def test_three_real_servers_elect_a_leader_and_none_serves_without_a_majority(
    ensemble: dict[int, RunningServer],
) -> None:
    for server in ensemble.values():
        server.wait()
    modes = [server.mode() for server in ensemble.values()]
    assert sorted(map(str, modes)) == ["follower", "follower", "leader"]
    for server in ensemble.values():
        for size in (0, 20_000):
            assert server_probe(server.server.address, ELECTION_PORT, 5.0, size)
            assert server_probe(server.server.address, CLIENT_PORT, 5.0, size)
    assert [server.mode() for server in ensemble.values()] == modes, "a probe changes no vote"
    alone, *others = ensemble.values()
    for server in others:
        server.end()
    assert poll(lambda: alone.mode() is None, 30.0, 0.05)
    # The trap: it still answers imok.
    assert alone.said("ruok") == "imok"
    assert "not currently serving" in alone.said("srvr")
    assert not zookeeper_probe(alone.server.address, alone.server.port, 2.0)
    assert server_probe(alone.server.address, ELECTION_PORT, 5.0), "it goes on asking for votes"
    alone.end()
    assert not server_probe(alone.server.address, ELECTION_PORT, 1.0)


@available
@pytest.mark.real
def test_a_session_and_its_ephemeral_outlive_the_leader_of_the_ensemble(
    ensemble: dict[int, RunningServer],
) -> None:
    """A transaction id holds the leader's term in its upper half, so it jumps at an election."""
    for server in ensemble.values():
        server.wait()

    async def test() -> None:
        one = Client(",".join(server.host for server in ensemble.values()), 20_000)
        session = await one.connected()
        first = await one.ask(Create("/first", ephemeral=True))
        (leader,) = (server for server in ensemble.values() if server.mode() == "leader")
        leader.end()
        second: Answer = Unsent()
        while isinstance(second, Unsent | Unknown):
            await one.wait(lambda: isinstance(one.states[-1], Connected))
            second = await one.ask(Create("/second-", ephemeral=True, sequential=True))
        found = await one.ask(Exists("/first"))
        await one.close()
        assert isinstance(first, Created)
        assert isinstance(second, Created)
        assert first.stat is not None
        assert second.stat is not None
        assert found == Found(first.stat)
        assert first.stat.owner == second.stat.owner == session
        assert second.stat.czxid >> 32 > first.stat.czxid >> 32
        assert {state for state in one.states if isinstance(state, Connected)} == {
            Connected(session)
        }

    asyncio.run(test())


@pytest.mark.tool
def test_a_probe_can_be_imported_where_only_the_framework_is_installed() -> None:
    """As in a pod, which has msgspec and pluggy."""
    program = (
        "import sys\n"
        "for name in ('kio', 'kazoo', 'confluent_kafka'): sys.modules[name] = None\n"
        "import fencepost_kafka.probe, fencepost_clusters.zookeeper.kafka_probe"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_port_of_neither_is_asked_as_a_broker_and_as_a_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clients' pod listens on other ports than the nodes do."""
    asked: list[str] = []

    def never(name: str) -> Callable[[str, int, float, int], bool]:
        return lambda address, port, timeout_s, size: bool(asked.append(name))

    for name in ("kafka_probe", "server_probe"):
        monkeypatch.setattr(kafka_probe, name, never(name))
    brokers = Ports()
    expected = {
        CLIENT_PORT: ["server_probe"],
        brokers.client: ["kafka_probe"],
        brokers.controller: ["kafka_probe"],
        brokers.replication: ["kafka_probe"],
        20_001: ["kafka_probe", "server_probe"],
    }
    for port, questions in expected.items():
        asked.clear()
        assert not kafka_probe.probe("127.0.0.1", port, 0.1)
        assert asked == questions
