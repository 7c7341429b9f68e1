"""ParsedLog: the lines that a process prints become its events at once, each line once."""

from __future__ import annotations

import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fencepost import (
    Command,
    Fold,
    Layout,
    LogParser,
    ParsedEvent,
    Place,
    Recorder,
    Shape,
    Slot,
    Stalled,
)
from fencepost.events import Codec, Event, EvidenceMissed
from fencepost.history.merge import merge
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import PluginFailed
from fencepost.model.runtime import Condition, Process, Signal
from fencepost.model.system.subject import Subject
from fencepost.model.view import View
from fencepost.runtimes.process.log_following import ParsedLog, ParsedLogs
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka import Role


class Counting:
    """Makes an event of each line that is a number, at that time."""

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        return [ParsedEvent(int(line), Stalled(stalled_ns=int(line)))] if line.isdigit() else ()


@pytest.fixture
def parsed_logs() -> Iterator[ParsedLogs]:
    made = ParsedLogs()
    yield made
    made.close()
    made.close()


def events_in(path: Path) -> list[Event]:
    return [Codec().decode(line) for line in path.read_bytes().splitlines()]


def parsed_log(folder: Path) -> ParsedLog:
    return ParsedLog(Counting(), Recorder.open(folder / "a#1.ndjson", "run", "a#1"))


def test_lines_printed_before_and_after_make_events_in_order(
    tmp_path: Path, parsed_logs: ParsedLogs
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"7\nnoise\n")
    parsed_logs.follow(log, parsed_log(tmp_path))
    with log.open("ab", buffering=0) as printing:
        printing.write(b"8\n9")
        assert select.select([parsed_logs], [], [], 5)[0]
        parsed_logs.read()
        printing.write(b"1\n\xff\n")
        parsed_logs.read()
    parsed_logs.read()
    events = events_in(tmp_path / "a#1.ndjson")
    assert [(e.process, e.node_seq, e.at_ns) for e in events] == [
        ("a#1", 0, 7),
        ("a#1", 1, 8),
        ("a#1", 2, 91),
    ]


class WallClocked:
    """Makes an event of each line, with the time of the wall clock when the line was parsed."""

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        return [ParsedEvent(time.time_ns(), Stalled(stalled_ns=1), wall=True)]


def test_a_stamp_of_the_wall_clock_is_converted_to_the_runs_clock(tmp_path: Path) -> None:
    recorder = Recorder.open(tmp_path / "a#1.ndjson", "run", "a#1")
    began_ns = now_ns()
    ParsedLog(WallClocked(), recorder).take(b"one\n")
    (event,) = events_in(tmp_path / "a#1.ndjson")
    assert began_ns - SECOND // 100 <= event.at_ns <= now_ns() + SECOND // 100


def test_logs_of_several_processes_are_kept_apart(tmp_path: Path, parsed_logs: ParsedLogs) -> None:
    logs = []
    for name in ("a", "b"):
        log = tmp_path / f"{name}.log"
        log.touch()
        recorder = Recorder.open(tmp_path / f"{name}#1.ndjson", "run", f"{name}#1")
        parsed_logs.follow(log, ParsedLog(Counting(), recorder))
        logs.append(log)
    for number, log in enumerate(logs):
        log.write_bytes(f"{number}\n".encode())
    parsed_logs.read()
    assert [e.at_ns for e in events_in(tmp_path / "a#1.ndjson")] == [0]
    assert [e.at_ns for e in events_in(tmp_path / "b#1.ndjson")] == [1]


class Clumsy:
    """Fails at the second line."""

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        return Counting().parse(line) if line == "7" else [ParsedEvent(line + 1, Stalled())]  # type: ignore


