"""The configuration of a broker in ZooKeeper mode, and Kafka's names for the reference's
settings."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import NotApplicable, Shape
from fencepost_clusters.apache_kafka.settings import SUITE_SETTINGS as IN_KRAFT_MODE
from fencepost_clusters.apache_kafka.settings import check_fixed, number
from fencepost_clusters.apache_kafka.settings import given as given_in_kraft_mode
from fencepost_clusters.zookeeper.server import Timing as ServerTiming

_OF_KRAFT = ("broker.heartbeat.", "broker.session.", "controller.quorum.")
SUITE_SETTINGS: Mapping[str, str] = {
    **{name: value for name, value in IN_KRAFT_MODE.items() if not name.startswith(_OF_KRAFT)},
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "20000",
    # A broker that stops waits so long for the controller's answer, and then asks again.
    "request.timeout.ms": "3000",
    "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "500",
}
"""The settings that suites run with unless a test sets others."""
FIXED = frozenset(
    {
        "advertised.listeners",
        "control.plane.listener.name",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
    }
)
"""As in KRaft mode. Kafka takes a `node.id` for the `broker.id`, which the layout sets."""
_SESSION = "zookeeper.session.timeout.ms"
_NUMBERS = frozenset({*SUITE_SETTINGS} - {*IN_KRAFT_MODE})
"""The whole numbers that only this mode has."""


def check(shape: Shape) -> None:
    """Raises UsageError for a setting that the layout of a cluster sets itself, and as `given`."""
    check_fixed(shape, FIXED)
    for own in (shape.settings, *shape.own.values()):
        given(own)


def given(settings: Mapping[str, str]) -> dict[str, str]:
    """A test's settings under Kafka's names.

    Raises NotApplicable for one that Kafka does not have in this mode, and UsageError for a value
    that makes no sense, or a session timeout that the servers do not grant.
    """
    named = {
        _SESSION if name == "registration.lease.timeout.ms" else name: value
        for name, value in settings.items()
    }
    for name in named:
        if name.startswith(("registration.", "controller.quorum.")):
            raise NotApplicable(f"apache/zookeeper has no setting {name!r}")
    for name in _NUMBERS & named.keys():
        number(name, named[name])
    if _SESSION in named:
        ServerTiming().check_session(_SESSION, int(named[_SESSION]))
    return given_in_kraft_mode(named)


def chroot(settings: Mapping[str, str]) -> str:
    """The path in `zookeeper.connect` below which brokers keep their znodes; empty if there is
    none. Brokers create it if it does not exist."""
    _, slash, path = settings.get("zookeeper.connect", "").partition("/")
    return (slash + path).rstrip("/")
