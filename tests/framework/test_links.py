"""Links, against real toxiproxies: each of toxiproxy's and its package's traps has its guard.

Where a trap is toxiproxy's own, a test first shows that it is there: without it, the guard would be
dead weight.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from toxiproxy.api import APIConsumer

from fencepost import HEALTHY, EnvironmentFailed, Layout, Link, LinkState, Role, Slot, UsageError
from fencepost import links as module
from fencepost.addresses import Addresses, claim
from fencepost.clock import SECOND, now_ns, poll
from fencepost.launcher import Launcher
from fencepost.links import Links, find_toxiproxy, toxiproxy_version
from fencepost.run_folder import RunFolder

PORT = 9092
SLOTS = tuple(Slot(f"broker-{n}", Role.BROKER, n, n) for n in (1, 2, 3))
ONE_TWO = Link("broker-1", "broker-2", PORT)
TWO_ONE = Link("broker-2", "broker-1", PORT)
ONE_THREE = Link("broker-1", "broker-3", PORT)
LAYOUT = Layout(SLOTS, (ONE_TWO, TWO_ONE, ONE_THREE))
CUT = LinkState(cut_upstream=True, cut_downstream=True)


@dataclass(frozen=True)
class Bench:
    """Three slots with an echoing server each, and whatever a test adds."""

    finish: ExitStack
    folder: RunFolder
    launcher: Launcher
    addresses: Addresses
    heard: Counter[str] = field(default_factory=Counter)
    """slot -> bytes that reached its server."""

    def serve(self, slot: Slot) -> None:
        """An echoing server at the slot's own address."""
        server = socket.create_server((self.addresses.own(slot), PORT))
        self.finish.callback(server.close)
        self.finish.callback(server.shutdown, socket.SHUT_RDWR)

        def echo(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while data := connection.recv(65536):
                    self.heard[slot.name] += len(data)
                    connection.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=echo, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def links(self, layout: Layout = LAYOUT) -> Links:
        return Links(layout, self.addresses, self.launcher, self.folder)

    def dial(self, links: Links, link: Link) -> socket.socket:
        connection = socket.create_connection(links.end(link), 5)
        self.finish.callback(connection.close)
        connection.settimeout(0.3)
        return connection

    def api(self, slot: Slot, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """A raw request to a slot's toxiproxy, beside the module under test."""
        connection = http.client.HTTPConnection(self.addresses.api(slot), 8474, timeout=5)
        try:
            connection.request(method, path, json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as finish:
        claimed = claim()
        finish.callback(claimed.close)
        folder = RunFolder.create(tmp_path / "run")
        launcher = Launcher(folder.log_of("supervisor"), [claimed.fileno()])
        finish.callback(launcher.close)
        bench = Bench(finish, folder, launcher, Addresses(claimed.run))
        for slot in SLOTS:
            bench.serve(slot)
        yield bench


def echoes(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"ping")
        return connection.recv(100) == b"ping"
    except OSError:
        return False


def answers(bench: Bench, links: Links, link: Link) -> bool:
    with suppress(OSError):
        return echoes(bench.dial(links, link))
    return False


def process_of(bench: Bench, slot: str) -> int:
    """The process id of a slot's toxiproxy."""
    host = bench.addresses.api(LAYOUT.slot(slot))
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and host.encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
    raise AssertionError(f"{slot} has no toxiproxy")


def test_every_link_leads_to_its_target(bench: Bench) -> None:
    links = bench.links()
    assert all(answers(bench, links, link) for link in LAYOUT.links)
    assert links.differences(LAYOUT.links) == []


def test_a_slot_that_dials_nobody_has_no_toxiproxy(bench: Bench) -> None:
    assert len(bench.links().processes) == 2


def test_a_cut_silences_its_link_and_no_other(bench: Bench) -> None:
    links = bench.links()
    before = bench.dial(links, ONE_TWO)
    assert echoes(before)
    assert links.apply({ONE_TWO: CUT}) == []
    assert not echoes(before)
    assert not answers(bench, links, ONE_TWO)
    assert answers(bench, links, TWO_ONE)
    assert answers(bench, links, ONE_THREE)
    assert links.state(ONE_TWO) == CUT


def test_healing_closes_what_met_the_cut(bench: Bench) -> None:
    """As documented: a connection that lost bytes cannot be trusted, and toxiproxy ends it."""
    links = bench.links()
    before = bench.dial(links, ONE_TWO)
    assert echoes(before)
    links.apply({ONE_TWO: CUT})
    links.apply({ONE_TWO: HEALTHY})
    before.settimeout(5)
    assert before.recv(1) == b""
    assert answers(bench, links, ONE_TWO)


@pytest.mark.parametrize(
    ("state", "heard"),
    [(LinkState(cut_upstream=True), False), (LinkState(cut_downstream=True), True)],
    ids=["upstream", "downstream"],
)
def test_a_one_way_cut_drops_its_direction_only(
    bench: Bench, state: LinkState, heard: bool
) -> None:
    links = bench.links()
    connection = bench.dial(links, ONE_TWO)
    assert echoes(connection)
    bench.heard.clear()
    links.apply({ONE_TWO: state})
    assert not echoes(connection)
    assert bool(bench.heard["broker-2"]) is heard


@pytest.mark.parametrize(
    ("state", "dropped"),
    [(LinkState(cut_upstream=True), (4, 0)), (LinkState(cut_downstream=True), (0, 4))],
    ids=["upstream", "downstream"],
)
def test_what_vanishes_is_counted_by_direction(
    bench: Bench, state: LinkState, dropped: tuple[int, int]
) -> None:
    links = bench.links()
    links.apply({ONE_TWO: state})
    with bench.dial(links, ONE_TWO) as connection:
        assert not echoes(connection)

    def vanished() -> tuple[int, int]:
        passed = links.bytes_passed([ONE_TWO])
        return passed[ONE_TWO, "upstream"].dropped, passed[ONE_TWO, "downstream"].dropped

    assert poll(lambda: vanished() == dropped, 5), vanished()


def test_delay_and_rate_can_be_set_changed_and_removed(bench: Bench) -> None:
    links = bench.links()

    def round_trip_ms() -> float:
        connection = bench.dial(links, ONE_TWO)
        began = now_ns()
        assert echoes(connection)
        return (now_ns() - began) / 1e6

    links.apply({ONE_TWO: LinkState(latency_ms=60)})
    assert round_trip_ms() >= 115
    links.apply({ONE_TWO: LinkState(latency_ms=20, rate_kb=100)})
    assert 38 <= round_trip_ms() < 115
    assert links.differences([ONE_TWO]) == []
    links.apply({ONE_TWO: HEALTHY})
    assert round_trip_ms() < 38


def test_a_state_without_sense_changes_nothing(bench: Bench) -> None:
    links = bench.links()
    with pytest.raises(UsageError, match="latency"):
        links.apply({ONE_THREE: CUT, ONE_TWO: LinkState(latency_ms=-1)})
    assert answers(bench, links, ONE_THREE)
    assert links.state(ONE_THREE) == HEALTHY


# --------------------------------------------------------------------- traps of the server's own


def test_trap_misspelt_attributes_are_taken_silently(bench: Bench) -> None:
    bench.links()
    toxic = {"type": "latency", "stream": "upstream", "attributes": {"latnecy": 500}}
    status, shown = bench.api(SLOTS[0], "POST", "/proxies/broker-2.9092/toxics", toxic)
    assert status == 200
    assert json.loads(shown)["attributes"] == {"latency": 0, "jitter": 0}


def test_trap_a_slicer_without_its_size_ends_the_server(bench: Bench) -> None:
    links = bench.links()
    pid = process_of(bench, "broker-1")
    toxic = {"type": "slicer", "stream": "upstream"}
    assert bench.api(SLOTS[0], "POST", "/proxies/broker-2.9092/toxics", toxic)[0] == 200
    assert not answers(bench, links, ONE_TWO)
    (name,) = [name for name in links.processes if "broker-1" in name]
    exit_ = bench.launcher.wait(name, 5)
    assert exit_ is not None
    assert exit_.code == 2
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_died_is_named_with_its_last_words(bench: Bench) -> None:
    links = bench.links()
    os.kill(process_of(bench, "broker-1"), signal.SIGABRT)
    with pytest.raises(EnvironmentFailed, match="toxiproxy of broker-1 ended with exit") as failed:
        links.apply({ONE_TWO: CUT, ONE_THREE: CUT})
    assert "rflags" in failed.value.detail  # Go's own last words
    assert len(failed.value.detail.splitlines()) == 15


def test_trap_populate_ignores_toxics_and_disabling(bench: Bench) -> None:
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    (host, port), own = links.end(ONE_TWO), bench.addresses.own(SLOTS[1])
    proxy = {"name": "broker-2.9092", "listen": f"{host}:{port}", "upstream": f"{own}:{PORT}"}
    again = [{**proxy, "enabled": False, "toxics": []}]
    assert bench.api(SLOTS[0], "POST", "/populate", again)[0] == 201
    assert links.differences([ONE_TWO]) == []  # neither disabled nor without its toxics


def test_trap_the_version_is_git_so_it_is_read_from_the_program(bench: Bench) -> None:
    bench.links()
    binary = find_toxiproxy(os.environ)
    assert json.loads(bench.api(SLOTS[0], "GET", "/version")[1]) == {"version": "git"}
    assert toxiproxy_version(binary).startswith("v2.")


def test_a_program_of_another_kind_has_no_known_version(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF nothing of the sort")
    assert toxiproxy_version(tmp_path / "program") == "unknown"


def test_changes_made_behind_our_back_are_found(bench: Bench) -> None:
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    bench.api(SLOTS[0], "DELETE", "/proxies/broker-2.9092/toxics/timeout-upstream")
    (found,) = links.differences(LAYOUT.links)
    assert found == "broker-1 -> broker-2 has ['timeout downstream timeout=0']"
    bench.api(SLOTS[0], "POST", "/proxies/broker-3.9092", {"enabled": False})
    assert len(links.differences(LAYOUT.links)) == 2


def test_a_refused_request_gives_the_servers_reason(bench: Bench) -> None:
    """The package would say KeyError, ProxyExists or nothing at all."""
    links = bench.links()
    toxic = {"name": "timeout-upstream", "type": "timeout", "stream": "upstream"}
    bench.api(SLOTS[0], "POST", "/proxies/broker-2.9092/toxics", toxic)
    with pytest.raises(EnvironmentFailed, match=r"toxiproxy of broker-1 refused.*already exists"):
        links.apply({ONE_TWO: CUT})


# ------------------------------------------------------------------------- servers that hang


def test_a_hung_server_is_killed_and_built_anew_as_wanted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "API_LIMIT_S", 0.5)
    links = bench.links()
    links.apply({ONE_THREE: LinkState(latency_ms=50)})
    os.kill(process_of(bench, "broker-1"), signal.SIGSTOP)
    began = now_ns()
    assert links.apply({ONE_TWO: CUT}) == [
        "the toxiproxy of broker-1 hung and was built anew",
    ]
    assert now_ns() - began < 3 * SECOND
    assert not answers(bench, links, ONE_TWO)
    assert answers(bench, links, ONE_THREE)
    assert links.differences(LAYOUT.links) == []
    assert links.apply({ONE_TWO: HEALTHY}) == []
    assert answers(bench, links, ONE_TWO)


def test_a_server_that_hangs_when_it_is_read_is_built_anew_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "API_LIMIT_S", 0.5)
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    os.kill(process_of(bench, "broker-1"), signal.SIGSTOP)
    assert links.differences(LAYOUT.links) == []
    assert not answers(bench, links, ONE_TWO)


def test_a_cut_link_is_never_open_while_its_server_is_built_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "API_LIMIT_S", 0.3)
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
            os.kill(process_of(bench, "broker-1"), signal.SIGSTOP)
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
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "API_LIMIT_S", 0.3)
    monkeypatch.setattr(module, "START_LIMIT_S", 0.5)
    links = bench.links()
    os.kill(process_of(bench, "broker-1"), signal.SIGSTOP)
    monkeypatch.setattr(links, "_binary", program(tmp_path, "echo I hang; exec sleep 60"))
    with pytest.raises(EnvironmentFailed, match="did not listen within") as failed:
        links.apply({ONE_TWO: CUT})
    assert failed.value.detail == "I hang"


