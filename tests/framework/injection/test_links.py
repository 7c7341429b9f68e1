"""Links, against real toxiproxies: each of toxiproxy's traps has its guard.

If a trap is toxiproxy's own, a test shows that it exists, since otherwise the guard would not be
needed. (Except for the slicer without a size: it takes a gigabyte of stack until the server dies.)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import pytest
from tests.link_bench import (
    CUT,
    LAYOUT,
    ONE_THREE,
    ONE_TWO,
    PATIENCE_S,
    PORT,
    SILENCE_S,
    SLOTS,
    TWO_ONE,
    Bench,
    answers,
    echoes,
    mute,
    open_bench,
    process_of,
)

from fencepost import HEALTHY, EnvironmentFailed, LinkState, UsageError
from fencepost.injection.toxiproxies import find_toxiproxy, toxiproxy_version
from fencepost.model.clock import now_ns, poll


def test_every_link_leads_to_its_target(bench: Bench) -> None:
    links = bench.links()
    assert all(answers(bench, links, link) for link in LAYOUT.links)
    assert links.differences(LAYOUT.links) == []


def test_a_slot_without_links_has_no_toxiproxy(bench: Bench) -> None:
    assert len(bench.links().processes) == 2


def test_a_cut_silences_its_link_and_no_other(bench: Bench) -> None:
    links = bench.links()
    before = bench.dial(links, ONE_TWO)
    assert echoes(before)
    assert links.apply({ONE_TWO: CUT}) == []
    assert not echoes(before, SILENCE_S)
    assert mute(bench, links, ONE_TWO)
    assert answers(bench, links, TWO_ONE)
    assert answers(bench, links, ONE_THREE)
    assert links.state(ONE_TWO) == CUT


def test_healing_closes_connections_that_met_the_cut(bench: Bench) -> None:
    """As documented: a connection that lost bytes is invalid, and toxiproxy ends it."""
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
    assert not echoes(connection, SILENCE_S)
    if heard:
        assert poll(lambda: bench.heard["broker-2"] > 0, PATIENCE_S)
    assert bool(bench.heard["broker-2"]) is heard


@pytest.mark.parametrize(
    ("state", "dropped"),
    [(LinkState(cut_upstream=True), (4, 0)), (LinkState(cut_downstream=True), (0, 4))],
    ids=["upstream", "downstream"],
)
def test_dropped_bytes_are_counted_by_direction(
    bench: Bench, state: LinkState, dropped: tuple[int, int]
) -> None:
    links = bench.links()
    links.apply({ONE_TWO: state})
    with bench.dial(links, ONE_TWO) as connection:
        assert not echoes(connection, SILENCE_S)

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

    def quickest_ms() -> float:
        """The link delays every round trip; any further delay is the machine's."""
        return min(round_trip_ms() for _ in range(5))

    links.apply({ONE_TWO: LinkState(latency_ms=60)})
    assert quickest_ms() >= 115
    links.apply({ONE_TWO: LinkState(latency_ms=20, rate_kb=100)})
    assert 38 <= quickest_ms() < 115
    assert links.differences([ONE_TWO]) == []
    links.apply({ONE_TWO: HEALTHY})
    assert quickest_ms() < 38


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


def test_a_server_that_died_is_named_with_its_last_lines(bench: Bench) -> None:
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
    bench.api(SLOTS[0], "DELETE", "/proxies/broker-2.9092/toxics/cut-upstream")
    (found,) = links.differences(LAYOUT.links)
    assert found == "broker-1 -> broker-2 has ['cut downstream link=broker-2.9092']"
    bench.api(SLOTS[0], "POST", "/proxies/broker-3.9092", {"enabled": False})
    assert len(links.differences(LAYOUT.links)) == 2
    bench.api(SLOTS[0], "DELETE", "/proxies/broker-2.9092")
    assert links.differences(LAYOUT.links) == [
        "broker-1 -> broker-2 has no proxy",
        "broker-1 -> broker-3 is disabled",
    ]
    assert links.repaired("broker-1") == {
        "broker-1 -> broker-2:9092": "it has no proxy",
        "broker-1 -> broker-3:9092": "it is disabled",
    }
    assert links.differences(LAYOUT.links) == []
    assert links.repaired("broker-1") == {}


def test_a_refused_request_gives_the_servers_reason(bench: Bench) -> None:
    links = bench.links()
    toxic = {"name": "cut-upstream", "type": "cut", "stream": "upstream"}
    bench.api(SLOTS[0], "POST", "/proxies/broker-2.9092/toxics", toxic)
    with pytest.raises(EnvironmentFailed, match=r"toxiproxy of broker-1 refused.*already exists"):
        links.apply({ONE_TWO: CUT})


# -------------------------------------------------------------------------- whose orders it takes


def test_the_api_belongs_to_its_user_alone(bench: Bench) -> None:
    bench.links()
    assert stat.S_IMODE(bench.folder.sockets.stat().st_mode) == 0o700
    found = list(bench.folder.sockets.iterdir())
    assert len(found) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_can_change_no_link(bench: Bench) -> None:
    bench.links()
    for path in (bench.folder.path, *bench.folder.path.parents):
        path.chmod(path.stat().st_mode | 0o755)  # other sockets may be open to all users
    (listening,) = bench.folder.sockets.glob("toxiproxy.broker-1#*")
    assert [connects(listening, user) for user in (0, NOBODY)] == [True, False]


NOBODY = 65534


def connects(listening: Path, user: int) -> bool:
    """Whether that user can open the socket."""
    child = os.fork()
    if child == 0:
        os.chdir(listening.parent.parent)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        try:
            socket.socket(socket.AF_UNIX).connect(f"{listening.parent.name}/{listening.name}")
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_run_may_be_deeper_than_the_path_of_a_socket(tmp_path: Path, real: None) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    deep.mkdir(parents=True)
    with open_bench(deep) as bench:
        links = bench.links()
        links.apply({ONE_TWO: CUT})
        assert mute(bench, links, ONE_TWO)


def test_each_slots_server_gets_its_own_orders(bench: Bench) -> None:
    links = bench.links()
    links.apply({ONE_TWO: LinkState(latency_ms=3), TWO_ONE: LinkState(latency_ms=7)})
    for slot, proxy, latency_ms in [(SLOTS[0], "broker-2", 3), (SLOTS[1], "broker-1", 7)]:
        listed = json.loads(bench.api(slot, "GET", f"/proxies/{proxy}.9092/toxics")[1])
        assert {toxic["attributes"]["latency"] for toxic in listed} == {latency_ms}
        assert {toxic["toxicity"] for toxic in listed} == {1}
        assert {toxic["stream"] for toxic in listed} == {"upstream", "downstream"}
