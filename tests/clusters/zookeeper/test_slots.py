"""ZooKeeper's servers as slots of another system's cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import Layout, Link, Place, Slot, UsageError
from fencepost_clusters.zookeeper import slots
from fencepost_clusters.zookeeper.distribution import VERSION

THREE = slots.servers(3)
BROKER = Slot("broker-1", "broker", 1, 4)
LAYOUT = Layout((*THREE, BROKER), slots.links(THREE, [BROKER]), unasked=slots.UNASKED)


def place(layout: Layout, slot: Slot, image: str = "") -> Place:
    hosts = {other.name: f"127.0.1.{other.index}" for other in layout.slots}
    return Place(
        run="run",
        process=f"{slot.name}#1",
        slot=slot,
        layout=layout,
        address="127.0.0.1",
        hosts=hosts,
        advertised="127.0.0.9",
        data_dir=Path("/slot/data"),
        work_dir=Path("/slot/work"),
        events_path=Path("/dev/fd/3"),
        image=image,
    )


@pytest.mark.parametrize("count", [0, 2, 4, 7])
def test_an_ensemble_of_another_size_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"an ensemble of 3 or 5, not {count}"):
        slots.servers(count)


def test_every_connection_has_a_link_of_its_own() -> None:
    assert Link("broker-1", "zookeeper-2", 2181) in LAYOUT.links
    assert Link("zookeeper-1", "zookeeper-2", 3888) in LAYOUT.links
    assert Link("zookeeper-2", "zookeeper-1", 2888) in LAYOUT.links
    assert len(LAYOUT.links) == 3 + 2 * 6
    assert len({*LAYOUT.links}) == len(LAYOUT.links)


def test_servers_alone_have_no_links_to_each_other() -> None:
    assert slots.links(slots.servers(1), [BROKER]) == (Link("broker-1", "zookeeper-1", 2181),)


def test_a_member_reaches_the_others_by_its_own_ends_of_the_links() -> None:
    started = slots.start(place(LAYOUT, THREE[1], image=slots.IMAGE), {"forceSync": "no"})
    lines = started.files["zoo.cfg"].splitlines()
    assert "server.203=zookeeper-3:2888:3888:participant;zookeeper-3:2181" in lines
    assert "forceSync=no" in lines
    assert "127.0.1.3 zookeeper-3" in started.files["hosts"].splitlines()
    assert started.environment["NUMBER"] == "202"
    assert started.environment["ZOOKEEPER_HOME"] == "/opt/zookeeper"
    assert slots.IMAGE.endswith(VERSION)


def test_the_simulator_refuses_an_ensemble_of_several() -> None:
    with pytest.raises(UsageError, match="leave the count of zookeeper at 1"):
        slots.simulated(place(LAYOUT, THREE[0]), slots.simulated_disk(), None)  # type: ignore[arg-type]
