"""Administration by unmodified clients of Kafka, and by raw requests for what they lack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from direct_nodes import LIMIT_S, PORTS, Nodes, create, eventually, nodes_in, quietly

from fencepost_kafka import AddBrokers, DeleteBroker, ListReassignments, Reassign, Rebalance
from fencepost_kafka.confluent.raw_admin import RawCommand, carry_out

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker that the tests share."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        yield made


def test_confluent_kafka_changes_a_topics_settings(cluster: Nodes) -> None:
    admin = AdminClient(quietly(cluster))
    create(cluster, "set")

    def alter(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        about = ConfigResource(ConfigResource.Type.TOPIC, "set", incremental_configs=[entry])
        admin.incremental_alter_configs([about])[about].result(LIMIT_S)

    def read() -> str:
        about = ConfigResource(ConfigResource.Type.TOPIC, "set")
        return admin.describe_configs([about])[about].result(LIMIT_S)["min.insync.replicas"].value

    assert read() == "1"
    alter("min.insync.replicas", "2")
    eventually(lambda: read() == "2", "the broker has heard of the setting")
    with pytest.raises(KafkaException) as refused:
        alter("cleanup.policy", "compact")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_confluent_kafka_asks_for_preferred_leaders(cluster: Nodes) -> None:
    admin = AdminClient(quietly(cluster))
    create(cluster, "elected")
    places = [TopicPartition("elected", 0), TopicPartition("nowhere", 0)]
    results = admin.elect_leaders(ElectionType.PREFERRED, places).result(LIMIT_S)
    codes = {place.topic: error.code() for place, error in results.items()}
    assert codes == {
        "elected": KafkaError.ELECTION_NOT_NEEDED,
        "nowhere": KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


def test_kafka_python_administers_partitions_settings_and_the_quorum(cluster: Nodes) -> None:
    kafka = pytest.importorskip("kafka")
    create(cluster, "moved")
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    place = kafka.TopicPartition("moved", 0)
    try:
        assert admin.alter_partition_reassignments({place: [1]}) == {place: None}
        refused = admin.alter_partition_reassignments({place: [9]})[place]
        assert refused.errno == 39  # INVALID_REPLICA_ASSIGNMENT
        assert admin.list_partition_reassignments() == {}
        quorum = admin.describe_metadata_quorum()
        (part,) = quorum["topics"][0]["partitions"]
        assert part["leader_id"] == 101
        assert [voter["replica_id"] for voter in part["current_voters"]] == [101]
        assert [observer["replica_id"] for observer in part["observers"]] == [1]
        elected = admin.elect_leaders(0, {"moved": [0]})  # the preferred one
        (result,) = elected.replica_election_results[0].partition_result
        assert (result.partition_id, result.error_code) == (0, 84)  # ELECTION_NOT_NEEDED
        about = kafka.admin.ConfigResource(
            kafka.admin.ConfigResourceType.TOPIC, "moved", {"min.insync.replicas": "3"}
        )
        admin.alter_configs([about])
        listed = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "moved", None)

        def read() -> object:
            """The changed value; None while the setting has its default, which is left out."""
            described = admin.describe_configs([listed])["topic"]["moved"]
            return described.get("min.insync.replicas", {}).get("value")

        eventually(lambda: read() == "3", "the broker has heard of the setting")
    finally:
        admin.close()


def outcome_of(cluster: Nodes, command: RawCommand) -> tuple[str, str]:
    address = (cluster.address("broker-1"), PORTS["CLIENT"])
    ended = carry_out(command, [address], "clients/raw#1", LIMIT_S)
    return ended.outcome, ended.error


def test_requests_that_no_library_has_are_sent_as_bytes(cluster: Nodes) -> None:
    create(cluster, "raw")
    good = ("ok", "")
    assert outcome_of(cluster, ListReassignments(operation="a")) == good
    assert outcome_of(cluster, Reassign(operation="b", moves=(("raw", 0, (1,)),))) == good
    called_off = outcome_of(cluster, Reassign(operation="c", moves=(("raw", 0, ()),)))
    assert called_off == ("failed", "NO_REASSIGNMENT_IN_PROGRESS")
    assert outcome_of(cluster, Rebalance(operation="d")) == good
    unknown_broker = outcome_of(cluster, AddBrokers(operation="e", brokers=(9,)))
    assert unknown_broker == ("failed", "INVALID_REPLICA_ASSIGNMENT")
    unknown = outcome_of(cluster, DeleteBroker(operation="f", broker=9))
    assert unknown == ("failed", "BROKER_ID_NOT_REGISTERED")
    assert outcome_of(cluster, DeleteBroker(operation="g", broker=1)) == good
