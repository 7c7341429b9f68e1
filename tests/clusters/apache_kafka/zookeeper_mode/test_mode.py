"""`apache/zookeeper` as a system: its layout, and how brokers are configured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost import Layout, Link, NotApplicable, Place, Shape, Spare, UsageError
from fencepost_clusters.apache_kafka.zookeeper_mode.cluster import ZooKeeperMode

THREE = {"zookeeper": 3, "broker": 2}


def place(system: ZooKeeperMode, slot: str, shape: Shape) -> Place:
    layout = system.layout(shape)
    hosts = {other.name: f"127.0.1.{other.index}" for other in layout.slots}
    return Place(
        run="run",
        process=f"{slot}#1",
        slot=layout.slot(slot),
        layout=layout,
        address="127.0.0.1",
        hosts=hosts,
        advertised="127.0.0.9",
        data_dir=Path("/slot/data"),
        work_dir=Path("/slot/work"),
        events_path=Path("/dev/fd/3"),
        image="an image",
    )


def files(system: ZooKeeperMode, slot: str, shape: Shape) -> Mapping[str, str]:
    return system.command(place(system, slot, shape), shape).files


def layout(version: str = "3.9.2") -> Layout:
    return ZooKeeperMode().at(version).layout(Shape(THREE))


def test_zookeeper_and_the_controller_are_cut_off_apart() -> None:
    links = layout().links
    assert Link("broker-1", "zookeeper-3", 2181) in links
    assert Link("broker-1", "broker-2", 9093) in links
    assert Link("broker-1", "broker-2", 9094) in links
    assert Link("clients", "broker-2", 9092) in links
    assert Link("broker-2-duplicate", "zookeeper-1", 2181) in links
    assert not [link for link in links if link.source.startswith("zoo") and link.port == 9092]


def test_before_kip_291_brokers_have_one_link_for_all() -> None:
    links = layout("2.1.1").links
    assert Link("broker-1", "broker-2", 9094) in links
    assert not [link for link in links if link.port == 9093]


def test_a_broker_dials_by_names_and_is_found_by_its_own() -> None:
    shape = Shape(THREE, {"registration.lease.timeout.ms": "4000"}, own={"broker-1": {"rack": "a"}})
    lines = files(ZooKeeperMode(), "broker-1", shape)["server.properties"].splitlines()
    assert "zookeeper.connect=zookeeper-1:2181,zookeeper-2:2181,zookeeper-3:2181" in lines
    assert "zookeeper.session.timeout.ms=4000" in lines
    assert "control.plane.listener.name=CONTROLLER" in lines
    assert "rack=a" in lines
    advertised = (
        "advertised.listeners=CLIENT://127.0.0.9:9092,REPLICATION://broker-1:9094,"
        "CONTROLLER://broker-1:9093"
    )
    assert advertised in lines


def test_an_older_broker_has_no_listener_for_the_controller() -> None:
    text = files(ZooKeeperMode().at("2.1.1"), "broker-1", Shape(THREE))["server.properties"]
    assert "CONTROLLER" not in text


def test_a_broker_that_was_killed_waits_until_its_session_is_over() -> None:
    shape = Shape(THREE, {"zookeeper.session.timeout.ms": "5000"})
    system = ZooKeeperMode()
    started = system.command(place(system, "broker-1", shape), shape)
    assert started.environment["SESSION_S"] == "6.0"


def test_the_observer_watches_below_the_chroot_of_the_brokers() -> None:
    system, connect = ZooKeeperMode(), "zookeeper-1:2181/kafka"
    shape = Shape(settings={"zookeeper.connect": connect})
    lines = files(system, "broker-1", shape)["server.properties"].splitlines()
    assert f"zookeeper.connect={connect}" in lines
    (observer,) = system.observers(shape)
    assert observer.options == {"chroot": "/kafka"}
    for bare in ({}, {"zookeeper.connect": "zookeeper-1:2181/"}):
        (observer,) = system.observers(Shape(settings=bare))
        assert observer.options == {"chroot": ""}


def test_a_server_of_zookeeper_is_started_in_its_slot() -> None:
    assert "server.202=" in files(ZooKeeperMode(), "zookeeper-2", Shape(THREE))["zoo.cfg"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (Shape({"zookeeper": 2}), "an ensemble of 3 or 5, not 2"),
        (Shape({"broker": 0}), "1 to 400 brokers"),
        (Shape({"controller": 3}), "controller"),
        (Shape(settings={"zookeeper.session.timeout.ms": "90000"}), "grant 1000 to 60000 ms"),
        (Shape(settings={"zookeeper.session.timeout.ms": "abc"}), "whole number .*, not 'abc'"),
        (Shape(settings={"registration.lease.timeout.ms": "9e3"}), "whole number .*, not '9e3'"),
        (Shape(settings={"request.timeout.ms": "0"}), "whole number from 1 .*, not '0'"),
        (Shape(settings={"log.dirs": "/tmp"}), "layout of a cluster sets 'log.dirs'"),
        (Shape(defects=("any",)), "no defects"),
        (Shape(spares=(Spare("controller", 101),)), "role of a spare node"),
    ],
)
def test_a_bad_shape_is_refused(shape: Shape, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ZooKeeperMode().layout(shape)


def test_settings_that_kafka_lacks_in_this_mode_are_not_applicable() -> None:
    with pytest.raises(NotApplicable, match=r"registration\.heartbeat"):
        ZooKeeperMode().layout(Shape(settings={"registration.heartbeat.interval.ms": "1"}))


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"knows Kafka 2\.1\.1 and 3\.9\.2, not 4\.0\.0"):
        ZooKeeperMode().at("4.0.0")