def test_a_parser_that_raises_is_named_with_the_line_and_the_history_lacks_what_it_told(
    tmp_path: Path,
) -> None:
    recorder = Recorder.open(tmp_path / "a#1.ndjson", "run", "a#1")
    parsed = ParsedLog(Clumsy(), recorder, "acme/lamps", Path("logs/a#1.log"))
    parsed.take(b"7\neight\n9\n")
    first, missed = events_in(tmp_path / "a#1.ndjson")
    assert first.at_ns == 7
    assert isinstance(missed.body, EvidenceMissed)
    assert missed.body.kinds == ()
    said = (
        f"the log parser {__name__}:Clumsy of the system acme/lamps raised TypeError: can only "
        rf'concatenate str \(not "int"\) to str \({__file__}:\d+\) at line 2 of logs/a#1.log'
    )
    assert re.fullmatch(f"{said}; no later line of it was read", missed.body.what)
    assert parsed.failed is not None
    assert re.match(f"{said}, 'eight': let it return no event for a line ", str(parsed.failed))
    assert parsed.failed.exit_code == 2


PROGRAM = """
import signal, time
for number in (time.monotonic_ns(), time.monotonic_ns()):
    print(number, flush=True)
print("cut off in the mid", end="", flush=True)
signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Printing:
    """A system whose nodes print, and write no events."""

    name: str = "test/printing"
    plane: str = "test"

    def layout(self, shape: Shape) -> Layout:
        return Layout((Slot("broker-1", Role.BROKER, 1, 1),), ())

    counts: Mapping[str, int] = field(default_factory=dict)
    folds: Sequence[type[Fold]] = ()
    workload: str = ""
    parser: Callable[[], LogParser] = Counting

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        return ()

    def recovery_bound_ms(self, shape: Shape) -> int:
        return 1_000

    def command(self, place: Place, shape: Shape) -> Command:
        return Command((sys.executable, "-c", PROGRAM))

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        return self.parser()


def recorded_twice(process: Process) -> Condition:
    """Both of its lines have become events; the harness may also record stalls of its own."""

    def holds(view: View) -> bool:
        last = view.latest.get((process.name, "process.stalled"))
        return last is not None and last.node_seq == 1

    return Condition(f"two lines of {process.name}", holds)


@pytest.mark.real
def test_a_run_has_the_events_of_nodes_that_only_print_and_sigkill_loses_none(
    tmp_path: Path,
) -> None:
    runtime = ProcessRuntime(Subject(Printing(), Shape()), RunFolder.create(tmp_path / "run"))
    with runtime:
        (slot,) = runtime.layout.slots
        first = runtime.start(slot)
        assert runtime.advance(recorded_twice(first), now_ns() + 20 * SECOND) is not None
        runtime.signal(first, Signal.KILL)
        second = runtime.start(slot)
        assert runtime.advance(recorded_twice(second), now_ns() + 20 * SECOND) is not None
    mine = [e for e in runtime.events() if isinstance(e.body, Stalled) and e.process != "harness"]
    assert [(e.process, e.node_seq) for e in mine] == [
        (first.name, 0),
        (first.name, 1),
        (second.name, 0),
        (second.name, 1),
    ]
    assert all(e.at_ns == e.body.stalled_ns for e in mine if isinstance(e.body, Stalled))


@dataclass(slots=True)
class RaisesAfterOne:
    """Makes an event of the first line, and raises at the next."""

    lines: int = 1

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        self.lines -= 1
        if self.lines < 0:
            raise ValueError("no such line")
        return Counting().parse(line)


@pytest.mark.real
def test_a_parser_that_raises_ends_the_run_and_leaves_its_history_incomplete(
    tmp_path: Path,
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    runtime = ProcessRuntime(Subject(Printing(parser=RaisesAfterOne), Shape()), folder)
    with runtime:
        (slot,) = runtime.layout.slots
        first = runtime.start(slot)
        for _ in range(2):  # whoever waits next is told, too
            with pytest.raises(PluginFailed, match=r"ValueError: no such line .* at line 2 of "):
                runtime.advance(recorded_twice(first), now_ns() + 20 * SECOND)
    end = merge(folder, Codec())
    assert not end.complete
    assert [one for one in end.damage if "at line 2 of" in one]
