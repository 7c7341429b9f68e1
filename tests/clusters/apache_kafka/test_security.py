"""Security of Kafka's nodes: their settings, their secrets, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from kio.records.readers import read_batch
from tests.clusters.apache_kafka.test_cluster import placed

from fencepost import EnvironmentFailed, Place, Shape, UsageError
from fencepost.model.system.capabilities import check_shape
from fencepost.plugins.manager import load
from fencepost_clusters.apache_kafka import distribution
from fencepost_clusters.apache_kafka.certificates import GOOD_FOR
from fencepost_clusters.apache_kafka.cluster import KRaft
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import KafkaLogParser
from fencepost_clusters.apache_kafka.security import scram_record
from fencepost_kafka import OperationRefused
from fencepost_kafka.security import SECURITIES, STRANGER, Access, security_named

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = pytest.mark.parametrize("name", SECURITIES)


def made(name: str, folder: Path, kafka: KRaft | None = None) -> Mapping[str, str]:
    """The secrets of a run, written into a folder."""
    shape = Shape(security=name)
    system = kafka or KRaft()
    layout = system.layout(shape)
    addresses = {
        slot.name: [f"127.9.{slot.index}.{slot.index}", f"127.9.99.{slot.index}"]
        for slot in layout.slots
    }
    secrets = system.secrets(shape, layout, addresses, NOW)
    for file, text in secrets.items():
        (folder / file).write_text(text)
    return secrets


def secured(node: str, name: str, folder: Path) -> Place:
    return replace(placed(node, Shape(security=name)), secrets=folder)


@NAMES
def test_every_listener_is_secured_and_the_authorizer_knows_who_may_everything(
    name: str, tmp_path: Path
) -> None:
    made(name, tmp_path)
    shape = Shape(security=name)
    protocol = name.partition("/")[0]
    for node in ("controller-1", "broker-2"):
        read = KRaft().properties(secured(node, name, tmp_path), shape)
        assert read["listener.security.protocol.map"] == (
            f"CLIENT:{protocol},REPLICATION:{protocol},CONTROLLER:{protocol}"
        )
        assert read["authorizer.class.name"].endswith("StandardAuthorizer")
        may = read["super.users"].split(";")
        assert {"User:controller-3", "User:broker-2-duplicate", "User:clients"} <= {*may}
        assert f"User:{STRANGER}" not in may


@NAMES
def test_no_secret_is_in_what_is_kept_with_a_run(name: str, tmp_path: Path) -> None:
    secrets = made(name, tmp_path)
    hidden = [text for file, text in secrets.items() if file.endswith(".password")]
    hidden += [
        line
        for file, text in secrets.items()
        if file.endswith(".pem") and "PRIVATE KEY" in text
        for line in text.splitlines()
        if not line.startswith("-")
    ]
    assert hidden
    shape = Shape(security=name)
    for node in ("controller-1", "broker-2"):
        read = KRaft().properties(secured(node, name, tmp_path), shape)
        text = "".join(f"{one}={value}\n" for one, value in read.items())
        assert [word for word in hidden if word in text] == []


def test_clients_and_brokers_log_in_by_scram_and_everybody_into_controllers_by_plain(
    tmp_path: Path,
) -> None:
    name, shape = "SASL_SSL", Shape(security="SASL_SSL")
    secrets = made(name, tmp_path)
    read = KRaft().properties(secured("broker-2", name, tmp_path), shape)
    assert read["sasl.mechanism.inter.broker.protocol"] == "SCRAM-SHA-512"
    assert read["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert read["listener.name.controller.sasl.enabled.mechanisms"] == "PLAIN"
    login = read["listener.name.replication.scram-sha-512.sasl.jaas.config"]
    assert login == f"${{directory:{tmp_path}:broker-2.scram-sha-512}}"
    said = secrets["broker-2.scram-sha-512"]
    assert "ScramLoginModule required" in said
    assert secrets["broker-2.password"] in said
    # A controller knows everybody's password, and has no listener of brokers.
    assert f'user_clients="{secrets["clients.password"]}"' in secrets["controller-1.plain"]
    controller = KRaft().properties(secured("controller-1", name, tmp_path), shape)
    assert not [one for one in controller if one.startswith("listener.name.client.")]


def test_a_certificate_names_all_ends_of_its_node_and_the_authority_signed_it(
    tmp_path: Path,
) -> None:
    secrets = made("SSL", tmp_path)
    authority = x509.load_pem_x509_certificate(secrets["ca.pem"].encode())
    found = x509.load_pem_x509_certificate(secrets["broker-1.pem"].encode())
    found.verify_directly_issued_by(authority)
    (common,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common.value == "broker-1"
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker-1"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ip_address("127.9.4.4"), ip_address("127.9.99.4"),
    ]  # fmt: skip
    assert found.not_valid_after_utc - NOW == GOOD_FOR
    assert found.not_valid_before_utc <= NOW - timedelta(hours=1)
    assert secrets["broker-1.pem"] != made("SSL", tmp_path)["broker-1.pem"]


def test_with_tls_alone_a_client_must_show_a_certificate(tmp_path: Path) -> None:
    made("SSL", tmp_path)
    read = KRaft().properties(secured("broker-2", "SSL", tmp_path), Shape(security="SSL"))
    assert read["ssl.client.auth"] == "required"
    assert read["ssl.keystore.location"] == str(tmp_path / "broker-2.pem")
    assert not [one for one in read if "sasl" in one]


def test_a_setting_of_a_test_is_stronger_than_that_of_the_security(tmp_path: Path) -> None:
    made("SSL", tmp_path)
    shape = Shape(security="SSL", settings={"ssl.client.auth": "requested"})
    read = KRaft().properties(secured("broker-2", "SSL", tmp_path), shape)
    assert read["ssl.client.auth"] == "requested"


def test_a_folder_of_secrets_that_kafka_cannot_be_told_is_named(tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    made("SASL_SSL", odd)
    with pytest.raises(EnvironmentFailed, match="set TMPDIR to another folder"):
        KRaft().properties(secured("broker-2", "SASL_SSL", odd), Shape(security="SASL_SSL"))


def test_how_a_client_gets_in_is_said_to_every_library(tmp_path: Path) -> None:
    secrets = made("SASL_SSL", tmp_path)
    access = Access(security_named("SASL_SSL"), tmp_path, "clients")
    assert access.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "clients",
        "sasl.password": secrets["clients.password"],
    }
    text = access.java_properties()
    assert f"ssl.truststore.location={tmp_path}/ca.pem\n" in text
    assert f'username="clients" password="{secrets["clients.password"]}";\n' in text
    by_certificate = Access(security_named("SSL"), tmp_path, "clients")
    assert by_certificate.librdkafka()["ssl.key.location"] == str(tmp_path / "clients.pem")
    assert by_certificate.java()["ssl.keystore.location"] == str(tmp_path / "clients.pem")
    odd = Access(security_named("SSL"), Path("/tmp/é\\x"), "clients")
    assert "ssl.keystore.location=/tmp/\\u00e9\\u005cx/clients.pem\n" in odd.java_properties()


def test_a_release_without_users_of_scram_is_refused_by_name() -> None:
    old = KRaft().at("3.4.1")
    says = r"apache/kraft@3\.4\.1 keeps no passwords of SCRAM, as Kafka does from 3\.5 on"
    with pytest.raises(UsageError, match=says):
        old.layout(Shape(security="SASL_SSL"))
    assert old.layout(Shape(security="SASL_SSL/PLAIN"))
    assert old.layout(Shape(security="SSL"))
    assert KRaft().at("3.5.2").layout(Shape(security="SASL_PLAINTEXT"))


def test_a_security_that_a_system_does_not_know_is_refused() -> None:
    plugins = load()
    with pytest.raises(UsageError, match="named 'SASL_SLL'; did you mean 'SASL_SSL'"):
        check_shape(KRaft(), Shape(security="SASL_SLL"))
    for other in ("apache/zookeeper", "reference/quorum", "etcd/etcd"):
        if other in plugins.systems:
            with pytest.raises(UsageError, match=f"{other} cannot be secured"):
                check_shape(plugins.system(other), Shape(security="SASL_SSL"))


def test_requests_can_be_chosen_only_where_links_carry_them_openly() -> None:
    encrypted = KRaft().layout(Shape(security="SASL_SSL"))
    assert (encrypted.sealed, encrypted.framed) == ("TLS", frozenset())
    readable = KRaft().layout(Shape(security="SASL_PLAINTEXT"))
    assert (readable.sealed, readable.logs_in) == ("", True)
    assert readable.framed == KRaft().layout(Shape()).framed != frozenset()


# `kafka-storage format` of Kafka 4.4.0 wrote it for
# `--add-scram SCRAM-SHA-512=[name=alice,salt="c2FsdA==",iterations=4096,password=alice-secret]`.
ALICE = bytes.fromhex(
    "010b0006616c696365020573616c7441f0c6111cc0a09065b7921b03c57e2c4f2e50a286c91dbf18a3bbb0"
    "67846ad927320d4190a8d6db2f7bebd86765855e7ffa928a443685a7f4a4a809214fb7ad5b416dfc5e6cd3"
    "480bd3ce2aaf19efec03cae3e7c9dd895e6246419810a2946e78b474a0e2172d27a36c8ade6ac5bbd57f8b"
    "03e710e7d4e6ef36c5c0239299e433150000100000"
)


def test_a_user_of_scram_is_the_record_that_kafka_writes() -> None:
    assert scram_record("alice", "alice-secret", salt=b"salt") == ALICE


def test_up_to_4_3_controllers_begin_with_the_users_in_a_file_beside_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formatted = (Path(__file__).parent / "samples" / "voters-4.4.0.checkpoint").read_bytes()
    monkeypatch.setattr(distribution, "first_metadata", lambda *_: formatted)
    old = KRaft().at("3.5.2")
    secrets = made("SASL_SSL", tmp_path, old)
    place = secured("controller-1", "SASL_SSL", tmp_path)
    (text,) = [old._disk(place)["bootstrap.base64"]]
    values = _values(text)
    users = [bytes.fromhex(record) for record in json.loads(secrets["scram.json"])]
    assert len(users) == len(KRaft().layout(Shape()).slots) + 1
    # First the levels of features, then users, in one order for all controllers.
    assert values[-len(users) - 1 : -1] == users
    assert "bootstrap.base64" not in old._disk(secured("broker-1", "SASL_SSL", tmp_path))
    assert "bootstrap.base64" not in old._disk(placed("controller-1", Shape()))


def test_from_4_4_on_controllers_begin_with_the_users_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formatted = (Path(__file__).parent / "samples" / "voters-4.4.0.checkpoint").read_bytes()
    monkeypatch.setattr(distribution, "first_metadata", lambda *_: formatted)
    secrets = made("SASL_SSL", tmp_path)
    users = [bytes.fromhex(record) for record in json.loads(secrets["scram.json"])]
    begun = {
        node: KRaft()._disk(secured(node, "SASL_SSL", tmp_path))["snapshot.base64"]
        for node in ("controller-1", "controller-2")
    }
    assert begun["controller-1"] == begun["controller-2"]
    assert _values(begun["controller-1"])[-len(users) - 1 : -1] == users


def _values(base_64: str) -> list[bytes | None]:
    """The values of all records of a snapshot; offsets are without a gap."""
    data, at = base64.b64decode(base_64), 0
    records = []
    while at < len(data):
        batch, size = read_batch(data, at)
        records += batch.records
        at += size
    assert [record.offset for record in records] == list(range(len(records)))
    return [record.value for record in records]


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        (
            "Principal = User:stranger is Denied operation = WRITE from host = 127.0.0.1 on "
            "resource = Topic:LITERAL:orders for request = Produce with resourceRefCount = 1 based "
            "on rule DefaultDeny",
            OperationRefused(
                principal="User:stranger",
                operation="WRITE",
                resource="Topic:orders",
                api="Produce",
                host="127.0.0.1",
            ),
        ),
        (
            "Principal = User:CN=odd name,O=a b is Denied operation = CLUSTER_ACTION from host = "
            "10.0.0.7 on resource = Cluster:LITERAL:kafka-cluster for request = Vote with "
            "resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl(...))",
            OperationRefused(
                principal="User:CN=odd name,O=a b",
                operation="CLUSTER_ACTION",
                resource="Cluster:kafka-cluster",
                api="Vote",
                host="10.0.0.7",
            ),
        ),
    ],
)
def test_a_refusal_is_an_event(line: str, refused: OperationRefused) -> None:
    layout = KRaft().layout(Shape())
    for slot in (layout.slot("broker-1"), layout.slot("controller-1")):
        log_parser = KafkaLogParser(slot, Configured(3_000, fetch_timeout_ms=1_500))
        (heard,) = log_parser.parse(f"@7 INFO kafka.authorizer.logger {line}")
        assert (heard.at_ns, heard.body) == (7, refused)
        assert log_parser.parse(f"@8 DEBUG kafka.authorizer.logger {allowed(line)}") == ()
    assert refused.resource in refused.sentence()


def allowed(line: str) -> str:
    return line.replace(" is Denied ", " is Allowed ")
