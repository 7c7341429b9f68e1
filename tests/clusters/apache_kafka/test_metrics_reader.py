"""Pages over HTTP: each page makes an event. A node with a bad answer or none does not end the
reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost import Recorder
from fencepost.events import Codec
from fencepost_clusters.apache_kafka import metrics_reader
from fencepost_clusters.apache_kafka.metrics import MetricsObserved
from fencepost_clusters.apache_kafka.metrics_reader import follow, read_page
from fencepost_kafka import KINDS

PAGE = b"kafka_server_raft_metrics_current_epoch 4.0\n"
OK = b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reader and server share this process: when it stalls, no page comes within a second."""
    monkeypatch.setattr(metrics_reader, "LIMIT_S", 30.0)


async def asked_of(answer: bytes | None) -> Mapping[str, int]:
    """The page read from a server with this answer (None: the server never answers)."""
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /metrics?name[]=kafka_")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()
        served.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        said = await read_page("127.0.0.1", server.sockets[0].getsockname()[1])
        await served.wait()
        return said


def test_a_page_is_read() -> None:
    assert asyncio.run(asked_of(OK + PAGE)) == {"epoch": 4}


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.0 500 Oh\r\n\r\n" + PAGE, OK + PAGE[:-2], b"\xff\x00", b"200 \r\n\r\n" + PAGE],
    ids=["nothing", "an-error", "cut-short", "no-http", "no-status"],
)
def test_an_incomplete_page_has_no_figures(answer: bytes) -> None:
    assert asyncio.run(asked_of(answer)) == {}


def test_a_node_that_stalls_is_waited_for_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_reader, "LIMIT_S", 0.1)
    began = time.monotonic()
    assert asyncio.run(asked_of(None)) == {}
    assert time.monotonic() - began < 5


def test_a_node_that_is_down_has_no_page() -> None:
    assert asyncio.run(read_page("127.0.0.1", 1)) == {}


def test_a_page_is_recorded_once_until_it_changes_or_the_reader_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_reader, "EVERY_S", 0.01)
    monkeypatch.setattr(metrics_reader, "SELDOM_S", 0.01)
    pages = [PAGE, PAGE, PAGE.replace(b"4", b"5")]

    async def served() -> None:
        stopped, closed = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + pages.pop(0))
            if not pages:
                stopped.set()
            writer.close()
            await writer.wait_closed()
            if not pages:
                closed.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await follow("broker-1", "127.0.0.1", port, recorder, stopped)
            await closed.wait()

    events = tmp_path / "events.ndjson"
    recorder = Recorder.open(events, "run", "clients/metrics#1", (MetricsObserved, *KINDS))
    asyncio.run(served())
    recorder.close()
    codec = Codec((MetricsObserved, *KINDS))
    bodies = [codec.decode(line).body for line in events.read_bytes().splitlines()]
    assert [(one.slot, one.epoch) for one in bodies if isinstance(one, MetricsObserved)] == [
        ("broker-1", 4),
        ("broker-1", 5),
    ]
