"""The settings that a topic may have, with the values that this cluster can keep to.

Clients set the ordinary ones at creation, and read them. `min.insync.replicas` and
`max.message.bytes` are applied. A policy that would change or drop messages is refused. Nothing is
ever deleted by time or size, and segments are of one size: `retention.*` and `segment.*` are stored
and shown, and have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fencepost_clusters.reference.core.node.settings import Settings


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """`wants` is the values that `allows` accepts, in words. The default is a broker's setting,
    `of_brokers`, or else `default`."""

    allows: Callable[[str], bool]
    wants: str
    default: str = ""
    of_brokers: str = ""


def _whole(value: str) -> bool:
    return value.isascii() and value.isdecimal()


def _number(of_brokers: str = "", default: str = "") -> TopicSetting:
    return TopicSetting(_whole, "a whole number", default, of_brokers)


def _limit() -> TopicSetting:
    """A limit; -1 for none."""
    return TopicSetting(lambda v: v == "-1" or _whole(v), "a whole number or -1", "-1")


def _only(value: str) -> TopicSetting:
    return TopicSetting(lambda given: given == value, f"{value} in this cluster", value)


TOPIC_SETTINGS: Mapping[str, TopicSetting] = {
    "cleanup.policy": _only("delete"),
    "compression.type": _only("producer"),
    "max.message.bytes": _number(of_brokers="message.max.bytes"),
    "message.timestamp.type": _only("CreateTime"),
    "min.insync.replicas": _number(of_brokers="min.insync.replicas"),
    "retention.bytes": _limit(),
    "retention.ms": _limit(),
    "segment.bytes": _number(of_brokers="log.segment.bytes"),
    "segment.ms": _number(default="604800000"),
    "unclean.leader.election.enable": _only("false"),
}
"""Any other is refused with INVALID_CONFIG."""
OF_ALL_BROKERS = ("min.insync.replicas",)
"""The settings that all brokers together may have, too."""


def objection(name: str, value: str | None) -> str | None:
    """Why a topic cannot have that setting; None if it can."""
    known = TOPIC_SETTINGS.get(name)
    if known is None:
        return f"{name} cannot be set for a topic here"
    if value is None or not known.allows(value):
        return f"{name} is {known.wants}, not {value!r}"
    return None


def default(name: str, settings: Settings) -> str:
    """The value of a setting that was not changed."""
    known = TOPIC_SETTINGS[name]
    return str(settings.ms(known.of_brokers)) if known.of_brokers else known.default