# ---------------------------------------------------------------------- the package's own traps


def test_the_packages_class_wide_address_is_put_back(bench: Bench) -> None:
    before = APIConsumer.host, APIConsumer.port
    links = bench.links()
    links.apply({ONE_TWO: CUT, TWO_ONE: CUT})
    assert (APIConsumer.host, APIConsumer.port) == before
    bench.api(SLOTS[0], "DELETE", "/proxies/broker-2.9092")
    with pytest.raises(EnvironmentFailed, match="proxy not found"):
        links.apply({ONE_TWO: HEALTHY})
    assert (APIConsumer.host, APIConsumer.port) == before


def test_each_slots_server_gets_its_own_orders(bench: Bench) -> None:
    links = bench.links()
    links.apply({ONE_TWO: LinkState(latency_ms=3), TWO_ONE: LinkState(latency_ms=7)})
    for slot, proxy, latency_ms in [(SLOTS[0], "broker-2", 3), (SLOTS[1], "broker-1", 7)]:
        listed = json.loads(bench.api(slot, "GET", f"/proxies/{proxy}.9092/toxics")[1])
        assert {toxic["attributes"]["latency"] for toxic in listed} == {latency_ms}
        assert {toxic["toxicity"] for toxic in listed} == {1}
        assert {toxic["stream"] for toxic in listed} == {"upstream", "downstream"}


