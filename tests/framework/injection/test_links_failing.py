"""Links when toxiproxy hangs, is missing, or finds its ports taken: bounded, named, rebuilt."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.link_bench import (
    CUT,
    LAYOUT,
    ONE_THREE,
    ONE_TWO,
    PORT,
    SLOTS,
    Bench,
    answers,
    echoes,
    mute,
    program,
)

from fencepost import HEALTHY, EnvironmentFailed, Layout, Link, LinkState
from fencepost.injection import toxiproxies as module
from fencepost.injection.toxiproxies import find_toxiproxy, present_toxiproxy
from fencepost.model.clock import SECOND, now_ns, poll


def limit_start(bench: Bench, monkeypatch: pytest.MonkeyPatch, limit_s: float, says: str) -> None:
    """How long a toxiproxy may take to listen after it has logged this, however late that is."""

    def said() -> bool:
        return any(says in log.read_text() for log in bench.folder.logs.iterdir())

    def poll_later(holds: Callable[[], bool], limit_s: float) -> bool:
        assert poll(lambda: holds() or said(), 30)
        return poll(holds, limit_s)

    monkeypatch.setattr(module, "poll", poll_later)
    monkeypatch.setattr(module, "START_LIMIT_S", limit_s)


def test_a_hung_server_is_killed_and_built_anew_as_wanted(
    bench: Bench, hang: Callable[[str], None]
) -> None:
    links = bench.links()
    links.apply({ONE_THREE: LinkState(latency_ms=50)})
    hang("broker-1")
    began = now_ns()
    assert links.apply({ONE_TWO: CUT}) == [
        "the toxiproxy of broker-1 hung and was replaced",
    ]
    assert now_ns() - began < 10 * SECOND
    assert mute(bench, links, ONE_TWO)
    assert answers(bench, links, ONE_THREE)
    assert links.differences(LAYOUT.links) == []
    assert links.apply({ONE_TWO: HEALTHY}) == []
    assert answers(bench, links, ONE_TWO)


def test_a_server_that_hangs_when_it_is_read_is_built_anew_too(
    bench: Bench, hang: Callable[[str], None]
) -> None:
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    hang("broker-1")
    assert links.differences(LAYOUT.links) == []
    assert mute(bench, links, ONE_TWO)


def test_a_cut_link_is_never_open_while_its_server_is_built_anew(
    bench: Bench, hang: Callable[[str], None]
) -> None:
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    bench.heard.clear()
    over = threading.Event()

    def hammer() -> None:
        while not over.is_set():
            with suppress(OSError), socket.create_connection(links.end(ONE_TWO), 1) as connection:
                connection.sendall(b"through")

    hammering = threading.Thread(target=hammer)
    hammering.start()
    try:
        for latency_ms in (10, 20, 30):
            hang("broker-1")
            assert links.apply({ONE_THREE: LinkState(latency_ms=latency_ms)})
    finally:
        over.set()
        hammering.join()
    assert bench.heard["broker-2"] == 0


def test_trap_clients_that_left_a_long_delay_wedge_the_server(bench: Bench) -> None:
    """Healing such a link takes a bounded time, whether or not the server hangs."""
    links = bench.links()
    connections = [bench.dial(links, ONE_TWO) for _ in range(10)]
    assert all(echoes(connection) for connection in connections)
    links.apply({ONE_TWO: LinkState(latency_ms=600_000)})
    for connection in connections:
        connection.sendall(b"x" * 10_000)
    for connection in connections:  # closed by RST
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    began = now_ns()
    links.apply({ONE_TWO: HEALTHY})
    assert now_ns() - began < 6 * SECOND
    assert answers(bench, links, ONE_TWO)
    assert links.differences(LAYOUT.links) == []


def test_trap_a_target_that_takes_nothing_holds_up_no_change(bench: Bench) -> None:
    """As a paused node does, once its backlog and its buffers are full."""
    deaf = socket.socket()
    bench.finish.callback(deaf.close)
    deaf.bind((bench.addresses.own(SLOTS[1]), PORT + 1))
    deaf.listen(0)
    link = Link("broker-1", "broker-2", PORT + 1)
    links = bench.links(Layout(SLOTS, (link, ONE_THREE)))
    for _ in range(6):
        connection = bench.dial(links, link)
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                connection.send(bytes(65536))
    for state in (LinkState(latency_ms=5), CUT, HEALTHY):
        began = now_ns()
        links.apply({link: state})
        assert now_ns() - began < 6 * SECOND
        assert links.differences([link, ONE_THREE]) == []
    assert answers(bench, links, ONE_THREE)


def test_a_server_that_hangs_twice_is_an_environment_failure(
    bench: Bench,
    hang: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    links = bench.links()
    limit_start(bench, monkeypatch, 0.5, "I hang")
    hang("broker-1")
    monkeypatch.setattr(
        links._toxiproxies, "_binary", program(tmp_path, "echo I hang; exec sleep 60")
    )
    with pytest.raises(EnvironmentFailed, match="did not listen within") as failed:
        links.apply({ONE_TWO: CUT})
    assert failed.value.detail == "I hang"


# -------------------------------------------------------------------------- a poor environment


def test_a_port_in_use_is_named(bench: Bench) -> None:
    taken = bench.addresses.seen(SLOTS[0], SLOTS[1])
    bench.finish.enter_context(socket.create_server((taken, PORT)))
    with pytest.raises(EnvironmentFailed, match=f"{taken}:{PORT}.*address already in use"):
        bench.links()


def test_a_socket_that_cannot_be_made_is_named(bench: Bench) -> None:
    bench.folder.sockets.mkdir()
    bench.folder.socket_of("toxiproxy/broker-1#1").touch()
    with pytest.raises(EnvironmentFailed, match="of broker-1 ended with exit code 1") as failed:
        bench.links()
    assert "address already in use" in failed.value.detail


@pytest.mark.parametrize(
    ("script", "limit_s", "says"),
    [
        ("echo no such flag; exit 2", 10, "ended with exit code 2"),
        ("echo no such flag; exec sleep 60", 0.5, "did not listen within"),
    ],
    ids=["ends", "hangs"],
)
def test_a_toxiproxy_that_does_not_start_shows_its_log(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    limit_s: float,
    says: str,
) -> None:
    limit_start(bench, monkeypatch, limit_s, "no such flag")
    monkeypatch.setenv("FENCEPOST_TOXIPROXY", os.fspath(program(tmp_path, script)))
    with pytest.raises(EnvironmentFailed, match=says) as failed:
        bench.links()
    assert failed.value.detail == "no such flag"


def test_toxiproxy_is_found_where_it_is_named_beside_python_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = program(tmp_path, "exit 0")
    assert find_toxiproxy({"FENCEPOST_TOXIPROXY": os.fspath(named)}) == named
    beside = find_toxiproxy({})
    assert beside.name == "fencepost-toxiproxy"
    monkeypatch.setattr("sys.executable", os.fspath(tmp_path / "elsewhere" / "python"))
    assert find_toxiproxy({"PATH": os.fspath(tmp_path)}) == named
    with pytest.raises(EnvironmentFailed, match="run `fencepost setup`, or set FENCEPOST_T"):
        find_toxiproxy({"PATH": os.fspath(tmp_path / "elsewhere")})


def test_a_wrongly_named_toxiproxy_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"names .*nowhere, which is no program"):
        find_toxiproxy({"FENCEPOST_TOXIPROXY": os.fspath(tmp_path / "nowhere")})


def test_a_toxiproxy_of_an_earlier_version_is_refused_before_a_run(tmp_path: Path) -> None:
    """It lacks the toxic of cuts, which it would refuse in the middle of a run."""
    assert present_toxiproxy({}) == find_toxiproxy({})
    former = program(tmp_path, "exit 0")
    with pytest.raises(
        EnvironmentFailed, match=r"built by an earlier version .* `fencepost setup`"
    ):
        present_toxiproxy({"FENCEPOST_TOXIPROXY": os.fspath(former)})
