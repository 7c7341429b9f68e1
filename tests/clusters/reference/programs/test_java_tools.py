"""What only the tools that come with Apache Kafka ask for; the cases of every foreign client are in
`test_foreign_clients.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from direct_nodes import Nodes, create, nodes_in
from foreign_programs import JavaTools, Missing, java_tools

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        yield made


@pytest.fixture(scope="module")
def tools(cluster: Nodes) -> JavaTools:
    """Skips if Kafka is not here."""
    try:
        return java_tools(cluster.bootstrap)
    except Missing as missing:
        pytest.skip(str(missing))


def test_javas_tool_verifies_and_calls_off_a_reassignment(
    cluster: Nodes, tools: JavaTools, tmp_path: Path
) -> None:
    create(cluster, "moved")
    plan = tmp_path / "plan.json"
    move = {"topic": "moved", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def reassign(action: str) -> str:
        arguments = f"--reassignment-json-file {plan} {action}"
        return tools.done("reassign.ReassignPartitionsCommand", arguments)

    reassign("--execute")
    assert "moved-0 is completed" in reassign("--verify")
    reassign("--cancel")
