"""Which lines each part of a program executes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from fencepost.campaigns.mutants.reach import Part, Reach, Tracer

SOURCE = """\
LIMIT = 3

def small(number):
    if number < LIMIT:
        return True
    return False

def counting():
    yield 1
    yield 2
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "sizes.py").write_text(SOURCE)
    return str(tmp_path / "sizes.py")


@pytest.fixture
def tracer(path: str) -> Iterator[Tracer]:
    former = sys.gettrace()
    yield Tracer([path])
    sys.settrace(former)


def imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_part_has_the_lines_that_it_executes_and_no_others(path: str, tracer: Tracer) -> None:
    sizes = imported(path)
    tracer.start()
    tracer.begin("small")
    sizes.small(1)
    tracer.begin("large")
    sizes.small(5)
    reach = tracer.stop()
    assert set(reach.of(path, range(4, 5))) == {"small", "large"}
    assert reach.of(path, range(5, 6)) == ["small"]
    assert reach.of(path, range(6, 7)) == ["large"]
    assert reach.of(path, range(9, 10)) == []
    assert reach.of("other.py", range(4, 5)) == []


def test_a_generator_that_a_part_resumes_is_executed_by_it(path: str, tracer: Tracer) -> None:
    sizes = imported(path)
    tracer.start()
    tracer.begin("first")
    numbers = sizes.counting()
    next(numbers)
    tracer.begin("second")
    next(numbers)
    reach = tracer.stop()
    assert reach.of(path, range(9, 10)) == ["first"]
    assert reach.of(path, range(10, 11)) == ["second"]


def test_a_line_that_runs_at_import_concerns_every_part(path: str, tracer: Tracer) -> None:
    tracer.start()
    imported(path)
    tracer.begin("a")
    tracer.begin("b")
    assert set(tracer.stop().of(path, range(1, 2))) == {"a", "b"}


def test_other_threads_are_traced(path: str, tracer: Tracer) -> None:
    sizes = imported(path)
    tracer.start()
    tracer.begin("a")
    thread = Thread(target=sizes.small, args=(1,))
    thread.start()
    thread.join()
    assert tracer.stop().of(path, range(5, 6)) == ["a"]


def test_the_shortest_part_comes_first() -> None:
    parts = [Part("a", 2.0, {"f": {1, 2}}), Part("b", 1.0, {"f": {2}}), Part("c", 0.5, {"f": {3}})]
    assert Reach(parts).of("f", range(1, 3)) == ["b", "a"]
