"""A client library that does not fit: the error names the client and has the last lines of its
log."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec

pytestmark = pytest.mark.real

MIX = "this confluent_kafka was built for librdkafka 1.9, and 0.11 is installed"


def test_a_client_whose_versions_do_not_fit_is_named_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "packages" / "confluent_kafka"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text(f"raise ImportError({MIX!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("reference/quorum"))
    with (
        Run.start(spec, plugins, folder) as run,
        pytest.raises(EnvironmentFailed, match=r"clients/admin-1#1 .* exit code 1") as failed,
    ):
        run.clients.create_topic("orders")
    assert failed.value.detail.splitlines()[-1].strip() == f"ImportError: {MIX}"
    assert failed.value.exit_code == 4
