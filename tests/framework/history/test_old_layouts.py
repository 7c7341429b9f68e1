"""A run folder that was recorded in layout 1, by events of schema 1, is read and judged."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fencepost.events import FaultInjected, NodeStarted, PromiseObserved, Unrecognised
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.verdicts import Outcome, read_verdicts
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
    (duplicate,) = [slot for slot in info.slots if slot.name == "broker-1-twin"]
    assert (duplicate.duplicate, duplicate.role, duplicate.node_id) == (True, "broker", 1)


def test_events_under_old_names_are_of_the_present_kinds(folder: RunFolder) -> None:
    codec = merge.Codec(load().event_kinds)
    events = list(merge.read(folder, codec))
    (bounce,) = [e.body for e in events if isinstance(e.body, FaultInjected)]
    assert (bounce.fault, bounce.receipt) == ("bounce", True)
    assert not [e for e in events if isinstance(e.body, Unrecognised)]
    started = [e.body for e in events if isinstance(e.body, NodeStarted)]
    assert started
    assert all(body.log_end >= 0 for body in started)


def line_of(body: str) -> bytes:
    return b'{"run":"r","process":"p","node_seq":0,"at_ns":1,"body":%s}' % body.encode()


@pytest.mark.parametrize(
    "body",
    [
        '{"type":"test.promise_witnessed","clause":"A","held":true,"evidence":"e","witness":"peer"}',
        '{"type":"test.promise_observed","clause":"A","held":true,"evidence":"e","seen_by":"peer"}',
    ],
)
def test_an_observed_promise_is_read_under_both_names(body: str) -> None:
    read = merge.Codec().decode(line_of(body))
    assert read.body == PromiseObserved(clause="A", held=True, evidence="e", seen_by="peer")


@pytest.mark.parametrize("field", ["metadata_offset", "log_end"])
def test_a_nodes_start_is_read_under_both_names(field: str) -> None:
    body = f'{{"type":"node.started","role":"server","node_id":3,"{field}":7}}'
    read = merge.Codec().decode(line_of(body))
    assert read.body == NodeStarted(role="server", node_id=3, log_end=7)


def test_a_verdicts_evidence_is_read_under_its_old_name(folder: RunFolder) -> None:
    path = folder.path / "verdicts.json"
    assert b'"witness"' in path.read_bytes()
    held = [one for one in read_verdicts(path).values() if one.verdict is Outcome.HOLDS]
    assert held
    assert all(one.evidence is not None for one in held)


def test_an_old_run_has_the_verdicts_of_its_time(folder: RunFolder) -> None:
    then = read_verdicts(folder.path / "verdicts.json")
    plugins = load()
    judgement, end = judge_folder(folder, plugins.promises)
    assert end.complete
    gone = {clause: v.verdict for clause, v in then.items() if clause in plugins.replaced}
    assert {*gone.values()} == {Outcome.NOT_APPLICABLE}
    assert {clause: v.verdict for clause, v in then.items()} == gone | {
        clause: judgement.verdicts[clause].verdict for clause in then if clause not in gone
    }
    assert judgement.of(Outcome.HOLDS)


def test_its_schedule_can_be_replayed(folder: RunFolder) -> None:
    assert b'"strikes"' in folder.schedule.read_bytes()
    (bounce,) = schedule.read(folder.schedule).injections
    assert (bounce.fault, bounce.receipt) == ("bounce", True)