def test_http_proxies_of_the_environment_are_not_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    links = bench.links()
    links.apply({ONE_TWO: CUT})
    assert not answers(bench, links, ONE_TWO)


# -------------------------------------------------------------------------- a poor environment


def program(folder: Path, script: str) -> Path:
    path = folder / "toxiproxy-server"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_port_in_use_is_named(bench: Bench) -> None:
    taken = bench.addresses.seen(SLOTS[0], SLOTS[1])
    bench.finish.enter_context(socket.create_server((taken, PORT)))
    with pytest.raises(EnvironmentFailed, match=f"{taken}:{PORT}.*address already in use"):
        bench.links()


def test_an_api_port_in_use_is_named(bench: Bench) -> None:
    taken = bench.addresses.api(SLOTS[0])
    bench.finish.enter_context(socket.create_server((taken, 8474)))
    with pytest.raises(EnvironmentFailed, match=f"{taken}:8474, a toxiproxy's own, is in use"):
        bench.links()


def test_an_api_address_that_cannot_be_bound_is_named_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A toxiproxy that cannot listen says so and lives on."""
    monkeypatch.setattr(Addresses, "api", lambda self, slot: "192.0.2.1")  # nobody's (RFC 5737)
    began = now_ns()
    with pytest.raises(EnvironmentFailed, match="of broker-1 could not listen") as failed:
        bench.links()
    assert now_ns() - began < 3 * SECOND
    assert "cannot assign requested address" in failed.value.detail


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo no such flag; exit 2", "ended with exit code 2"),
        ("echo no such flag; exec sleep 60", "did not listen within"),
    ],
    ids=["ends", "hangs"],
)
def test_a_toxiproxy_that_does_not_start_shows_its_log(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(module, "START_LIMIT_S", 0.5)
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
    assert beside.name == "toxiproxy-server"
    monkeypatch.setattr("sys.executable", os.fspath(tmp_path / "elsewhere" / "python"))
    assert find_toxiproxy({"PATH": os.fspath(tmp_path)}) == named
    with pytest.raises(EnvironmentFailed, match=r"\./dev setup, or set FENCEPOST_TOXIPROXY"):
        find_toxiproxy({"PATH": os.fspath(tmp_path / "elsewhere")})


def test_a_wrongly_named_toxiproxy_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"names .*nowhere, which is no program"):
        find_toxiproxy({"FENCEPOST_TOXIPROXY": os.fspath(tmp_path / "nowhere")})
