"""No program of ours imports hypothesis because kio would."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tool


@pytest.mark.parametrize(
    "statement",
    [
        "import fencepost_clusters.reference.shell.program",
        "import fencepost_clusters.reference.shell.client",
        "import fencepost_clusters.apache_kafka.metadata.observer",
        "import fencepost_kafka.confluent.worker",
        "from fencepost.plugins.manager import load; load()",
    ],
)
def test_a_program_uses_kio_without_hypothesis(statement: str) -> None:
    code = f"import sys; {statement}; print('kio' in sys.modules, 'hypothesis' in sys.modules)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_hypothesis_can_be_imported_afterwards() -> None:
    code = "import fencepost_kafka, hypothesis.strategies"
    subprocess.run([sys.executable, "-c", code], check=True)
