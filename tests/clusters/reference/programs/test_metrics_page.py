"""A node's metrics page, read over HTTP from real nodes; bytes that are no HTTP do it no harm."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest
from direct_nodes import LIMIT_S, METRICS_PORT, Nodes, nodes_in

from fencepost_clusters.reference.shell import metrics_page
from fencepost_kafka import MetricsReported

LEGAL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, real: None) -> Iterator[Nodes]:
    """A controller and an active broker that the tests share."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        yield made


def reported() -> tuple[MetricsReported, ...]:
    return (
        MetricsReported(
            role="controller",
            node_id=101,
            metadata_lag=3,
            commit_latency_ms=1.5,
            commit_rate=2.0,
            snapshot_lag=9,
            requests_rate=4.25,
        ),
        MetricsReported(role="broker", node_id=1),
    )


def exchange(cluster: Nodes, node: str, data: bytes) -> bytes:
    """Sends this to the node's metrics port; returns all bytes until the node closes the
    connection."""
    with socket.create_connection((cluster.address(node), METRICS_PORT), LIMIT_S) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as stream:
            return stream.read()


def test_the_page_has_kip_631s_names_and_is_legal_to_prometheus() -> None:
    page = metrics_page.page(reported())
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert all(LEGAL.fullmatch(line.partition("{")[0]) for line in samples)
    names = [line.split('"')[1].partition("type=")[2] for line in samples]
    assert names == [
        "KafkaController,name=MetadataLag",
        "KafkaController,name=MetadataCommitLatencyMs",
        "KafkaController,name=MetadataCommitRate",
        "KafkaController,name=MetadataSnapshotLag",
        "KafkaController,name=ControllerRequestsRate",
        "KafkaServer,name=MetadataLag",
    ]
    assert [line.rpartition(" ")[2] for line in samples] == ["3", "1.5", "2.0", "9", "4.25", "0"]
    for name in {line.partition("{")[0] for line in samples}:
        assert f"# TYPE {name} gauge\n" in page
        assert f"# HELP {name} " in page


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", "200"),
        ("GET /metrics?name=x HTTP/1.0", "200"),
        ("GET / HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("GET /metrics", "400"),
        ("\0\0\0\x12", "400"),
    ],
)
def test_a_request_gets_its_status(request_line: str, status: str) -> None:
    answer = metrics_page.answer(f"{request_line}\r\n\r\n".encode(), reported)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1].decode() == status
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize("node", ["controller-1", "broker-1"])
@pytest.mark.parametrize("data", [b"\0" * 9000, b"\r\n\r\n", b"GET /metrics HTTP/9\r\n\r\n"])
def test_bytes_that_are_not_http_close_that_connection_only(
    cluster: Nodes, node: str, data: bytes
) -> None:
    with socket.create_connection((cluster.address(node), METRICS_PORT), LIMIT_S) as other:
        other.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert b" 400 " in exchange(cluster, node, data)
        other.sendall(b"\r\n")
        with other.makefile("rb") as stream:
            assert b" 200 " in stream.readline()
    assert b"MetadataLag" in exchange(cluster, node, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert cluster.alive(node)
