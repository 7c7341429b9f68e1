"""The first draft of an attachment, of what the engine says of a compose file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from fencepost.model.errors import UsageError
from fencepost.model.system.attachment import attachment_in, check_consent, decoded
from fencepost.model.system.composed import ComposedProxy, composed
from fencepost_clusters.apache_kafka.attached.cluster import AttachedKafka
from fencepost_clusters.apache_kafka.attached.draft import drafted

EXAMPLES = Path(__file__).parents[4] / "docs/examples/attach"


def node(number: int, **more: object) -> dict[str, object]:
    return {
        "image": "apache/kafka:4.1.0",
        "environment": {
            "KAFKA_NODE_ID": str(number),
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "EMPTY": None,
        },
        "ports": [{"target": 19092, "published": str(19090 + number), "protocol": "tcp"}],
        **more,
    }


CONFIG = {
    "name": "shop",
    "services": {
        "kafka-1": node(1),
        "kafka-2": node(2, container_name="second"),
        "toxi": {
            "image": "ghcr.io/shopify/toxiproxy:2.12.0",
            "ports": [
                {"target": 8474, "published": "18474"},
                {"target": 29092, "published": "29091"},
            ],
        },
        "shop": {"image": "shop"},
    },
}


def test_a_draft_names_nodes_and_proxies_and_gives_no_consent() -> None:
    stack = replace(
        composed(json.dumps(CONFIG).encode()),
        proxies=(
            ComposedProxy("to-1", 29092, "kafka-1", 9092),
            ComposedProxy("else", 1, "shop", 80),
        ),
    )
    text = drafted(stack)
    found = decoded(text.encode())
    assert [(one.name, one.id, one.container) for one in found.nodes] == [
        ("kafka-1", 1, "shop-kafka-1-1"),
        ("kafka-2", 2, "second"),
    ]
    assert found.nodes[0].roles == ("broker", "controller")
    assert [(one.source, one.target, one.proxy, one.listen) for one in found.links] == [
        ("clients", "kafka-1", "to-1", "127.0.0.1:29091")
    ]
    assert found.bootstrap == ("127.0.0.1:29091", "127.0.0.1:19092")
    assert found.toxiproxy is not None
    assert (found.toxiproxy.url, found.toxiproxy.container) == (
        "http://127.0.0.1:18474",
        "shop-toxi-1",
    )
    assert "No proxy of toxiproxy leads to kafka-2" in text
    with pytest.raises(UsageError, match="nothing was touched"):
        check_consent(found)


def test_the_example_of_the_documentation_is_what_its_draft_becomes() -> None:
    """But for the consent and the settings, which a draft does not know."""
    config = yaml.safe_load((EXAMPLES / "docker-compose.yml").read_text())
    stack = replace(
        composed(json.dumps(config).encode()),
        proxies=(ComposedProxy("clients-1", 29092, "kafka-1", 9092),),
    )
    shown = attachment_in(EXAMPLES / "cluster.toml")
    draft = decoded(drafted(stack).encode())
    assert shown == replace(draft, may_break=True, settings=shown.settings)
    AttachedKafka().at(str(EXAMPLES / "cluster.toml"))


def test_what_is_no_compose_config_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        composed(b"services:")
