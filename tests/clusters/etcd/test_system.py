"""The layout, the commands and the state of `etcd/cluster`, without a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from etcd_histories import A, B, get, put, store, take

from fencepost import (
    NodeStarted,
    NotApplicable,
    Place,
    ProcessExited,
    ProcessSpawned,
    Shape,
    UsageError,
    View,
    kind_name,
)
from fencepost.columns import EventTable
from fencepost.testing import HistoryBuilder
from fencepost_clusters.etcd import system
from fencepost_clusters.etcd.events import (
    KINDS,
    BecameLeader,
    LeaderElected,
    LeaderLost,
    MemberReady,
    MemberStarted,
    StoppedLeading,
)
from fencepost_clusters.etcd.log_parser import MEMBER
from fencepost_clusters.etcd.selectors import select
from fencepost_clusters.etcd.system import CLIENT_PORT, PEER_PORT, Etcd
from fencepost_clusters.etcd.view import EtcdView

ETCD = Etcd()
LAYOUT = ETCD.layout(Shape())


def place(slot: str, image: str = "") -> Place:
    hosts = {one.name: f"127.9.{LAYOUT.slot(slot).index}.{one.index}" for one in LAYOUT.slots}
    return Place(
        run="run-7",
        process=f"{slot}#1",
        slot=LAYOUT.slot(slot),
        layout=LAYOUT,
        address=hosts[slot],
        hosts=hosts,
        advertised="127.9.7.1",
        data_dir=Path("/disk"),
        work_dir=Path("/work"),
        events_path=Path("/events"),
        image=image,
    )


def command_of(slot: str, shape: Shape | None = None) -> tuple[dict[str, str], str]:
    """The flags, and the hosts file, of a member in a container."""
    made = ETCD.command(place(slot, "fencepost/etcd"), shape or Shape())
    assert made.argv[0] == system.PROGRAM_IN_IMAGE
    flags = (one.removeprefix("--").split("=", 1) for one in made.argv[1:])
    return {name: value for name, value in flags}, made.files["hosts"]


def test_every_connection_of_members_and_clients_is_a_link() -> None:
    joined = {(link.source, link.target, link.port) for link in LAYOUT.links}
    assert ("etcd-1", "etcd-3", PEER_PORT) in joined
    assert ("etcd-1-duplicate", "etcd-3", PEER_PORT) in joined
    assert ("etcd-1-duplicate", "etcd-1", PEER_PORT) not in joined
    assert ("clients", "etcd-2-duplicate", CLIENT_PORT) in joined
    assert [slot.name for slot in LAYOUT.of(MEMBER)] == ["etcd-1", "etcd-2", "etcd-3"]


def test_a_member_reaches_its_peers_by_its_own_links() -> None:
    flags, hosts = command_of("etcd-2")
    assert hosts.splitlines() == [
        "127.9.2.1 etcd-1.fencepost",
        "127.9.2.2 etcd-2.fencepost",
        "127.9.2.3 etcd-3.fencepost",
    ]
    assert flags["name"] == "etcd-2"
    assert flags["listen-peer-urls"] == "http://127.9.2.2:2380"


def test_a_program_of_ones_own_sees_the_names_in_a_hosts_file_of_its_own() -> None:
    mine = replace(ETCD, own=Path("/opt/etcd"), version="3.5.21", name="etcd/cluster@/opt/etcd")
    made = mine.command(place("etcd-2"), Shape())
    assert made.argv[: made.argv.index("/opt/etcd")][0] == "unshare"
    assert "127.9.2.1 etcd-1.fencepost" in made.files["hosts"]
    assert "127.0.0.1 localhost" in made.files["hosts"]
    assert "FENCEPOST_HOSTS" not in made.environment


@pytest.mark.parametrize("version", ["3.4.30", "4.0.0", "latest", "3.6", "v3.6.1"])
def test_a_version_that_is_not_known_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=r"is no version of etcd that is known here"):
        ETCD.at(version)


def test_another_version_runs_as_processes_only() -> None:
    other = ETCD.at("3.5.21")
    assert (other.name, other.version) == ("etcd/cluster@3.5.21", "3.5.21")
    with pytest.raises(NotApplicable, match=r"no image of etcd/cluster@3\.5\.21"):
        other.image(LAYOUT.slot("etcd-1"))


def test_a_duplicate_is_the_same_member_at_an_address_of_its_own() -> None:
    flags, hosts = command_of("etcd-2-duplicate")
    assert flags["name"] == "etcd-2"
    assert flags["listen-peer-urls"] == "http://127.9.5.5:2380"
    assert "127.9.5.5 etcd-2.fencepost" in hosts


def test_settings_are_flags_and_those_of_one_member_count_most() -> None:
    shape = Shape(
        settings={"election-timeout": "500", "heartbeat-interval": "50"},
        own={"etcd-2": {"heartbeat-interval": "60"}},
    )
    flags, _ = command_of("etcd-2", shape)
    assert (flags["election-timeout"], flags["heartbeat-interval"]) == ("500", "60")
    assert ETCD.recovery_bound_ms(shape) < ETCD.recovery_bound_ms(Shape())


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(counts={MEMBER: 0}), "1 to 9 members"),
        (Shape(settings={"election-timeut": "1"}), "election-timeout"),
        (Shape(settings={"election-timeout": "abc"}), "whole number from 1 to 50000, not 'abc'"),
        (Shape(settings={"election-timeout": "50001"}), "whole number from 1 to 50000"),
        (Shape(settings={"heartbeat-interval": "0"}), "whole number from 1 to"),
        (Shape(settings={"snapshot-count": "-1"}), "whole number from 1 to"),
        (Shape(settings={"pre-vote": "maybe"}), "true or false, not 'maybe'"),
        (Shape(settings={"election-timeout": "499"}), "at least 5 times the heartbeat-interval"),
        (Shape(own={"etcd-1#2": {"heartbeat-interval": "300"}}), "at least 5 times"),
        (Shape(defects=("store-checks-no-tokens",)), "store-checks-no-token"),
    ],
)
def test_a_bad_shape_is_refused(shape: Shape, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ETCD.layout(shape)


def test_etcd_without_a_quota_is_not_refused() -> None:
    assert ETCD.layout(Shape(settings={"quota-backend-bytes": "-1"}))


def test_every_kind_is_a_row_of_the_reports_table() -> None:
    table = EventTable.of(KINDS)
    assert set(table.columns) >= {kind_name(kind) for kind in KINDS}


# ------------------------------------------------------------------------------------------- view


def started() -> HistoryBuilder:
    """Three members, of which the second leads."""
    history = HistoryBuilder()
    for number in (1, 2, 3):
        slot = LAYOUT.slot(f"etcd-{number}")
        process = f"{slot.name}#1"
        history.add(
            "harness",
            ProcessSpawned(started=process, slot=slot.name, role=MEMBER, node_id=number, pid=1),
        )
        history.add(process, NodeStarted(role=MEMBER, node_id=number))
        history.add(process, MemberStarted(member=f"a{number}", cluster="c", restarted=False))
    history.add("etcd-2#1", BecameLeader(member="a2", term=2))
    for number in (1, 3):
        history.add(f"etcd-{number}#1", LeaderElected(member=f"a{number}", leader="a2", term=2))
    for number in (1, 2, 3):
        history.add(f"etcd-{number}#1", MemberReady(member=f"a{number}"))
    return history


def view(history: HistoryBuilder) -> View:
    made = View((EtcdView,))
    for event in history.events():
        made.apply(event)
    return made


def missing(history: HistoryBuilder) -> Sequence[str]:
    return ETCD.missing(view(history), LAYOUT)


def test_nothing_is_missing_once_all_serve_and_follow() -> None:
    assert missing(HistoryBuilder()) == [
        "no member leads",
        "etcd-1 is dead",
        "etcd-2 is dead",
        "etcd-3 is dead",
    ]
    assert missing(started()) == []


def test_the_leader_of_the_newest_term_is_meant() -> None:
    history = started()
    history.add("etcd-3#1", BecameLeader(member="a3", term=3))
    assert select("@leader", view(history), LAYOUT) == ["etcd-3"]
    assert select("@followers", view(history), LAYOUT) == ["etcd-1", "etcd-2"]
    assert missing(history) == [
        "etcd-1 follows member a2, which does not lead",
        "etcd-2 follows member a2, which does not lead",
    ]


def test_a_leader_that_stepped_down_or_died_leads_no_longer() -> None:
    history = started()
    history.add("etcd-2#1", StoppedLeading(member="a2", term=2, reason="quorum-lost"))
    assert select("@leader", view(history), LAYOUT) == []
    history = started()
    history.add("harness", ProcessExited(ended="etcd-2#1", exit_code=0, signal=9, expected=True))
    assert missing(history)[:2] == ["no member leads", "etcd-2 is dead"]


def test_a_member_that_lost_its_leader_knows_none() -> None:
    history = started()
    history.add("etcd-1#1", LeaderLost(member="a1", leader="a2", term=2))
    history.add("etcd-2#1", StoppedLeading(member="a2", term=2, reason="quorum-lost"))
    assert missing(history) == [
        "no member leads",
        "etcd-1 knows no leader",
        "etcd-2 knows no leader",
    ]


def test_of_a_process_that_ended_nothing_stays_known() -> None:
    history = started()
    history.add("harness", ProcessExited(ended="etcd-2#1", exit_code=0, signal=9, expected=True))
    etcd = view(history).of(EtcdView)
    assert "etcd-2#1" not in etcd.known_leader
    assert etcd.ready == {"etcd-1#1", "etcd-3#1"}


def test_the_view_counts_the_operations_of_clients_that_took_effect() -> None:
    history = HistoryBuilder()
    put(history, A, "a:0", 5)
    get(history, "b:0", 5, 5, "a:0")
    etcd = view(history).of(EtcdView)
    assert (etcd.completed, list(etcd.keys), etcd.read_finally) == ({A: 1, B: 1}, ["r0"], set())
    get(history, "b:1", 5, 5, "a:0", final=True)
    etcd = view(history).of(EtcdView)
    assert (etcd.completed, etcd.read_finally) == ({A: 1, B: 2}, {"r0"})


def test_the_view_knows_the_newest_token_and_which_writes_the_store_refused() -> None:
    history = HistoryBuilder()
    take(history, A, 1, token=7)
    take(history, A, 1, token=5)
    store(history, A, 7, 8)
    store(history, A, 7, outcome="failed", newer_token=7)
    store(history, B, 5, outcome="failed", newer_token=7)
    etcd = view(history).of(EtcdView)
    assert (etcd.taken, etcd.token) == ({A: 2}, {"lock": 7})
    assert (etcd.written, etcd.refused) == ({A: 1}, {B: 1})


def test_a_cluster_with_a_running_duplicate_has_not_recovered() -> None:
    history = started()
    history.add(
        "harness",
        ProcessSpawned(
            started="etcd-1-duplicate#1", slot="etcd-1-duplicate", role=MEMBER, node_id=1, pid=1
        ),
    )
    assert missing(history) == ["etcd-1-duplicate lives"]


def test_other_selectors_are_not_etcds() -> None:
    assert select("@active-controller", view(started()), LAYOUT) is None
