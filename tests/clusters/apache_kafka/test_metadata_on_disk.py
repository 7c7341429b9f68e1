"""The states of the metadata that disks hold, after a log and a snapshot that Kafka 4.3.1 wrote."""

from __future__ import annotations

from pathlib import Path

from kafka_samples import SAMPLES, schemas

from fencepost import Slot
from fencepost_clusters.apache_kafka.metadata.entities import Entities
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound, metadata_states
from fencepost_clusters.apache_kafka.metadata.schema import Record
from fencepost_kafka import Role

LOG = (SAMPLES / "metadata-4.3.1.log").read_bytes()
SNAPSHOT = (SAMPLES / "metadata-4.3.1.checkpoint").read_bytes()
AT = "00000000000000000094-0000000002.checkpoint"
FORMATTED = "00000000000000000000-0000000000.checkpoint"
FIRST = "00000000000000000000.log"


def states(tmp_path: Path, *disks: dict[str, bytes]) -> list[MetadataStateFound]:
    """What is read of disks with these files in the folder of the metadata log."""
    slots = [Slot(f"controller-{n}", Role.CONTROLLER, 100 + n, n) for n in range(1, len(disks) + 1)]
    for slot, files in zip(slots, disks, strict=True):
        folder = tmp_path / slot.name / "__cluster_metadata-0"
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    places = {slot.name: tmp_path / slot.name for slot in slots}
    return list(metadata_states(places, slots, schemas("4.3.1")))


def test_a_snapshot_and_the_log_of_another_node_lead_to_one_state(tmp_path: Path) -> None:
    snapshot, log = states(tmp_path, {AT: SNAPSHOT}, {FIRST: LOG})
    assert (snapshot.slot, snapshot.by_snapshot) == ("controller-1", True)
    assert (log.slot, log.by_snapshot) == ("controller-2", False)
    assert (snapshot.offset, snapshot.epoch) == (log.offset, log.epoch) == (94, 2)
    assert snapshot.digest == log.digest
    assert snapshot.entities == snapshot.records == log.entities < log.records


def test_a_log_that_ends_before_a_snapshot_or_begins_after_one_has_no_state(tmp_path: Path) -> None:
    size = 12 + int.from_bytes(LOG[8:12], "big")
    found = states(tmp_path, {AT: SNAPSHOT}, {FIRST: LOG[:-2000]}, {FIRST: LOG[size:]}, {})
    assert [one.slot for one in found] == ["controller-1"]


def test_a_log_with_a_record_of_another_epoch_there_has_no_state(tmp_path: Path) -> None:
    other = AT.replace("2.checkpoint", "1.checkpoint")
    assert len(states(tmp_path, {other: SNAPSHOT}, {FIRST: LOG})) == 1


def test_the_snapshot_that_a_disk_is_formatted_with_is_left_out(tmp_path: Path) -> None:
    assert states(tmp_path, {FORMATTED: SNAPSHOT, FIRST: LOG}) == []


def entities(*records: tuple[str, dict[str, object]]) -> Entities:
    found = Entities()
    for kind, values in records:
        found.replay(Record(kind=kind, version=0, values=values))
    return found


TOPIC = ("TopicRecord", {"TopicId": "a", "Name": "orders"})
PARTITION = (
    "PartitionRecord",
    {
        "TopicId": "a",
        "PartitionId": 0,
        "Leader": 1,
        "LeaderEpoch": 3,
        "Isr": (1, 2),
        "Replicas": (1, 2),
        "AddingReplicas": (),
        "RemovingReplicas": (),
        "EligibleLeaderReplicas": None,
    },
)


def config(value: str | None) -> tuple[str, dict[str, object]]:
    """A setting of the topic orders."""
    where = {"ResourceType": 2, "ResourceName": "orders", "Name": "retention.ms"}
    return "ConfigRecord", {**where, "Value": value}


def broker(kind: str, fenced: object) -> tuple[str, dict[str, object]]:
    """A record of broker 1."""
    values = {"BrokerId": 1, "BrokerEpoch": 7, "IncarnationId": "x", "Fenced": fenced}
    return kind, values


def user(key: bytes) -> tuple[str, dict[str, object]]:
    """A record of the user `a`, whose password is checked by that key."""
    checked = {"Salt": b"s", "StoredKey": key, "ServerKey": key, "Iterations": 4096}
    return "UserScramCredentialRecord", {"Name": "a", "Mechanism": 2, **checked}


RIGHT: tuple[str, dict[str, object]] = (
    "AccessControlEntryRecord",
    {"Id": "r", "ResourceType": 2, "ResourceName": "orders", "PermissionType": 3},
)


