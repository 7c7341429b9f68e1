"""The configuration of Kafka's nodes: names for links, a test's settings under Kafka's names."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from kafka_samples import SAMPLES

from fencepost import NotApplicable, Place, Shape, Spare, UsageError, View
from fencepost_clusters.apache_kafka import distribution
from fencepost_clusters.apache_kafka.cluster import KRaft
from fencepost_clusters.apache_kafka.distribution import Distribution
from fencepost_clusters.apache_kafka.metrics import exporter_config
from fencepost_clusters.apache_kafka.settings import FIXED, SUITE_SETTINGS, UNKNOWN, given
from fencepost_kafka import KafkaView, Role, kafka_shape


def placed(name: str, shape: Shape) -> Place:
    layout = KRaft().layout(shape)
    slot = layout.slot(name)
    hosts = {other.name: f"127.9.{slot.index}.{other.index}" for other in layout.slots}
    return Place(
        run="run", process=f"{name}#1", slot=slot, layout=layout, address=hosts[name], hosts=hosts,
        advertised=f"127.9.99.{slot.index}", data_dir=Path("/data"), work_dir=Path("/work"),
        events_path=Path("/events"),
    )  # fmt: skip


def test_a_broker_binds_its_own_address_and_advertises_links() -> None:
    shape = Shape()
    read = KRaft().properties(placed("broker-2", shape), shape)
    assert read["listeners"] == "CLIENT://127.9.5.5:9092,REPLICATION://127.9.5.5:9094"
    assert read["advertised.listeners"] == "CLIENT://127.9.99.5:9092,REPLICATION://broker-2:9094"
    assert read["controller.quorum.bootstrap.servers"] == (
        "controller-1:9093,controller-2:9093,controller-3:9093"
    )
    assert "controller.quorum.voters" not in read
    assert (read["node.id"], read["process.roles"]) == ("2", "broker")
    duplicate = KRaft().properties(placed("broker-2-duplicate", shape), shape)
    assert duplicate["node.id"] == "2"
    assert "REPLICATION://broker-2-duplicate:9094" in duplicate["advertised.listeners"]


def test_brokers_start_once_a_controller_was_active() -> None:
    layout = KRaft().layout(Shape())
    view = View((KafkaView,))
    assert KRaft().may_start(layout.slot("controller-2"), view, layout)
    assert not KRaft().may_start(layout.slot("broker-1"), view, layout)
    view.of(KafkaView).controller_process = "controller-3#1"
    assert KRaft().may_start(layout.slot("broker-1"), view, layout)


def test_a_broker_tries_to_register_for_longer_than_a_run_lasts() -> None:
    # By Kafka's default it ends after a minute, and with it the run.
    read = KRaft().properties(placed("broker-2", Shape()), Shape())
    assert int(read["initial.broker.registration.timeout.ms"]) >= 3_600_000


def test_before_voters_could_change_every_node_has_a_list_of_them() -> None:
    shape = Shape()
    old = KRaft().at("3.8.1")
    read = old.properties(placed("broker-2", shape), shape)
    assert read["controller.quorum.voters"] == (
        "101@controller-1:9093,102@controller-2:9093,103@controller-3:9093"
    )
    assert "controller.quorum.bootstrap.servers" not in read
    own = kafka_shape(own={"broker-1": {"controller.connect": "controller-2:9093"}})
    assert KRaft().layout(own)
    with pytest.raises(NotApplicable, match="a fixed list of voters"):
        old.layout(own)


def test_the_first_controllers_are_formatted_with_the_voters_and_no_other_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distribution, "first_metadata", lambda *_: b"")
    shape = kafka_shape(spares=(Spare(Role.CONTROLLER, 104),))
    files = {
        name: KRaft().command(replace(placed(name, shape), image="an image"), shape).files
        for name in ("controller-1", "controller-2", "controller-4", "broker-1")
    }
    assert files["controller-1"]["snapshot.base64"] == files["controller-2"]["snapshot.base64"]
    assert all("snapshot.base64" not in files[name] for name in ("controller-4", "broker-1"))
    (directory,) = re.findall(r"directory.id=(.*)", files["controller-1"]["meta.properties"])
    snapshot = base64.b64decode(files["controller-1"]["snapshot.base64"])
    assert base64.urlsafe_b64decode(f"{directory}==") in snapshot


def test_from_4_4_on_the_first_controllers_are_formatted_with_the_metadata_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formatted = (SAMPLES / "voters-4.4.0.checkpoint").read_bytes()
    monkeypatch.setattr(distribution, "first_metadata", lambda *_: formatted)
    place = replace(placed("controller-1", Shape()), image="an image")
    for version, begins in (("4.3.1", False), ("4.4.0", True)):
        files = KRaft().at(version).command(place, Shape()).files
        snapshot = base64.b64decode(files["snapshot.base64"])
        assert (b"metadata.version" in snapshot) is begins


def test_addresses_that_kafka_cannot_parse_are_left_out() -> None:
    assert given({"controller.connect": "?,controller-4:9093,controller-2:9093"}) == {
        "controller.quorum.bootstrap.servers": "controller-4:9093,controller-2:9093"
    }


def test_a_controller_is_reached_by_its_name() -> None:
    shape = Shape()
    read = KRaft().properties(placed("controller-1", shape), shape)
    assert read["listeners"] == "CONTROLLER://127.9.1.1:9093"
    assert read["advertised.listeners"] == "CONTROLLER://controller-1:9093"
    assert "inter.broker.listener.name" not in read


def test_every_node_shows_its_metrics_on_its_own_address_and_one_client_reads_them() -> None:
    system, shape = KRaft(), Shape()
    layout = system.layout(shape)
    command = system.command(replace(placed("broker-2", shape), image="an image"), shape)
    assert command.environment["AGENT"] == (
        f"/opt/kafka/metrics-agent.jar=127.9.5.5:{layout.metrics_port}:metrics.json"
    )
    assert command.files["metrics.json"] == exporter_config()
    assert '"-javaagent:$AGENT"' in command.files["start.sh"]
    *observers, reader = system.observers(Shape())
    assert [one.name for one in observers] == ["observer", "observer-2"]
    assert reader.name == "metrics"
    assert reader.options == {"port": layout.metrics_port}
    assert not any(link.port == layout.metrics_port for link in layout.links)


@pytest.mark.tool
def test_a_node_starts_where_paths_have_odd_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "a java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$CLASSPATH" "$@"\n')
    java.chmod(0o755)
    home, run = tmp_path / "a home", tmp_path / "a run, of jörg\\s"
    data, work = run / "data" / "broker-2", run / "work" / "broker-2#1"
    for folder in (home / "lib", data, work):
        folder.mkdir(parents=True)
    for name in ("lib/a.jar", "lib/b.jar", "bootstrap.checkpoint"):
        (home / name).touch()
    kafka = Distribution("4.3.1", home, str(java), home / "classes.jsa", home / "agent.jar")
    monkeypatch.setattr(distribution, "installed", lambda *_: kafka)
    shape = Shape()
    command = KRaft().command(
        replace(placed("broker-2", shape), data_dir=data, work_dir=work), shape
    )
    for name, text in command.files.items():
        (work / name).write_text(text)
    class_path, *words = subprocess.run(
        command.argv, cwd=work, env={"PATH": os.defpath, **command.environment},
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert class_path == f"{home}/lib/a.jar:{home}/lib/b.jar"
    assert f"-XX:SharedArchiveFile={home}/classes.jsa" in words
    assert f"-javaagent:{home}/agent.jar=127.9.5.5:9095:metrics.json" in words
    assert [word for word in words if word[0] != "-"] == ["kafka.Kafka", "server.properties"]
    assert (data / "meta.properties").exists()
    assert "log.dirs=../../data/broker-2\n" in command.files["server.properties"]
    assert "-Djava.io.tmpdir=tmp" in words
    assert (work / "tmp").is_dir()


def test_settings_have_the_references_names() -> None:
    asked = {
        "registration.lease.timeout.ms": "9000",
        "auto.leader.rebalance.enable": "0",
        "log.segment.bytes": "2097152",
        "leader.imbalance.check.interval.ms": "2000",
        "num.io.threads": "2",
    }
    assert given(asked) == {
        "broker.session.timeout.ms": "9000",
        "auto.leader.rebalance.enable": "false",
        "log.segment.bytes": "2097152",
        "leader.imbalance.check.interval.seconds": "2",
        "num.io.threads": "2",
    }
    shape = Shape(settings=asked, own={"broker-1": {"num.io.threads": "3"}})
    assert KRaft().timing(shape).lease_ms == 9_000
    assert KRaft().properties(placed("broker-1", shape), shape)["num.io.threads"] == "3"


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_a_setting_that_kafka_does_not_have_makes_a_test_not_applicable(name: str) -> None:
    with pytest.raises(NotApplicable, match=f"has no setting '{name}'"):
        KRaft().layout(Shape(settings={name: "1"}))
    with pytest.raises(NotApplicable):
        KRaft().layout(Shape(own={"broker-1": {name: "1"}}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("broker.session.timeout.ms", value)
            for value in ("abc", "9e3", "0", "-5", "", "1" * 30)
        ),
        ("registration.lease.timeout.ms", "abc"),
        ("broker.heartbeat.interval.ms", "x"),
        ("replica.lag.time.max.ms", "1.5"),
        ("min.insync.replicas", "0"),
        ("log.segment.bytes", "many"),
        ("num.io.threads", "\u0663"),
        ("leader.imbalance.check.interval.ms", "0"),
        ("auto.leader.rebalance.enable", "maybe"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name.partition('.')[2]} must be .*, not '{value}'"):
        KRaft().layout(Shape(settings={name: value}))
    with pytest.raises(UsageError):
        KRaft().layout(Shape(own={"broker-1": {name: value}}))


def test_a_lease_that_ends_between_two_heartbeats_is_refused() -> None:
    with pytest.raises(UsageError, match=r"heartbeat.interval.ms is 300: it must be below"):
        KRaft().layout(Shape(settings={"registration.lease.timeout.ms": "300"}))


@pytest.mark.parametrize("name", sorted(FIXED))
def test_a_cluster_cannot_set_what_its_layout_sets(name: str) -> None:
    with pytest.raises(UsageError, match=f"the layout of a cluster sets '{name}'"):
        KRaft().layout(Shape(settings={name: "localhost:1"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("log.segment.bytes", "1"), ("leader.imbalance.check.interval.ms", "1500")],
)
def test_a_value_that_kafka_cannot_have_is_not_replaced_by_another(name: str, value: str) -> None:
    with pytest.raises(NotApplicable, match=name):
        KRaft().layout(Shape(settings={name: value}))


def test_a_run_records_the_settings_that_its_nodes_have() -> None:
    kept = {
        name: str(int(value) + 1000) for name, value in SUITE_SETTINGS.items() if "000" in value
    }
    shape = Shape(settings={**kept, "log.segment.bytes": "1048576"})
    read = KRaft().properties(placed("broker-1", shape), shape)
    assert {name: read[name] for name in shape.settings} == shape.settings


def test_a_shape_that_kafka_cannot_have_is_refused() -> None:
    with pytest.raises(NotApplicable, match="one id for both"):
        KRaft().layout(kafka_shape(combined=1))
    with pytest.raises(UsageError, match="no defects"):
        KRaft().layout(Shape(defects=("x",)))


def test_slots_and_links_are_those_of_the_reference() -> None:
    layout = KRaft().layout(kafka_shape(spares=(Spare(Role.BROKER, 4),)))
    names = [slot.name for slot in layout.slots]
    assert names == [
        *("controller-1", "controller-2", "controller-3", "broker-1", "broker-2", "broker-3"),
        *("broker-1-duplicate", "broker-2-duplicate", "broker-3-duplicate", "broker-4", "clients"),
    ]
    clients = {(link.target, link.port) for link in layout.links if link.source == "clients"}
    assert ("controller-1", 9093) in clients
    assert ("broker-1-duplicate", 9092) in clients
