"""The transaction log that a real server leaves on its disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_clients import Client
from zookeeper_servers import RunningServer, available, standalone

from fencepost_clusters.zookeeper.client.port import Check, Create, Multi, Request, SetData
from fencepost_clusters.zookeeper.transactions import changes, logged

LOG = Path(__file__).parent / "samples" / "log.1"
"""What a server of 3.9.5 logged of a session's start, three changes and a transaction of two."""


async def _write(server: RunningServer, requests: Sequence[Request]) -> None:
    client = Client(server.host)
    await client.connected()
    for request in requests:
        await client.ask(request)
    await client.close()


@pytest.mark.real
@available
def test_the_disk_of_a_server_that_was_killed_has_every_state_of_a_znode(tmp_path: Path) -> None:
    began_ns = time.time_ns()
    for number in range(2):
        server = standalone(tmp_path)
        try:
            made = () if number else (Create("/one", b"0"), Create("/two", b"a"))
            both = Multi((SetData("/one", b"both"), SetData("/two", b"b"), Check("/two", -1)))
            refused = Multi((SetData("/one", b"never"), Check("/two", 99)))
            sets = [SetData("/one", str(n).encode()) for n in range(1, 100)]
            asyncio.run(_write(server, [*made, *sets, refused, both]))
        finally:
            server.end()
    found = list(logged(tmp_path / "data"))
    one = [change for change in found if change.path == "/one"]
    each = [*(str(n).encode() for n in range(1, 100)), b"both"]
    assert [change.data for change in one] == [b"0", *each, *each]
    assert [change.version for change in one] == list(range(201))
    two = [(change.version, change.data) for change in found if change.path == "/two"]
    assert two == [(0, b"a"), (1, b"b"), (2, b"b")]
    assert [change.zxid for change in found] == sorted(change.zxid for change in found)
    assert all(began_ns - 1_000_000 <= change.at_ns <= time.time_ns() for change in found)


def test_a_recorded_log_is_read() -> None:
    assert [(one.path, one.version, one.data) for one in changes(LOG.read_bytes())] == [
        ("/one", 0, b"0"),
        ("/one", 1, b"1"),
        ("/one", 2, b"2"),
        ("/two", 0, b"a"),
        ("/one", 3, b"both"),
    ]


@given(st.integers(min_value=0, max_value=LOG.stat().st_size))
def test_a_log_that_is_cut_short_has_its_first_changes(size: int) -> None:
    whole = list(changes(LOG.read_bytes()))
    read = list(changes(LOG.read_bytes()[:size]))
    assert read == whole[: len(read)]


@given(st.integers(min_value=4), st.binary(min_size=1, max_size=8))
def test_a_log_with_damage_is_read_up_to_it(at: int, damage: bytes) -> None:
    log = bytearray(LOG.read_bytes())
    at %= len(log)
    log[max(at, 4) : max(at, 4) + len(damage)] = damage
    whole = list(changes(LOG.read_bytes()))
    read = list(changes(bytes(log)))
    assert read == whole[: len(read)]


def test_a_file_that_is_no_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"begins with b'ZKLG', not b'some'"):
        list(changes(b"some other file of any length"))
    folder = tmp_path / "version-2"
    folder.mkdir()
    (folder / "log.1").write_bytes(b"some other file of any length")
    (folder / "log.bak").write_bytes(b"")
    assert list(logged(tmp_path)) == []
    assert list(logged(tmp_path / "none")) == []
