"""The framework knows no Kafka: its vocabulary is authority, epochs and fences, for any system."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

FRAMEWORK = Path(__file__).parent.parent / "framework"
SOURCES = sorted(FRAMEWORK.rglob("*.py"))
KAFKA = re.compile(
    r"kafka|confluent|librdkafka|\bkio\b|\bkip-|\bisr\b|isr_|broker_?epoch|leader_?epoch"
    r"|high_?watermark|\btopics?\b|\bbrokers?\b(?!-)|replica|partition_|NOT_LEADER|NOT_CONTROLLER"
    r"|STALE_BROKER|DUPLICATE_BROKER|\bproducers?\b|\bconsumers?\b|\bcontrollers?\b|zookeeper"
    r"|(?:metadata|record|commit|fetch|log)_?offset",
    re.IGNORECASE,
)
ALLOWED = {
    "history/run_folder.py": "layout 1 of run folders, which is still read",
    "runtimes/docker/sources.py": "the packages that images hold",
    "events/codec.py": "former names of fields, which are still read",
}
"""Files that may name something of Kafka's, each with its reason."""


def words(path: Path) -> list[str]:
    """Every name, comment and text of a source file, an example of a slot's name left out."""
    with path.open("rb") as file:
        found = [
            token.string
            for token in tokenize.tokenize(file.readline)
            if token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING)
        ]
    return [
        re.sub(r"broker-\d[\w#-]*|`broker \d`|`partition orders-0`", "", word) for word in found
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FRAMEWORK)))
def test_the_framework_names_nothing_of_kafka(path: Path) -> None:
    if str(path.relative_to(FRAMEWORK / "fencepost")) in ALLOWED:
        return
    named = {word for text in words(path) for word in KAFKA.findall(text)}
    assert named == set()


def test_every_exception_is_needed() -> None:
    for name in ALLOWED:
        path = FRAMEWORK / "fencepost" / name
        assert any(KAFKA.search(text) for text in words(path)), name


def test_a_name_of_kafkas_is_seen(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text("def f(isr_size: int) -> None:\n    '''The broker of a topic.'''\n")
    ast.parse(sample.read_text())
    assert [bool(KAFKA.search(text)) for text in words(sample)].count(True) == 2
