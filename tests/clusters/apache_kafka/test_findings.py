"""Each known finding is shown by the history that is kept with it, and reported as known."""

from __future__ import annotations

import gzip
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from fencepost import KnownFinding
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.judge import Outcome
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.schedule import read
from fencepost_clusters.apache_kafka.findings import known_findings


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_the_history_of_a_finding_shows_it(
    finding: KnownFinding, plugins: Plugins, tmp_path: Path
) -> None:
    kept = Path(str(files("fencepost_clusters.apache_kafka"))) / finding.history
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(kept.parent, folder.path)
    if kept.suffix == ".gz":
        (folder.path / kept.stem).write_bytes(gzip.decompress(kept.read_bytes()))
    judgement, end = judge_folder(folder, plugins.promises)
    assert end.complete
    violated = set(judgement.of(Outcome.VIOLATED))
    assert set(finding.clauses) <= violated <= {*finding.clauses, *finding.then}
    assert {judgement.verdicts[clause].known for clause in violated} == {(finding.id,)}
    assert judgement.broken == ()


@pytest.mark.parametrize("finding", known_findings(), ids=lambda one: one.id)
def test_a_finding_can_be_replayed(finding: KnownFinding) -> None:
    kept = Path(str(files("fencepost_clusters.apache_kafka")))
    assert read(kept / finding.schedule).injections
    assert RunFolder((kept / finding.schedule).parent).info().system == finding.system
    assert finding.versions
    assert all(0 <= one.runs <= one.of for one in finding.seen)


def test_a_plugin_lists_them(plugins: Plugins) -> None:
    assert known_findings()
    assert set(known_findings()) <= set(plugins.known_findings)
