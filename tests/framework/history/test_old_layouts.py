"""A run folder that was recorded in layout 1, by events of schema 1, is read and judged."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fencepost.events import FaultInjected, Unrecognised
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.judge import Outcome, read_verdicts
from fencepost.plugins.manager import load
from fencepost.runs import schedule

SAMPLE = Path(__file__).parent / "samples" / "run-layout-1.tar.gz"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A bounce of a leader under load, recorded in the simulator."""
    with tarfile.open(SAMPLE) as packed:
        packed.extractall(tmp_path, filter="data")
    (path,) = tmp_path.iterdir()
    return RunFolder(path)


def test_run_json_is_read_with_its_counts_and_slots(folder: RunFolder) -> None:
    info = folder.info()
    assert (info.layout, info.system, info.runtime) == (1, "reference/quorum", "simulated")
    assert info.counts == {"controller": 3, "broker": 3, "combined": 0}
    (twin,) = [slot for slot in info.slots if slot.name == "broker-1-twin"]
    assert (twin.duplicate, twin.role, twin.node_id) == (True, "broker", 1)


def test_events_under_old_names_are_of_the_present_kinds(folder: RunFolder) -> None:
    codec = merge.Codec(load().event_kinds)
    events = list(merge.read(folder, codec))
    (bounce,) = [e.body for e in events if isinstance(e.body, FaultInjected)]
    assert (bounce.fault, bounce.receipt) == ("bounce", True)
    assert not [e for e in events if isinstance(e.body, Unrecognised)]


def test_an_old_run_has_the_verdicts_of_its_time(folder: RunFolder) -> None:
    then = read_verdicts(folder.path / "verdicts.json")
    judgement, end = judge_folder(folder, load().promises)
    assert end.complete
    assert {clause: v.verdict for clause, v in then.items()} == {
        clause: judgement.verdicts[clause].verdict for clause in then
    }
    assert judgement.of(Outcome.HOLDS)


def test_its_schedule_can_be_replayed(folder: RunFolder) -> None:
    (bounce,) = schedule.read(folder.schedule).injections
    assert (bounce.fault, bounce.receipt) == ("bounce", True)
