"""The settings of a node over ZooKeeper."""

from __future__ import annotations

import pytest

from fencepost import Shape, UsageError
from fencepost_clusters.reference.core.cluster import configs
from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE, Image
from fencepost_clusters.reference.legacy.core import settings
from fencepost_clusters.reference.legacy.system import ReferenceLegacy
from fencepost_clusters.reference.wire import administration as a

GOOD = {"broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"}
LEAST = {
    "broker.heartbeat.timeout.ms": "3001",
    "controller.heartbeat.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "2999",
}


def read(**changed: str) -> settings.Settings:
    return settings.read(GOOD | {name.replace("_", "."): value for name, value in changed.items()})


def test_timeouts_may_be_as_near_to_each_other_as_they_can() -> None:
    """HB-11: the controller declares a broker inactive before the broker fences itself."""
    assert settings.read(GOOD | LEAST).ms("broker.heartbeat.timeout.ms") == 3001


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"broker.heartbeat.timeout.ms": "3000"}, "broker.heartbeat.timeout.ms is 3000"),
        ({"broker.heartbeat.interval.ms": "3000"}, "broker.heartbeat.interval.ms must be below"),
        ({"inter.broker.protocol": "0"}, "inter.broker.protocol must be 1 to 3"),
        ({"inter.broker.protocol": "4"}, "inter.broker.protocol must be 1 to 3"),
        ({"replication.listener.advertised": "2"}, "must be true or false, not '2'"),
        ({"broker.heartbeat.interval.ms": "true"}, "must be a non-negative whole number"),
        ({"process.roles": "broker"}, "process.roles is set"),
        ({"zookeeper.connect": ""}, "names no server"),
        ({"zookeeper.connect": ":2181"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1:x"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1:0"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1:65536"}, "needs host:port"),
    ],
)
def test_bad_settings_are_refused(changed: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        settings.read(GOOD | LEAST | changed)


def test_a_lease_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="must be a non-negative whole number, not 'abc'"):
        ReferenceLegacy().layout(Shape(settings={"registration.lease.timeout.ms": "abc"}))


@pytest.mark.parametrize("protocol", [1, 3])
def test_every_protocol_is_accepted(protocol: int) -> None:
    assert read(inter_broker_protocol=str(protocol)).ms("inter.broker.protocol") == protocol


@pytest.mark.parametrize(
    ("written", "number", "shown"),
    [("true", 1, "true"), ("1", 1, "true"), ("false", 0, "false"), ("0", 0, "false")],
)
@pytest.mark.parametrize(
    "name", ["replication.listener.advertised", "auto.leader.rebalance.enable"]
)
def test_a_switch_is_true_or_false(name: str, written: str, number: int, shown: str) -> None:
    known = settings.read(GOOD | {name: written})
    assert known.ms(name) == number
    asked = a.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=(name,)
    )
    request = a.DescribeConfigsRequest(resources=(asked,))
    (answer,) = configs.describe(Image(), known, 1, request).results
    assert [(one.name, one.value) for one in answer.configs] == [(name, shown)]


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("a:1", [("a", 1)], ""),
        ("a:1,b:65535/", [("a", 1), ("b", 65535)], ""),
        ("a:1, b:2/kafka/eu", [("a", 1), ("b", 2)], "/kafka/eu"),
    ],
)
def test_the_servers_may_be_followed_by_a_chroot(
    text: str, servers: list[tuple[str, int]], chroot: str
) -> None:
    found = read(zookeeper_connect=text)
    assert (list(found.zookeeper), found.chroot) == (servers, chroot)
