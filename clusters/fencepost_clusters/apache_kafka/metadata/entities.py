"""The entities that Kafka's metadata records describe, by replaying them: pure.

A snapshot has one record for each entity; the log has a record for each change. So replaying either
up to one offset must lead to the same entities. Kinds that no cluster of ours writes (quotas and
tokens) are left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, final

from fencepost_clusters.apache_kafka.metadata.schema import Record

Key = tuple[Any, ...]
_UNCHANGED = -2
"""PartitionChangeRecord's leader if it does not change."""
_TOPIC_CONFIG = 2
_LISTS = (
    *("Isr", "Replicas", "AddingReplicas", "RemovingReplicas"),
    *("EligibleLeaderReplicas", "LastKnownElr"),
)


@final
class Entities:
    """The entities that result from the records so far; `records` counts those of known kinds.

    `dropped` are the settings, with their values, that were removed with a topic.
    """

    def __init__(self) -> None:
        self._entities: dict[Key, Any] = {}
        self.records = 0
        self.dropped: set[tuple[Key, Any]] = set()

    def __len__(self) -> int:
        return len(self._entities)

    def replay(self, record: Record) -> None:
        """Applies one record."""
        apply = _KINDS.get(record.kind)
        if apply is not None:
            self.records += 1
            before = dict(self._entities) if apply is _topic_removed else {}
            apply(self._entities, record.values)
            gone = before.keys() - self._entities.keys()
            self.dropped |= {(key, before[key]) for key in gone if key[0] == "config"}

    def digest(self, *, but: Collection[Key] = ()) -> str:
        """A checksum of all entities but these, in whichever order they came."""
        kept = ((key, value) for key, value in self._entities.items() if key not in but)
        text = json.dumps(sorted((repr(key), value) for key, value in kept))
        return f"{zlib.crc32(text.encode()):08x}"

    def orphans(self, dropped: Collection[tuple[Key, Any]] = ()) -> Sequence[Key]:
        """The settings of topics that do not exist, and those that a deletion has dropped."""
        topics = {value for key, value in self._entities.items() if key[0] == "topic"}
        return [
            key
            for key, value in self._entities.items()
            if key[:2] == ("config", _TOPIC_CONFIG)
            and (key[2] not in topics or (key, value) in dropped)
        ]


def _topic(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now["topic", values["TopicId"]] = values["Name"]


def _topic_removed(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    name = now.pop(("topic", values["TopicId"]), None)
    gone = [
        key
        for key in now
        if key[:2] == ("partition", values["TopicId"]) or key[:3] == ("config", _TOPIC_CONFIG, name)
    ]
    for key in gone:
        del now[key]


def _partition(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    one = {name: list(values.get(name) or ()) for name in _LISTS}
    one |= {name: values[name] for name in ("Leader", "LeaderEpoch")}
    now["partition", values["TopicId"], values["PartitionId"]] = one


def _partition_changed(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    key = "partition", values["TopicId"], values["PartitionId"]
    one = dict(now[key])
    for name in _LISTS:
        changed = values.get(name)
        if changed is not None:
            one[name] = list(changed)
    if values["Leader"] != _UNCHANGED:
        one["Leader"] = values["Leader"]
        one["LeaderEpoch"] += 1
    now[key] = one


def _eligible_cleared(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    topic = values["TopicName"]
    for key, one in list(now.items()):
        if key[0] == "partition" and topic in ("", now.get(("topic", key[1]))):
            now[key] = {**one, "EligibleLeaderReplicas": [], "LastKnownElr": []}


def _broker(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now["broker", values["BrokerId"]] = {
        "epoch": values["BrokerEpoch"],
        "incarnation": values["IncarnationId"],
        "fenced": bool(values["Fenced"]),
        "stopping": bool(values.get("InControlledShutdown")),
    }


def _broker_changed(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    one = dict(now["broker", values["BrokerId"]])
    if values["Fenced"]:
        one["fenced"] = values["Fenced"] > 0
    if values.get("InControlledShutdown"):
        one["stopping"] = values["InControlledShutdown"] > 0
    now["broker", values["BrokerId"]] = one


def _broker_gone(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now.pop(("broker", values["BrokerId"]), None)


def _config(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    key = "config", values["ResourceType"], values["ResourceName"], values["Name"]
    if values["Value"] is None:
        now.pop(key, None)
    else:
        now[key] = values["Value"]


def _feature(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    if values["FeatureLevel"]:
        now["feature", values["Name"]] = values["FeatureLevel"]
    else:
        now.pop(("feature", values["Name"]), None)


def _producer_ids(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now["producer ids",] = values["NextProducerId"]


def _controller(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now["controller", values["ControllerId"]] = values["IncarnationId"]


def _controller_gone(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now.pop(("controller", values["ControllerId"]), None)


def _user(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    checked_by = [values[name].hex() for name in ("Salt", "StoredKey", "ServerKey")]
    now["user", values["Name"], values["Mechanism"]] = [*checked_by, values["Iterations"]]


def _user_gone(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now.pop(("user", values["Name"], values["Mechanism"]), None)


def _right(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now["right", values["Id"]] = {name: values[name] for name in values if name != "Id"}


def _right_gone(now: dict[Key, Any], values: Mapping[str, Any]) -> None:
    now.pop(("right", values["Id"]), None)


_KINDS: Mapping[str, Callable[[dict[Key, Any], Mapping[str, Any]], None]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _topic_removed,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_changed,
    "ClearElrRecord": _eligible_cleared,
    "RegisterBrokerRecord": _broker,
    "BrokerRegistrationChangeRecord": _broker_changed,
    "UnregisterBrokerRecord": _broker_gone,
    "ConfigRecord": _config,
    "FeatureLevelRecord": _feature,
    "ProducerIdsRecord": _producer_ids,
    "RegisterControllerRecord": _controller,
    "UnregisterControllerRecord": _controller_gone,
    "UserScramCredentialRecord": _user,
    "RemoveUserScramCredentialRecord": _user_gone,
    "AccessControlEntryRecord": _right,
    "RemoveAccessControlEntryRecord": _right_gone,
}
