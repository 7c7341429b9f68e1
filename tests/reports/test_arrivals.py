"""Which runs of a followed folder are read, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sample_runs import NIGHT, ended, lamps, write

from fencepost_reports import places
from fencepost_reports.many_runs.arrivals import Arrival, Arrivals
from fencepost_reports.one_run.run import RunSource

PATIENCE_S = 10.0


def found(name: str, *, judged: bool = False, mark: str = "") -> Arrival:
    return Arrival(RunSource(name, f"/runs/{name}"), judged, mark)


def names(due: Sequence[RunSource]) -> list[str]:
    return [source.run for source in due]


def test_a_judged_run_is_due_once() -> None:
    arrivals = Arrivals(PATIENCE_S)
    assert names(arrivals.due([found("a", judged=True), found("b")], 0)) == ["a"]
    assert arrivals.done == {"/runs/a"}
    assert names(arrivals.due([found("a", judged=True), found("b", judged=True)], 1)) == ["b"]
    assert names(arrivals.due([found("a", judged=True)], 2)) == []


def test_a_run_that_goes_on_is_waited_for_as_long_as_it_writes() -> None:
    arrivals = Arrivals(PATIENCE_S)
    for now_s in range(0, 100, 9):
        assert not arrivals.due([found("a", mark=str(now_s))], now_s)
        assert arrivals.waiting == 1
    assert names(arrivals.due([found("a", judged=True)], 100)) == ["a"]
    assert arrivals.waiting == 0


def test_a_run_that_has_stopped_writing_is_due_as_it_is_and_again_if_it_goes_on() -> None:
    arrivals = Arrivals(PATIENCE_S)
    assert not arrivals.due([found("a", mark="1")], 5)
    assert not arrivals.due([found("a", mark="1")], 14.9)
    assert names(arrivals.due([found("a", mark="1")], 15)) == ["a"]
    assert arrivals.waiting == 0
    assert not arrivals.due([found("a", mark="1")], 100)
    assert not arrivals.due([found("a", mark="2")], 101)
    assert names(arrivals.due([found("a", mark="2")], 111)) == ["a"]
    assert names(arrivals.due([found("a", judged=True)], 112)) == ["a"]


def test_a_run_that_is_gone_is_forgotten() -> None:
    arrivals = Arrivals(PATIENCE_S)
    arrivals.due([found("a", mark="1")], 0)
    arrivals.due([], 1)
    assert arrivals.waiting == 0
    assert not arrivals.due([found("a", mark="1")], 11)


def test_runs_are_found_in_a_folder_and_in_the_folders_in_it(tmp_path: Path) -> None:
    one = write(tmp_path, "one", ended(lamps(*NIGHT)))
    two = write(tmp_path / "soak", "two", ended(lamps(*NIGHT)))
    three = write(tmp_path / "soak", "three", ended(lamps(*NIGHT)))
    write(tmp_path / "out" / "runs", "copied", ended(lamps(*NIGHT)))
    (tmp_path / "begun" / "events").mkdir(parents=True)
    (tmp_path / "a-file").write_text("")
    for name in ("verdicts.json", "judged.json"):
        (two / name).write_text("{}")
    (one / "verdicts.json").write_text("{}")
    seen = dict(places.runs_in(str(tmp_path), {str(three)}, str(tmp_path / "out")))
    assert seen == {str(one): False, str(two): True}


def test_a_file_of_a_run_that_is_written_to_changes_its_mark(tmp_path: Path) -> None:
    run = write(tmp_path, "run", ended(lamps(*NIGHT)))
    marks = [places.mark(places.recorded(str(run)))]
    (run / "events" / "history.ndjson").write_bytes(b"\n")
    marks.append(places.mark(places.recorded(str(run))))
    (run / "history.ndjson").write_bytes(b"\n")
    marks.append(places.mark(places.recorded(str(run))))
    (run / "logs" / "broker-1.log").write_bytes(b"\n")
    assert places.mark(places.recorded(str(run))) == marks[-1]
    assert len(set(marks)) == len(marks)
