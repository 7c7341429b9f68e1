"""What the observer of znodes missed is found in ZooKeeper's transaction log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from fencepost import Cause, Event, EvidenceMissed, EvidenceSupplied, Supplied, kind_name
from fencepost_clusters.apache_kafka.zookeeper_mode.replaced_states import supplied
from fencepost_clusters.apache_kafka.zookeeper_mode.znodes import state_path, topic_path
from fencepost_clusters.zookeeper.transactions import Change
from fencepost_kafka import PartitionCommitted

MS = 1_000_000
OBSERVER = "observer-1"


def wall(ms: int) -> int:
    """A time of the wall clock, which is a day ahead of the run's."""
    return ms * MS + 86_400_000 * MS


def from_wall_ns(wall_ns: int) -> int:
    return wall_ns - 86_400_000 * MS


def read(zxid: int, leader: int, isr: tuple[int, ...], skipped: int = 0) -> PartitionCommitted:
    """A state of orders-0 as the observer read it; each has a leader epoch of its own."""
    return PartitionCommitted(
        offset=zxid,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=zxid,
        isr=isr,
        replicas=(1, 2),
        skipped=skipped,
    )


MISSED = EvidenceMissed(what="states were replaced", kinds=(kind_name(PartitionCommitted),))


def events(*bodies: tuple[int, EvidenceMissed | PartitionCommitted]) -> Sequence[Event]:
    """The observer's events, each at its time in milliseconds."""
    return [
        Event("run", OBSERVER, number, ms * MS, body) for number, (ms, body) in enumerate(bodies)
    ]


def assigned(zxid: int, *replicas: int) -> Change:
    data = json.dumps({"partitions": {"0": replicas}, "version": 3}).encode()
    return Change(zxid, wall(0), topic_path("orders"), 0, data)


def stored(zxid: int, ms: int, version: int, leader: int, isr: tuple[int, ...]) -> Change:
    data = json.dumps({"leader": leader, "leader_epoch": zxid, "isr": isr, "version": 1}).encode()
    return Change(zxid, wall(ms), state_path("orders", 0), version, data)


GAP = events(
    (10, read(5, 1, (1, 2))),
    (30, MISSED),
    (31, read(9, 2, (1, 2), skipped=2)),
)
LOG = (
    assigned(4, 1, 2),
    stored(5, 8, 0, 1, (1, 2)),
    stored(7, 20, 1, 1, (1,)),
    stored(8, 25, 2, 2, (2,)),
    stored(9, 29, 3, 2, (1, 2)),
)


def found(log: Sequence[Change], history: Sequence[Event] = GAP) -> Sequence[Supplied]:
    return supplied(history, log, "", from_wall_ns)


def test_the_states_of_a_gap_are_supplied_at_their_times_and_the_next_one_follows_them() -> None:
    first, second, again, news = found(LOG)
    assert first == Supplied(21 * MS, read(7, 1, (1,)))
    assert second == Supplied(26 * MS, read(8, 2, (2,)))
    assert again == Supplied(30 * MS - 1, read(9, 2, (1, 2)))
    assert isinstance(news.body, EvidenceSupplied)
    assert (news.at_ns, news.cause) == (30 * MS, Cause(OBSERVER, 1))


def test_states_before_the_first_one_that_was_read_are_supplied() -> None:
    history = events((30, MISSED), (31, read(9, 2, (1, 2), skipped=3)))
    bodies = [one.body for one in found(LOG, history)]
    assert bodies[:-1] == [
        read(5, 1, (1, 2)), read(7, 1, (1,)), read(8, 2, (2,)), read(9, 2, (1, 2))
    ]  # fmt: skip


def test_a_state_has_the_replicas_of_its_own_time() -> None:
    moved = assigned(8, 2, 3)
    _, second, *_ = found((*LOG, moved))
    assert second.body == replace(read(8, 2, (2,)), replicas=(2, 3))


def test_states_are_placed_between_those_that_were_read() -> None:
    """A clock that was set, or a log with times of another machine, changes no order."""
    late = [one._replace(at_ns=wall(90)) for one in LOG]
    early = [one._replace(at_ns=wall(-90)) for one in LOG]
    assert {one.at_ns for one in found(late)[:-1]} == {30 * MS - 1}
    assert [one.at_ns for one in found(early)[:2]] == [10 * MS, 10 * MS]


@pytest.mark.parametrize(
    "log",
    [
        LOG[:2] + LOG[3:],
        LOG[:-1],
        (*LOG, stored(10, 29, 3, 2, (1, 2))),
        LOG[1:],
        (*LOG[:2], LOG[2]._replace(data=b"{"), *LOG[3:]),
        [one._replace(path=f"/kafka{one.path}") for one in LOG],
        (),
    ],
    ids=["hole", "end", "replaced", "unassigned", "rubbish", "chroot", "no-log"],
)
def test_a_log_that_does_not_fill_a_gap_exactly_leaves_it_open(log: Sequence[Change]) -> None:
    assert found(log) == []


@pytest.mark.parametrize(
    "never_committed",
    [
        (stored(6, 19, 1, 1, (1,)),),
        (stored(6, 19, 1, 2, (1, 2)),),
        (stored(6, 18, 1, 1, (1,)), stored(6, 19, 2, 2, (2,)), stored(6, 19, 3, 2, (2,))),
    ],
    ids=["same", "other", "several"],
)
def test_what_a_later_leader_wrote_again_was_never_committed(
    never_committed: Sequence[Change],
) -> None:
    assert found((*LOG, *never_committed)) == found(LOG)


def test_a_znode_that_is_created_again_replaces_no_state_before_it() -> None:
    again = (stored(12, 40, 0, 1, (1, 2)), stored(13, 41, 1, 1, (1,)), stored(14, 42, 2, 1, (1,)))
    assert found((*LOG, *again)) == found(LOG)


def test_the_logs_of_several_servers_are_one() -> None:
    assert found((*LOG[3:], *LOG[:4])) == found(LOG)


def test_znodes_below_a_chroot_are_found() -> None:
    below = [one._replace(path=f"/kafka{one.path}") for one in LOG]
    assert supplied(GAP, below, "/kafka", from_wall_ns) == found(LOG)


def test_what_another_partition_lacks_stays_open() -> None:
    other = replace(read(9, 2, (1, 2), skipped=1), topic="bills")
    history = events((9, MISSED), (10, other), *((one.at_ns // MS, one.body) for one in GAP))  # type: ignore[arg-type]
    news = [one for one in found(LOG, history) if isinstance(one.body, EvidenceSupplied)]
    assert [cast(Cause, one.cause).seq for one in news] == [3]