def test_changes_lead_to_what_one_record_says() -> None:
    changed = {"TopicId": "a", "PartitionId": 0, "Leader": 2, "Isr": (2,)}
    whole = {**PARTITION[1], "Leader": 2, "LeaderEpoch": 4, "Isr": (2,)}
    pairs = [
        (
            entities(PARTITION, ("PartitionChangeRecord", changed)),
            entities(("PartitionRecord", whole)),
        ),
        (
            entities(
                broker("RegisterBrokerRecord", True), broker("BrokerRegistrationChangeRecord", -1)
            ),
            entities(broker("RegisterBrokerRecord", False)),
        ),
        (entities(config("1"), config("2")), entities(config("2"))),
        (entities(config("1"), config(None)), entities()),
        (
            entities(TOPIC, PARTITION, config("1"), ("RemoveTopicRecord", {"TopicId": "a"})),
            entities(),
        ),
        (entities(broker("RegisterBrokerRecord", 1), ("UnregisterBrokerRecord", {"BrokerId": 1})),
         entities()),
        (
            entities(
                ("RegisterControllerRecord", {"ControllerId": 101, "IncarnationId": "x"}),
                ("UnregisterControllerRecord", {"ControllerId": 101}),
            ),
            entities(),
        ),
        (entities(user(b"old"), user(b"new")), entities(user(b"new"))),
        (
            entities(
                user(b"new"), ("RemoveUserScramCredentialRecord", {"Name": "a", "Mechanism": 2})
            ),
            entities(),
        ),
        (entities(RIGHT, ("RemoveAccessControlEntryRecord", {"Id": "r"})), entities()),
    ]  # fmt: skip
    for one, other in pairs:
        assert one.digest() == other.digest()


def test_who_may_do_what_is_part_of_the_state() -> None:
    assert entities(user(b"old")).digest() != entities(user(b"new")).digest()
    denied = RIGHT[0], {**RIGHT[1], "PermissionType": 2}
    assert entities(RIGHT).digest() != entities(denied).digest() != entities().digest()


def test_the_settings_of_topics_that_do_not_exist_are_found() -> None:
    sound = entities(("TopicRecord", {"TopicId": "b", "Name": "payments"}))
    other = entities(("TopicRecord", {"TopicId": "b", "Name": "payments"}), config("1"))
    assert other.orphans() == [("config", 2, "orders", "retention.ms")]
    assert other.digest() != sound.digest()
    assert other.digest(but=other.orphans()) == sound.digest()
    assert entities(TOPIC, config("1")).orphans() == []


def test_settings_that_a_deletion_took_and_a_later_topic_of_that_name_has_are_found() -> None:
    removed = "RemoveTopicRecord", {"TopicId": "a"}
    again = "TopicRecord", {"TopicId": "b", "Name": "orders"}
    log = entities(TOPIC, config("1"), removed, again)
    kept = entities(again, config("1"))
    assert kept.orphans() == []
    assert kept.orphans(log.dropped) == [("config", 2, "orders", "retention.ms")]
    assert kept.digest(but=kept.orphans(log.dropped)) == log.digest()
    assert entities(again, config("2")).orphans(log.dropped) == []


def test_eligible_replicas_are_cleared_of_one_topic_or_of_all() -> None:
    eligible = {**PARTITION[1], "EligibleLeaderReplicas": (3,), "LastKnownElr": (3,)}
    cleared = entities(TOPIC, PARTITION).digest()
    for topic in ("orders", ""):
        clear = ("ClearElrRecord", {"TopicName": topic})
        assert entities(TOPIC, ("PartitionRecord", eligible), clear).digest() == cleared
    other = ("ClearElrRecord", {"TopicName": "payments"})
    assert entities(TOPIC, ("PartitionRecord", eligible), other).digest() != cleared


def test_each_field_of_an_entity_counts() -> None:
    whole = entities(TOPIC, PARTITION).digest()
    for name, value in (("Leader", 2), ("LeaderEpoch", 4), ("Isr", (2, 1)), ("Replicas", (1,))):
        assert entities(TOPIC, ("PartitionRecord", {**PARTITION[1], name: value})).digest() != whole
    assert entities(PARTITION, TOPIC).digest() == whole


def test_a_change_of_the_isr_alone_begins_no_leader_epoch() -> None:
    changed = {"TopicId": "a", "PartitionId": 0, "Leader": -2, "Isr": (1,)}
    whole = {**PARTITION[1], "Isr": (1,)}
    one = entities(PARTITION, ("PartitionChangeRecord", changed))
    assert one.digest() == entities(("PartitionRecord", whole)).digest()
    assert one.records == 2
