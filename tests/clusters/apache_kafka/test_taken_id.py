"""A recorded run of Apache Kafka 4.1.0 in which a second process gets a broker's id."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from tests.suites.partition_histories import why

from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.plugins.manager import load
from fencepost.testing import Outcome

RUN = Path(__file__).parent / "samples" / "taken-id"


def test_what_is_lost_with_the_disk_of_another_process_is_excused(tmp_path: Path) -> None:
    """Its disk is a copy of the broker's. It leads the partitions of which the broker was the only
    member of the ISR, and then the broker does, with its older disk."""
    folder = RunFolder(shutil.copytree(RUN, tmp_path / "run"))
    packed = folder.path / "history.ndjson.gz"
    (folder.path / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    judgement, end = judge_folder(folder, load().promises)
    assert end.complete
    assert judgement.of(Outcome.VIOLATED) == ()
    assert why(judgement.verdicts["RP-06"], "harms") == "broker-2-duplicate#1 had its id"
